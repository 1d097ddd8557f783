"""Child processes that end with this one, whichever way that ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import anyio
from anyio.abc import Process

EXIT_GRACE_S = 1.8
"""Between SIGTERM and SIGKILL, of a child that waits for nobody."""

TAIL_LINES = 15
TAIL_BYTES = 1 << 14


@dataclass(frozen=True, slots=True, kw_only=True)
class Child:
    """One running child."""

    name: str
    process: Process
    log: Path
    grace_s: float
    """Between SIGTERM and SIGKILL."""

    def kill(self) -> None:
        """End it with all that it has started, unless it has ended."""
        if self.process.returncode is None:
            with suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)

    def terminate(self) -> None:
        with suppress(ProcessLookupError):
            self.process.terminate()

    def log_tail(self) -> list[str]:
        """The last lines that it wrote."""
        with self.log.open("rb") as log:
            log.seek(max(0, log.seek(0, os.SEEK_END) - TAIL_BYTES))
            return log.read().decode(errors="replace").splitlines()[-TAIL_LINES:]


@asynccontextmanager
async def start_child(
    name: str, module: str, *arguments: str, log: Path, grace_s: float = EXIT_GRACE_S
) -> AsyncIterator[Child]:
    """Run a Python module in a process of its own for the duration of the context.

    It has a session of its own, so that the terminal's Ctrl-C reaches this process alone, which
    then ends its children in order.
    """
    descriptor = _new_log(log)
    try:
        process = await anyio.open_process(
            [
                *(sys.executable, "-m", "tenantry_runtime.pool.lifeline", str(os.getpid())),
                *(module, *arguments),
            ],
            stdin=subprocess.DEVNULL,
            stdout=descriptor,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    finally:
        os.close(descriptor)

    child = Child(name=name, process=process, log=log, grace_s=grace_s)
    try:
        yield child
    finally:
        # a child is ended and reaped even when this scope is cancelled; the time is bounded
        with anyio.CancelScope(shield=True):
            await _end(child)


def _new_log(path: Path) -> int:
    if path.exists():
        path.replace(path.with_name(f"{path.name}.previous"))
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)


async def _end(child: Child) -> None:
    child.terminate()
    with anyio.move_on_after(child.grace_s):
        await child.process.wait()
    child.kill()
    await child.process.wait()
