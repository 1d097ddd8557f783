"""The runtime's side of a template's control socket: orders out, what happened in."""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Callable
from dataclasses import dataclass, field

import anyio
import msgspec

from .errors import SpawnFailed
from .spawned import ExitStatus
from .wire import MAX_MESSAGE_BYTES, SpawnOrder, TemplateOrder, encode

_log = logging.getLogger(__name__)


class _Message(msgspec.Struct, frozen=True):
    """Any of a template's messages; which fields it has says which."""

    ready: dict[str, int] | None = None
    spawned: int | None = None
    exited: int | None = None
    signal: int | None = None
    code: int | None = None
    failed: str | None = None
    id: int | None = None


@dataclass(slots=True, eq=False)
class _Awaited:
    event: anyio.Event = field(default_factory=anyio.Event)
    pidfd: int | None = None
    problem: str = "its template has ended"


class Control:
    """One template's. Nothing of a tenant's is ever read from it."""

    def __init__(self, socket_: socket.socket, on_exit: Callable[[int, ExitStatus], None]) -> None:
        """`on_exit` hears of each spawned id once; the socket does not block."""
        self._socket = socket_
        self._on_exit = on_exit
        self._awaited: dict[int, _Awaited] = {}
        self._sending = anyio.Lock()

    async def begin(self, order: TemplateOrder) -> None:
        """Send the first order and wait for the template. Raises `SpawnFailed`."""
        await self._send(encode(order), [])
        message, _ = await self._receive()
        if message is None:
            raise SpawnFailed("it ended before it was ready")
        if message.ready is None:
            raise SpawnFailed(message.failed or "it does not say that it is ready")

    async def order(self, order: SpawnOrder, descriptors: list[int]) -> None:
        """Send an order, all of it or, if this raises, nothing. Raises `SpawnFailed`."""
        self._awaited[order.id] = _Awaited()
        try:
            await self._send(encode(order), descriptors)
        except BaseException:
            del self._awaited[order.id]
            raise

    async def answer(self, id: int) -> int:
        """Return the pidfd of what was ordered, the caller's to close. Raises `SpawnFailed`."""
        awaited = self._awaited[id]
        try:
            await awaited.event.wait()
        except BaseException:
            if awaited.pidfd is not None:
                os.close(awaited.pidfd)
            raise
        finally:
            del self._awaited[id]
        if awaited.pidfd is None:
            raise SpawnFailed(awaited.problem)
        return awaited.pidfd

    async def run(self) -> None:
        """Read until the template ends; whoever waits then is told."""
        try:
            while True:
                message, descriptors = await self._receive()
                if message is None:
                    return
                self._take(message, descriptors)
        finally:
            for awaited in self._awaited.values():
                awaited.event.set()

    def _take(self, message: _Message, descriptors: list[int]) -> None:
        if message.exited is not None:
            self._on_exit(message.exited, ExitStatus(signal=message.signal, code=message.code))
            return
        if message.failed is not None and message.id is None:
            _log.error("a template of isolates has failed: %s", message.failed)
        id = message.spawned if message.id is None else message.id
        awaited = None if id is None else self._awaited.get(id)
        if awaited is None or message.failed is not None:
            for descriptor in descriptors:
                os.close(descriptor)
        if awaited is not None:
            if message.failed is not None:
                awaited.problem = message.failed
            else:
                (awaited.pidfd,) = descriptors
            awaited.event.set()

    async def _send(self, packet: bytes, descriptors: list[int]) -> None:
        async with self._sending:
            while True:
                try:
                    socket.send_fds(self._socket, [packet], descriptors)
                    return
                except BlockingIOError:
                    await anyio.wait_writable(self._socket)
                except OSError as error:
                    raise SpawnFailed(f"its template has ended: {error}") from error

    async def _receive(self) -> tuple[_Message | None, list[int]]:
        while True:
            try:
                packet, descriptors, _, _ = socket.recv_fds(self._socket, MAX_MESSAGE_BYTES, 4)
            except BlockingIOError:
                await anyio.wait_readable(self._socket)
                continue
            except ConnectionError:
                return None, []
            if not packet:
                return None, []
            return msgspec.json.decode(packet, type=_Message), descriptors
