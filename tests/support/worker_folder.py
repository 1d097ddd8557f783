"""A worker's folder that a test writes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from click.testing import Result

from .command_line import workerctl

ENTRY = """from workers import Response, WorkerEntrypoint


class Default(WorkerEntrypoint):
    async def fetch(self, request):
        return Response("hi")
"""


class WorkerFolder:
    """A worker `hello` with `src/entry.py`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.write("src/entry.py", ENTRY)
        self.configure()

    def write(self, name: str, text: str) -> Path:
        path = self.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    # Any: JSON
    def configure(self, **keys: Any) -> None:
        """Write wrangler.jsonc, with more keys than a worker must have."""
        keys = {"name": "hello", "main": "src/entry.py", **keys}
        self.write("wrangler.jsonc", json.dumps(keys))

    def run(
        self, *arguments: str, stdin: str | None = None, env: Mapping[str, str] | None = None
    ) -> Result:
        """Run `workerctl`; the folder is the current directory."""
        return workerctl(*arguments, env=env or {}, stdin=stdin)

    def run_json(self, *arguments: str, stdin: str | None = None) -> Any:
        """Run it with `--json`, and return what it printed."""
        result = self.run(*arguments, "--json", stdin=stdin)
        assert result.exit_code == 0, result.output
        return json.loads(result.stdout)
