"""`workerctl dev` as a user starts it: its own process, port, state and configuration."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from support.command_line import PROGRAM
from support.http_peer import an_unused_port
from support.processes import descendants_of
from tenantry.credentials import Credentials, load_credentials

SERVE = """
import sys
from pathlib import Path
from tenantry_runtime.dev import serve
port, state_dir, *catalog = sys.argv[1:]
sys.exit(
    serve(
        port=int(port),
        state_dir=Path(state_dir),
        catalog=Path(catalog[0]) if catalog else None,
        demo=not catalog,
    )
)
"""

LAST_LINE = "Ctrl-C ends everything."

PATIENCE_S = 120.0
"""For a start that takes seconds on a machine with nothing else to do."""


@dataclass(slots=True, kw_only=True)
class DevServer:
    folder: Path
    port: int
    process: subprocess.Popen[str]
    lines: list[str] = field(default_factory=list)

    @property
    def state_dir(self) -> Path:
        return self.folder / "state"

    @property
    def environment(self) -> dict[str, str]:
        return environment(self.folder)

    @property
    def credentials(self) -> Credentials:
        credentials = load_credentials(self.folder / "config" / "credentials.json")
        assert credentials is not None
        return credentials

    def wait_for_line(self, wanted: str) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line.rstrip("\n"))
            if wanted in line:
                return
        raise AssertionError(f"no {wanted!r} in: {self.lines}")

    def wait_for_end(self) -> int:
        assert self.process.stdout is not None
        self.lines += self.process.stdout.read().splitlines()
        return self.process.wait()

    def descendants(self, count: int) -> list[int]:
        """Wait until there are so many, and return their process ids."""
        while len(pids := descendants_of(self.process.pid)) < count:
            assert self.process.poll() is None, self.lines
        return pids

    def interrupt(self) -> None:
        """Do as a terminal does on Ctrl-C: signal the whole process group."""
        os.killpg(self.process.pid, signal.SIGINT)


@contextmanager
def a_dev_server(
    folder: Path, *, port: int | None = None, catalog: Path | None = None, demo: bool = False
) -> Iterator[DevServer]:
    """Start one; leaving kills it if it still runs, and after `PATIENCE_S` in any case.

    With a catalog, or a demo of the built-in one, it is started by `serve`, since the command has
    no such options.
    """
    port = port or an_unused_port()
    state_dir = folder / "state"
    if demo or catalog:
        arguments = [SERVE, str(port), str(state_dir), *([str(catalog)] if catalog else [])]
    else:
        arguments = [PROGRAM, "dev", "--port", str(port), "--state-dir", str(state_dir)]
    with subprocess.Popen(
        [sys.executable, "-c", *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=environment(folder),
        start_new_session=True,
    ) as process:
        watchdog = threading.Timer(PATIENCE_S, process.kill)
        watchdog.start()
        try:
            yield DevServer(folder=folder, port=port, process=process)
        finally:
            watchdog.cancel()
            process.kill()


def environment(folder: Path) -> dict[str, str]:
    """Of the server and its clients: nothing but the credentials file says where it is."""
    own = {name: value for name, value in os.environ.items() if not name.startswith("TENANTRY_")}
    return own | {"TENANTRY_CONFIG_DIR": str(folder / "config")}
