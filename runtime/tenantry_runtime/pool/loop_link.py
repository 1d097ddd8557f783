"""The front's end of the step loop: starts its process, talks to it, and ends it."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import anyio
import anyio.lowlevel

from .frames import FrameBuffer, with_length
from .outbox import Outbox
from .shared_pages import create_pages_file
from .wire import LoopCommand, LoopReport, decode_report, encode

ENGINE = "tenantry_runtime.pool.loop_process:build_engine"

MAX_UNSENT_BYTES = 4 << 20
"""Submissions wait while more than this waits for the step loop to read."""

EXIT_GRACE_S = 0.8
"""A loop that computes sees its socket close after the step; then it is killed."""

RECEIVE_BYTES = 1 << 16
"""At a time: some milliseconds of work for the front."""

SEND_BYTES = 1 << 16
"""Messages that wait are sent together, up to this."""

# an OpenMP worker that spins between steps takes the core from front and edge
_PASSIVE_WAIT = {"OMP_WAIT_POLICY": "passive", "GOMP_SPINCOUNT": "0"}


class LoopLink:
    """A running step-loop process and the socket to it."""

    def __init__(self, process: anyio.abc.Process, peer: socket.socket, pages_fd: int) -> None:
        self.pages_fd = pages_fd
        """Of the memory that the two share; open as long as the link is."""
        self._process = process
        self._peer = peer
        self._outbox = Outbox(max_bytes=MAX_UNSENT_BYTES)

    @property
    def pid(self) -> int:
        return self._process.pid

    def configure(self, engine_config: bytes) -> None:
        """Send the engine's configuration, which the loop awaits before all else."""
        self._outbox.post(with_length(engine_config))

    def post(self, command: LoopCommand) -> None:
        """Queue a command behind all earlier ones. Precede a submission by `wait_for_room`."""
        self._outbox.post(with_length(encode(command)))

    async def wait_for_room(self) -> None:
        """Return when the step loop keeps up with what it is told."""
        await self._outbox.wait_for_room()

    async def send_forever(self) -> None:
        """Send what is posted, until the loop's end is closed."""
        while True:
            rest = memoryview(await self._outbox.take_run(SEND_BYTES))
            while rest:
                try:
                    rest = rest[self._peer.send(rest) :]
                except BlockingIOError:
                    await anyio.wait_writable(self._peer)
                except (BrokenPipeError, ConnectionResetError):
                    # `reports` sees the same and says so
                    self._outbox.close()
                    return

    async def reports(self) -> AsyncIterator[LoopReport]:
        """Yield what the loop says; end when it has closed its end."""
        received = FrameBuffer()
        while True:
            try:
                chunk = self._peer.recv(RECEIVE_BYTES)
            except BlockingIOError:
                await anyio.wait_readable(self._peer)
                continue
            except ConnectionResetError:
                return
            if not chunk:
                return
            for message in received.feed(chunk):
                yield decode_report(message)
            # a loop that is faster than the front must not keep it from all else
            await anyio.lowlevel.checkpoint()

    async def end(self) -> str:
        """Close the socket, wait for the process, kill it if it lingers; return how it ended."""
        self._peer.close()
        with anyio.move_on_after(EXIT_GRACE_S):
            await self._process.wait()
        with suppress(ProcessLookupError):
            self._process.kill()
        return how_it_ended(await self._process.wait())


@asynccontextmanager
async def start_loop(engine_config: bytes, *, build: str = ENGINE) -> AsyncIterator[LoopLink]:
    """Run a step loop of this configuration (JSON) for the duration of the context."""
    ours, theirs = socket.socketpair()
    pages_fd = create_pages_file()
    try:
        with theirs:
            process = await anyio.open_process(
                [
                    sys.executable,
                    *("-m", "tenantry_runtime.pool.loop_process"),
                    *(str(theirs.fileno()), str(pages_fd), str(os.getpid()), build),
                ],
                stdin=subprocess.DEVNULL,
                stdout=None,
                stderr=None,
                env=_PASSIVE_WAIT | os.environ,
                pass_fds=[theirs.fileno(), pages_fd],
            )
        ours.setblocking(False)
        link = LoopLink(process, ours, pages_fd)
        link.configure(engine_config)
        try:
            yield link
        finally:
            # the process must be reaped even when this scope is cancelled; `end` is bounded
            with anyio.CancelScope(shield=True):
                await link.end()
    finally:
        ours.close()
        os.close(pages_fd)


def how_it_ended(return_code: int) -> str:
    """Say in words what a process's return code means."""
    if return_code >= 0:
        return f"exited with code {return_code}"
    return f"was ended by {signal.Signals(-return_code).name}"
