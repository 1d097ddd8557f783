"""The real wrangler, against a control plane that a test names by three environment variables."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from support.clients import CONFORMANCE

PATIENCE_S = 60.0
"""For a command that takes two seconds."""

WRANGLER = CONFORMANCE / "node" / "node_modules" / "wrangler" / "bin" / "wrangler.js"

_COLORS = re.compile(r"\x1b\[[0-9;]*m")


@dataclass(frozen=True, slots=True)
class Ran:
    """A command that has ended."""

    status: int
    output: str
    """What it printed on both streams."""
    printed: str
    """On standard output alone."""

    # Any: JSON
    @property
    def json(self) -> Any:
        return json.loads(self.printed)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wrangler:
    """Runs in a project's folder."""

    url: str
    account: str
    token: str
    folder: Path
    home: Path

    @property
    def environment(self) -> dict[str, str]:
        return {
            "PATH": os.environ["PATH"],
            "HOME": str(self.home),
            "CLOUDFLARE_API_BASE_URL": f"{self.url}/client/v4",
            "CLOUDFLARE_API_TOKEN": self.token,
            "CLOUDFLARE_ACCOUNT_ID": self.account,
            "WRANGLER_SEND_METRICS": "false",
            # nobody answers questions
            "CI": "1",
        }

    def command(self, *arguments: str) -> list[str]:
        assert WRANGLER.exists(), (
            f"wrangler is not there: run `make test-conformance`, or `npm ci` in {CONFORMANCE}/node"
        )
        return ["node", str(WRANGLER), *arguments]

    def run(self, *arguments: str, stdin: str = "") -> Ran:
        ran = subprocess.run(
            self.command(*arguments),
            cwd=self.folder,
            env=self.environment,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
        )
        output = _COLORS.sub("", ran.stdout + ran.stderr)
        return Ran(ran.returncode, output, _COLORS.sub("", ran.stdout))

    def __call__(self, *arguments: str, stdin: str = "") -> Ran:
        """Run what has to succeed."""
        ran = self.run(*arguments, stdin=stdin)
        assert ran.status == 0, f"wrangler {' '.join(arguments)}:\n{ran.output}"
        return ran


# Any: wrangler's configuration
def write_project(folder: Path, files: Mapping[str, str], **configuration: Any) -> None:
    """Write a project with its configuration."""
    whole = {
        "name": "hello",
        "main": "src/entry.py",
        "compatibility_date": "2026-04-01",
        "compatibility_flags": ["python_workers"],
        **configuration,
    }
    for path, content in {**files, "wrangler.jsonc": json.dumps(whole)}.items():
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(content)
