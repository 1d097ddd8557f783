"""An isolate's process, as the runtime holds it."""

from __future__ import annotations

import os
import signal
import socket
from dataclasses import dataclass, field
from types import TracebackType

import anyio


@dataclass(frozen=True, slots=True, kw_only=True)
class ExitStatus:
    """How a process ended: by a signal, or with a code."""

    signal: int | None
    code: int | None


@dataclass(slots=True, eq=False, kw_only=True)
class Life:
    """From an order until its process has ended."""

    uid: int | None
    status: ExitStatus | None = None
    ended: anyio.Event = field(default_factory=anyio.Event)

    def end(self, status: ExitStatus) -> None:
        """Take down how it ended."""
        self.status = status
        self.ended.set()


class Spawned:
    """A blank, confined process that speaks on `socket`; leaving its scope ends it.

    `pidfd` can be read, as `poll` has it, when the process has ended. `pid` is what the runtime calls
    the process; inside it has another name.
    """

    def __init__(self, *, socket: socket.socket, pidfd: int, life: Life) -> None:
        """Own the socket, which does not block, and the descriptor."""
        self.socket = socket
        self.pidfd = pidfd
        self.pid = _pid_of(pidfd)
        self._life = life
        self._is_closed = False

    @property
    def uid(self) -> int | None:
        """Its own user; None where all isolates have the runtime's."""
        return self._life.uid

    @property
    def status(self) -> ExitStatus | None:
        """How it ended; None while it runs."""
        return self._life.status

    def kill(self) -> None:
        """End the process; nothing happens if it has ended."""
        if self._is_closed:
            return
        try:
            signal.pidfd_send_signal(self.pidfd, signal.SIGKILL)
        except ProcessLookupError:
            return

    async def wait(self) -> ExitStatus:
        """Wait until it has ended. Of a template that was killed all end by signal 9."""
        await self._life.ended.wait()
        assert self._life.status is not None
        return self._life.status

    async def aclose(self) -> None:
        """Kill it, wait for its end and close what the runtime holds of it."""
        if self._is_closed:
            return
        self.kill()
        self._is_closed = True
        try:
            # a process that was killed ends; what it has is free only then
            with anyio.CancelScope(shield=True):
                await anyio.wait_readable(self.pidfd)
                await self.wait()
        finally:
            self.socket.close()
            os.close(self.pidfd)

    async def __aenter__(self) -> Spawned:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.aclose()


def _pid_of(pidfd: int) -> int:
    with open(f"/proc/self/fdinfo/{pidfd}", encoding="ascii") as lines:
        return int(next(line for line in lines if line.startswith("Pid:")).split()[1])
