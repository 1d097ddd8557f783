"""Streams of bytes: those that the runtime has, and those that the worker makes."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable

from tenantry.workers._host import Body, HostStream
from tenantry_runtime.workers.frames import INITIAL_CREDIT, MAX_DATA_BYTES, Break, Credit, End

from .channel import Channel

_TURN_S = 0.005
"""That a body may be made without others having their turn."""


class Streams:
    """All streams of an isolate by their numbers."""

    def __init__(self, channel: Channel, loop: asyncio.AbstractEventLoop) -> None:
        self.channel = channel
        self.loop = loop
        self.incoming: dict[int, Incoming] = {}
        self.outgoing: dict[int, Outgoing] = {}
        self.num_awaited = 0
        """Tasks that wait for what the runtime sends of streams: bytes, or credit."""
        self._next = 1

    def open_incoming(self, number: int, content_type: str = "") -> Incoming:
        """Take a stream of the runtime's; nothing comes of it before it is read."""
        stream = self.incoming[number] = Incoming(self, number, content_type)
        return stream

    def open_outgoing(self) -> Outgoing:
        """Make a stream; whoever opens it names it to the runtime, then pumps it."""
        stream = self.outgoing[self._next] = Outgoing(self, self._next)
        self._next += 2
        return stream

    async def wait(self, waiter: asyncio.Future[None]) -> None:
        """Wait for what the runtime will send."""
        self.num_awaited += 1
        try:
            await waiter
        finally:
            self.num_awaited -= 1


class Incoming:
    """A stream of the runtime's, as `tenantry.workers` wants it: read once, here or not at all."""

    __slots__ = (
        "_error",
        "_has_begun",
        "_is_over",
        "_num_consumed",
        "_pieces",
        "_streams",
        "_waiter",
        "content_type",
        "number",
    )

    def __init__(self, streams: Streams, number: int, content_type: str) -> None:
        self.number = number
        self.content_type = content_type
        self._streams = streams
        self._pieces: deque[bytes] = deque()
        self._waiter: asyncio.Future[None] | None = None
        self._num_consumed = 0
        self._has_begun = False
        self._is_over = False
        self._error: str | None = None

    def hand_on(self) -> int | None:
        """Give up the stream by its number; None if it is too late to hand it on unread."""
        if self._has_begun or self._is_over:
            return None
        self._end()
        return self.number

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        if not self._has_begun and not self._is_over:
            self._has_begun = True
            self._streams.channel.send(Credit(self.number, INITIAL_CREDIT))
        while not self._pieces:
            if self._error is not None:
                raise ConnectionError(self._error)
            if self._is_over:
                raise StopAsyncIteration
            if self._waiter is None or self._waiter.done():
                self._waiter = self._streams.loop.create_future()
            await self._streams.wait(self._waiter)
        piece = self._pieces.popleft()
        self._num_consumed += len(piece)
        if self._num_consumed >= INITIAL_CREDIT // 2 and not self._is_over:
            self._streams.channel.send(Credit(self.number, self._num_consumed))
            self._num_consumed = 0
        return piece

    async def aclose(self) -> None:
        """Tell the runtime that no more is wanted."""
        self.close()

    def close(self) -> None:
        """Do what `aclose` does."""
        if not self._is_over:
            self._streams.channel.send(Break(self.number))
            self._end()
        self._pieces.clear()

    def feed(self, piece: bytes) -> None:
        """Take bytes that have come."""
        self._pieces.append(piece)
        self._wake()

    def finish(self, error: str | None = None) -> None:
        """Take the sender's last word."""
        self._error = error
        self._end()

    def _end(self) -> None:
        self._is_over = True
        self._streams.incoming.pop(self.number, None)
        self._wake()

    def _wake(self) -> None:
        waiter, self._waiter = self._waiter, None
        if waiter is not None and not waiter.done():
            waiter.set_result(None)


class StreamRefused(Exception):
    """The runtime wants no more of a stream."""


class Outgoing:
    """A stream of the worker's, which sends no more than the runtime has room for."""

    __slots__ = ("_credit", "_is_refused", "_streams", "_waiter", "number", "on_refused")

    def __init__(self, streams: Streams, number: int) -> None:
        self.number = number
        self.on_refused: Callable[[], object] | None = None
        """Called when the runtime wants no more: cancels who pumps."""
        self._streams = streams
        self._credit = INITIAL_CREDIT
        self._is_refused = False
        self._waiter: asyncio.Future[None] | None = None

    async def pump(self, body: Body) -> None:
        """Send a body to its end, and close it; a body that raises breaks the stream, and raises.

        Raises `StreamRefused` where the runtime breaks it.
        """
        last_word: End | Break = Break(self.number, "the body was given up")
        try:
            if isinstance(body, bytes):
                await self._send(body)
            elif body is not None:
                await self._send_all(body)
            last_word = End(self.number)
        except Exception as error:
            last_word = Break(self.number, type(error).__name__)
            raise
        finally:
            try:
                if not isinstance(body, bytes) and body is not None:
                    await close(body)
            finally:
                self._say(last_word)

    def abandon(self) -> None:
        """End what was never pumped."""
        self._say(Break(self.number, "the body was given up"))

    def forget(self) -> None:
        """End what was never named to the runtime."""
        self._streams.outgoing.pop(self.number, None)

    def grant(self, num_bytes: int) -> None:
        """Take credit."""
        self._credit += num_bytes
        self._wake()

    def refuse(self) -> None:
        """Hear that the runtime wants no more."""
        self._is_refused = True
        if self.on_refused is not None:
            self.on_refused()
        self._wake()

    async def _send_all(self, body: HostStream | AsyncIterator[bytes]) -> None:
        clock = self._streams.loop.time
        turn_began = clock()
        async for piece in body:
            await self._send(piece)
            if clock() - turn_began > _TURN_S:
                self._streams.channel.flush()
                await asyncio.sleep(0)
                turn_began = clock()

    async def _send(self, piece: bytes) -> None:
        rest = memoryview(piece)
        while rest:
            if self._is_refused:
                raise StreamRefused
            if not self._credit:
                self._waiter = self._streams.loop.create_future()
                try:
                    await self._streams.wait(self._waiter)
                finally:
                    self._waiter = None
                continue
            part = rest[: min(self._credit, MAX_DATA_BYTES)]
            self._streams.channel.send_data(self.number, part)
            self._credit -= len(part)
            rest = rest[len(part) :]

    def _say(self, last_word: End | Break) -> None:
        if self._streams.outgoing.pop(self.number, None) is not None:
            self._streams.channel.send(last_word)

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


async def close(body: object) -> None:
    """Close a body, if it is one that can be."""
    aclose = getattr(body, "aclose", None)
    if aclose is not None:
        await aclose()
