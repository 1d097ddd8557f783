"""Bytes that come in pieces: read here, or handed on unread."""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import AsyncIterable, AsyncIterator, Iterable
from typing import Any, NamedTuple, Self, TypeGuard

from ._errors import AiError
from ._host import HostStream, is_stream
from ._values import JsonObject, wrap

BODY_USED = "Body already used"
TEE_BYTES = 16 << 20
"""That one half of a clone may be ahead of the other: a tenth of what an isolate has."""


def is_bytes(value: object) -> TypeGuard[bytes | bytearray | memoryview]:
    """Whether it is bytes, of whatever kind."""
    return isinstance(value, bytes | bytearray | memoryview)


class Buffer(bytes):
    """Bytes, which also answer to what JavaScript's buffers are asked in Python."""

    __slots__ = ()

    def to_bytes(self) -> bytes:
        """Return it."""
        return self

    to_py = to_bytes
    tobytes = to_bytes

    @property
    def byteLength(self) -> int:
        """The number of bytes."""
        return len(self)


class ReadResult(NamedTuple):
    """What a stream's reader reads."""

    value: Buffer | None
    done: bool


class ReadableStream:
    """A body in pieces, as an async iterator of bytes that is read once.

    As the body of a `Response` or of a `fetch`, one that nobody has read from costs this worker
    nothing: where the bytes are the runtime's, such as a model's answer, they never come here.
    """

    __slots__ = ("_closed", "_iterator", "_source", "_used", "content_type")

    def __init__(
        self,
        source: HostStream | AsyncIterable[bytes | str] | Iterable[bytes | str] | bytes,
        *,
        content_type: str = "",
    ) -> None:
        self._source = source
        self._iterator: AsyncIterator[bytes] | None = None
        self._used = False
        self._closed = False
        self.content_type = content_type or getattr(source, "content_type", "")

    content_type: str
    """What the bytes are, if whoever sends them says so: a model's answer is `text/event-stream`."""

    @property
    def used(self) -> bool:
        """Whether it has been read from, or handed on."""
        return self._used

    locked = used

    @property
    def closed(self) -> bool:
        """Whether nothing more comes of it: it was read to its end, closed, or handed on."""
        return self._closed

    def take(self) -> HostStream | AsyncIterator[bytes]:
        """Hand on what is left to read, untouched if nobody has read; `OSError` if it is closed."""
        if self._closed:
            raise OSError(BODY_USED)
        self._used = self._closed = True
        if self._iterator is not None:
            return self._iterator
        return self._source if is_stream(self._source) else _Pieces(self._source)

    def take_whole(self) -> bytes | None:
        """Hand on all of it, if it is here and nobody has read from it."""
        if self._used or not isinstance(self._source, bytes):
            return None
        self._used = self._closed = True
        return self._source

    async def read(self) -> bytes:
        """Return all of it; `OSError` if it has been read from or handed on."""
        if self._used:
            raise OSError(BODY_USED)
        return b"".join([piece async for piece in self])

    async def aclose(self) -> None:
        """End it where it is; whoever sends it hears of it."""
        if self._closed:
            return
        self._used = self._closed = True
        await (self._source if is_stream(self._source) else _Pieces(self._source)).aclose()

    cancel = aclose

    def __aiter__(self) -> ReadableStream:
        return self

    async def __anext__(self) -> Buffer:
        if self._closed:
            if self._iterator is None:
                raise OSError(BODY_USED)
            raise StopAsyncIteration
        if self._iterator is None:
            self._used = True
            source = self._source
            self._iterator = aiter(source) if is_stream(source) else _Pieces(source)
        try:
            return Buffer(await anext(self._iterator))
        except StopAsyncIteration:
            self._closed = True
            raise

    def getReader(self) -> StreamReader:
        """Return the web's way to read it."""
        return StreamReader(self)

    def tee(self) -> tuple[ReadableStream, ReadableStream]:
        """Return two streams of the same bytes; this one is used then.

        What one of them is ahead of the other is held here: at most `TEE_BYTES`, then `BufferError`.
        """
        shared = _Tee(self.take())
        first, second = _Branch(shared, 0), _Branch(shared, 1)
        return (
            ReadableStream(first, content_type=self.content_type),
            ReadableStream(second, content_type=self.content_type),
        )

    async def events(self) -> AsyncIterator[JsonObject]:
        """Yield the chunks of a model's answer, up to its `[DONE]`.

        Raises `AiError` where the server says that it failed, or ends before `[DONE]`.
        """
        try:
            async for event in _events(self):
                if event == b"[DONE]":
                    return
                chunk = wrap(json.loads(event))
                if isinstance(chunk, JsonObject):
                    _raise_if_failed(chunk)
                    yield chunk
            raise AiError("StreamTruncated", "the stream ended before the answer was whole")
        finally:
            await self.aclose()


