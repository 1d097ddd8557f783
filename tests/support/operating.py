"""`workerctl` as an operator uses it, on a store of the test's own."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from click.testing import Result

from support.command_line import workerctl


@dataclass(frozen=True, slots=True, kw_only=True)
class Operator:
    state_dir: Path
    url: str | None = None

    def __call__(self, *arguments: str, stdin: str | None = None) -> Result:
        """Run a command, whatever becomes of it."""
        place = ["--store", self.url] if self.url else ["--state-dir", str(self.state_dir)]
        env = {"TENANTRY_STORE": "", "COLUMNS": "100"}
        return workerctl(*arguments, *place, env=env, stdin=stdin)

    def does(self, *arguments: str) -> str:
        """Run a command that works, and return what it prints on standard output."""
        result = self(*arguments)
        assert result.exit_code == 0, result.output
        return result.stdout

    def json(self, *arguments: str) -> Any:
        return json.loads(self.does(*arguments, "--json"))

    def fails(self, *arguments: str, code: int = 1) -> str:
        """Run a command that does not work, and return the one line that says why."""
        result = self(*arguments)
        assert (result.exit_code, result.stdout) == (code, "")
        line = result.stderr.splitlines()[-1]
        if code == 1:
            assert result.stderr == f"{line}\n"
        return line
