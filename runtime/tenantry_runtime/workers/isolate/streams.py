"""Streams of bytes between the runtime and an isolate, as the runtime has them."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import AsyncIterator, Callable
from typing import Any, Protocol

import anyio
from anyio.abc import TaskGroup

from tenantry_runtime.workers.frames import (
    INITIAL_CREDIT,
    MAX_DATA_BYTES,
    Break,
    Credit,
    Data,
    End,
)
from tenantry_runtime.workers.interface import ByteStream, CallRefused

from .channel import Channel
from .interface import InvocationFailed, StreamBroken, Violation

MAX_CREDIT = 1 << 31
"""More than a stream can have; an isolate that gives it is lying."""
CLOSE_S = 5.0
"""That closing a stream's source may take, once nobody waits for it."""

_logger = logging.getLogger(__name__)


class Owner(Protocol):
    """What streams belong to: they are closed with it."""

    sources: set[Source]


class Received:
    """A stream that an isolate sends, as a `ByteStream`: no more of it is held than it has credit for."""

    __slots__ = (
        "_channel",
        "_error",
        "_granted",
        "_is_over",
        "_is_refused",
        "_num_read",
        "_pieces",
        "_waiter",
        "is_answer",
        "number",
    )

    def __init__(self, channel: Channel, number: int) -> None:
        self.number = number
        self.is_answer = False
        """Whether it is the body of a response."""
        self._channel = channel
        self._pieces: deque[bytes] = deque()
        self._granted = INITIAL_CREDIT
        self._num_read = 0
        self._is_refused = False
        self._is_over = False
        self._error: Exception | None = None
        self._waiter: anyio.Event | None = None

    @property
    def is_over(self) -> bool:
        """Whether all has come that comes, or nobody wants it."""
        return self._is_over or self._is_refused

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        while not self._pieces:
            if self._error is not None:
                raise self._error
            if self.is_over:
                raise StopAsyncIteration
            if self._waiter is None:
                self._waiter = anyio.Event()
            await self._waiter.wait()
        piece = self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces)
        self._pieces.clear()
        self._num_read += len(piece)
        if self._num_read >= INITIAL_CREDIT // 2 and not self.is_over:
            self._granted += self._num_read
            self._channel.send(Credit(self.number, self._num_read))
            self._num_read = 0
        return piece

    async def aclose(self) -> None:
        self.refuse()

    def refuse(self) -> None:
        """Tell the isolate that nobody wants more."""
        if not self.is_over:
            self._is_refused = True
            self._channel.send(Break(self.number))
        self._pieces.clear()
        self._wake()

    def feed(self, piece: bytes) -> None:
        """Take bytes that have come. Raises `Violation` for more than there was credit for."""
        if not piece:
            raise Violation(f"an empty piece of stream {self.number}")
        self._granted -= len(piece)
        if self._granted < 0:
            raise Violation(f"{-self._granted} bytes of stream {self.number} beyond its credit")
        if not self._is_refused:
            self._pieces.append(piece)
            self._wake()

    def finish(self) -> None:
        """Hear that all has come."""
        self._is_over = True
        self._wake()

    def fail(self, error: Exception) -> None:
        """End it with what its reader is to be told."""
        if not self._is_over:
            self._is_over = True
            self._error = error
            self._wake()

    def _wake(self) -> None:
        if self._waiter is not None:
            self._waiter.set()
            self._waiter = None