class StreamReader:
    """The web's reader of a stream: `read` until `done`."""

    __slots__ = ("_stream",)

    def __init__(self, stream: ReadableStream) -> None:
        self._stream = stream

    async def read(self) -> ReadResult:
        """Return the next piece, or that there is none."""
        try:
            return ReadResult(await anext(self._stream), False)
        except StopAsyncIteration:
            return ReadResult(None, True)

    async def cancel(self) -> None:
        """End the stream where it is."""
        await self._stream.aclose()

    def releaseLock(self) -> None:
        """Do nothing: a stream has no lock."""


class _Tee:
    """What two branches read from: each piece is asked for once, and held until both have it."""

    def __init__(self, source: HostStream | AsyncIterator[bytes]) -> None:
        self._source = source
        self._iterator = aiter(source)
        self._ahead: list[deque[bytes]] = [deque(), deque()]
        self._num_ahead = [0, 0]
        self._open = [True, True]
        self._pull: asyncio.Task[None] | None = None
        self._end: BaseException | None = None

    async def next_piece(self, branch: int) -> bytes:
        waiting = self._ahead[branch]
        while not waiting:
            if self._end is not None:
                raise self._end
            if self._pull is None:
                self._pull = asyncio.ensure_future(self._read())
            # shielded: the other branch may wait for the same piece
            await asyncio.shield(self._pull)
        piece = waiting.popleft()
        self._num_ahead[branch] -= len(piece)
        return piece

    async def close(self, branch: int) -> None:
        self._open[branch] = False
        self._ahead[branch].clear()
        self._num_ahead[branch] = 0
        if not any(self._open):
            if self._pull is not None:
                self._pull.cancel()
            if aclose := getattr(self._source, "aclose", None):
                await aclose()

    async def _read(self) -> None:
        try:
            piece = await anext(self._iterator)
            for branch in (0, 1):
                if self._open[branch]:
                    self._ahead[branch].append(piece)
                    self._num_ahead[branch] += len(piece)
            if max(self._num_ahead) > TEE_BYTES:
                raise BufferError(
                    f"one half of a clone is {TEE_BYTES >> 20} MiB ahead of the other; read both "
                    "at the same pace, or do not clone what is this long"
                )
        except Exception as error:
            self._end = error
        finally:
            self._pull = None


class _Branch:
    def __init__(self, tee: _Tee, branch: int) -> None:
        self._tee = tee
        self._branch = branch

    def __aiter__(self) -> _Branch:
        return self

    async def __anext__(self) -> bytes:
        return await self._tee.next_piece(self._branch)

    async def aclose(self) -> None:
        await self._tee.close(self._branch)


class Passage:
    """Pieces that one task makes and another pulls, one at most between them: they go at the reader's pace."""

    def __init__(self) -> None:
        self._waiting: asyncio.Queue[bytes | Exception | None] = asyncio.Queue(1)

    async def put(self, piece: bytes | Exception | None) -> None:
        """Hand on a piece, the end (None), or what the reader raises instead; wait for room."""
        await self._waiting.put(piece)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        piece = await self._waiting.get()
        if piece is None:
            raise StopAsyncIteration
        if isinstance(piece, Exception):
            raise piece
        return piece


class _Pieces:
    """A worker's own pieces, as bytes; closing it closes what they come from, begun or not."""

    __slots__ = ("_iterator", "_source")

    def __init__(self, source: Any) -> None:
        self._source = source
        self._iterator: Any = None

    def __aiter__(self) -> _Pieces:
        return self

    async def __anext__(self) -> bytes:
        if hasattr(self._source, "__aiter__"):
            if self._iterator is None:
                self._iterator = aiter(self._source)
            return _piece(await anext(self._iterator))
        if self._iterator is None:
            # of bytes themselves, an iterator would give numbers
            whole = isinstance(self._source, bytes)
            self._iterator = iter((self._source,)) if whole else iter(self._source)
        for piece in self._iterator:
            return _piece(piece)
        raise StopAsyncIteration

    async def aclose(self) -> None:
        if aclose := getattr(self._source, "aclose", None):
            await aclose()
        elif close := getattr(self._source, "close", None):
            close()


def _piece(piece: object) -> bytes:
    if isinstance(piece, str):
        return piece.encode()
    if is_bytes(piece):
        return bytes(piece)
    raise TypeError(f"a body's pieces are bytes or str, not {type(piece).__name__}")


async def _events(stream: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Yield what the events of an answer say: the server writes one line of data for each."""
    rest = b""
    async for piece in stream:
        *lines, rest = (rest + piece).split(b"\n")
        for line in lines:
            if line.startswith(b"data:"):
                yield line[5:].strip()


def _raise_if_failed(chunk: JsonObject) -> None:
    errors = chunk.get("errors")
    if errors:
        code = errors[0].get("code")
        raise AiError("AiError", f"{code}: {errors[0].get('message')}", code)
