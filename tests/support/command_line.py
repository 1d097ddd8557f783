"""`workerctl` as a user runs it: in this process for speed, or in its own for signals and pipes."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from click.testing import CliRunner, Result

from tenantry_cli.main import main

from .http_peer import PATIENCE_S

PROGRAM = "from tenantry_cli.main import main; main(prog_name='workerctl')"


def workerctl(*arguments: str, env: Mapping[str, str], stdin: str | None = None) -> Result:
    """Run a command here; standard error is apart from standard output."""
    return CliRunner().invoke(main, arguments, env=env, input=stdin, prog_name="workerctl")


@contextmanager
def a_workerctl_process(
    *arguments: str, env: Mapping[str, str]
) -> Iterator[subprocess.Popen[bytes]]:
    """Start a command in its own process, with pipes; leaving ends it."""
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM, *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, **env},
    ) as process:
        try:
            yield process
            process.wait(PATIENCE_S)
        finally:
            process.kill()