class Source:
    """A stream that the runtime sends: not a byte of it before the isolate gives credit."""

    __slots__ = (
        "_credit",
        "_has_credit",
        "_is_void",
        "_scope",
        "_sources",
        "_stream",
        "number",
        "owner",
    )

    def __init__(
        self, sources: Sources, number: int, stream: ByteStream, owner: Owner | None
    ) -> None:
        self.number = number
        self.owner = owner
        self._sources = sources
        self._stream = stream
        self._credit = 0
        self._is_void = False
        self._has_credit: anyio.Event | None = None
        self._scope: anyio.CancelScope | None = None

    @property
    def has_begun(self) -> bool:
        """Whether some of it may have been read."""
        return self._scope is not None

    def grant(self, num_bytes: int) -> None:
        """Take credit; the first begins it."""
        self._credit += num_bytes
        if self._credit > MAX_CREDIT:
            raise Violation(f"stream {self.number} was given credit for {self._credit} bytes")
        if self._has_credit is not None:
            self._has_credit.set()
        if self._scope is None:
            self._scope = anyio.CancelScope()
            self._sources.group.start_soon(self._pump, self._scope)

    def take(self) -> ByteStream:
        """Give what it reads from to whoever carries it past the isolate."""
        if self._scope is not None:
            raise Violation(f"stream {self.number} was handed on after it had begun")
        self._sources.forget(self)
        return self._stream

    def end(self, message: str) -> None:
        """Break it, and close what it reads from."""
        self._is_void = True
        if self._sources.forget(self):
            self._sources.channel.send(Break(self.number, message))
        if self._scope is not None:
            self._scope.cancel()
        else:
            self._sources.dispose(self._stream)

    async def _pump(self, scope: anyio.CancelScope) -> None:
        last_word: End | Break = End(self.number)
        pieces = aiter(self._stream)
        try:
            with scope:
                async for piece in pieces:
                    await self._send(piece)
            if scope.cancelled_caught:
                last_word = Break(self.number, "the stream was closed")
        except CallRefused as error:
            last_word = Break(self.number, f"{error.name}: {error.message}")
        except (StreamBroken, anyio.BrokenResourceError, ConnectionError) as error:
            last_word = Break(self.number, str(error) or "the stream broke")
        except Exception:
            # a task of its own: what it raises would end the isolate, for a stream's fault
            _logger.exception("a stream for an isolate failed")
            last_word = Break(self.number, "the stream broke")
        finally:
            if self._sources.forget(self):
                self._sources.channel.send(last_word)
            # a generator that was left in its middle, before what it reads from
            await close(pieces)
            await close(self._stream)

    async def _send(self, piece: bytes) -> None:
        rest = memoryview(piece)
        while rest:
            while not self._credit:
                self._has_credit = anyio.Event()
                await self._has_credit.wait()
            await self._sources.channel.room()
            if self._is_void:
                return
            part = rest[: min(self._credit, MAX_DATA_BYTES)]
            self._credit -= len(part)
            self._sources.channel.send(Data(self.number, bytes(part)))
            rest = rest[len(part) :]


class Sources:
    """The streams that the runtime has for an isolate, by their numbers."""

    def __init__(self, channel: Channel) -> None:
        self.channel = channel
        self.group: TaskGroup
        self._open: dict[int, Source] = {}
        self._next = 2

    def __len__(self) -> int:
        return len(self._open)

    def open(self, stream: ByteStream, owner: Owner | None) -> int:
        """Name a stream, which is closed with its owner; return its number."""
        number = self._next
        self._next += 2
        source = self._open[number] = Source(self, number, stream, owner)
        if owner is not None:
            owner.sources.add(source)
        return number

    def get(self, number: int) -> Source | None:
        """Return an open stream; None for one that was. Raises `Violation` for one that never was."""
        if number >= self._next or not number:
            raise Violation(f"there is no stream {number}")
        return self._open.get(number)

    def take(self, number: int) -> ByteStream:
        """Take a stream out, to be carried past the isolate; one that has ended meanwhile is broken."""
        source = self.get(number)
        return Lost() if source is None else source.take()

    def forget(self, source: Source) -> bool:
        """Void a stream's number; return whether it was not void already."""
        if source.owner is not None:
            source.owner.sources.discard(source)
        return self._open.pop(source.number, None) is not None

    def end_all(self) -> None:
        """Close all, for want of an isolate."""
        for source in list(self._open.values()):
            source.end("the isolate has ended")

    def dispose(self, stream: object) -> None:
        """Close a stream that nobody will read, in a task of its own."""
        self.group.start_soon(close, stream)


class Lost:
    """A `ByteStream` that was handed on when it had ended already."""

    async def __aiter__(self) -> AsyncIterator[bytes]:
        raise InvocationFailed("Error", "the stream had ended before it was handed on")
        yield b""

    async def aclose(self) -> None:
        """Nothing is left to close."""


async def close(stream: Any) -> None:
    """Close a stream; shielded, so that whoever is cancelled gives back what it holds, but bounded."""
    aclose: Callable[[], Any] | None = getattr(stream, "aclose", None)
    if aclose is None:
        return
    with anyio.move_on_after(CLOSE_S, shield=True):
        try:
            await aclose()
        except Exception:
            _logger.exception("a stream could not be closed")
