"""The process of an isolate, as the kernel tells of it."""

from __future__ import annotations

import fcntl
import signal
import struct
import termios
import time

from tenantry_runtime.workers.guest.inquiry import ASKED
from tenantry_runtime.workers.sandbox import Spawned

from .interface import Exit


class SpawnedProcess:
    """An `IsolateProcess`."""

    __slots__ = ("_clock", "_cpu_ns", "_spawned")

    def __init__(self, spawned: Spawned) -> None:
        self._spawned = spawned
        # what `clock_getcpuclockid` makes of a process's number
        self._clock = (~spawned.pid << 3) | 2
        self._cpu_ns = 0

    @property
    def pid(self) -> int:
        return self._spawned.pid

    def cpu_ns(self) -> int:
        try:
            self._cpu_ns = time.clock_gettime_ns(self._clock)
        except OSError:
            # one that has ended has no clock
            pass
        return self._cpu_ns

    def unread_bytes(self) -> int:
        # the kernel counts what it takes to hold them, which is more
        try:
            answer = fcntl.ioctl(self._spawned.socket.fileno(), termios.TIOCOUTQ, bytes(4))
        except (OSError, ValueError):
            return 0
        unread: int = struct.unpack("i", answer)[0]
        return unread

    def inquire(self) -> None:
        try:
            signal.pidfd_send_signal(self._spawned.pidfd, ASKED)
        except OSError:
            # it has ended
            pass

    def kill(self) -> None:
        self._spawned.kill()

    async def wait(self) -> Exit:
        status = await self._spawned.wait()
        return Exit(status=status.code, signal=status.signal)
