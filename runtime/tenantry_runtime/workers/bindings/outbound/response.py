"""The body of a response: read at its reader's pace, unpacked, and no longer than it may be."""

from __future__ import annotations

import zlib
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from types import AsyncGeneratorType

import httpcore

from tenantry_runtime.workers.frames import MAX_DATA_BYTES
from tenantry_runtime.workers.interface import CallRefused

PACKED = {"gzip": 31, "x-gzip": 31, "deflate": 15}
"""What is unpacked, though nobody has asked for it: zlib's word for each."""
MEMBER = b"\x1f"
"""What a member of gzip begins with; they follow each other (RFC 1952). Other bytes are padding."""
FEED_BYTES = 4096
"""Unpacked at a time: what follows a member is copied as often as one in the same piece ends."""


class ResponseBody:
    """A `ByteStream`. Closing it early closes the connection."""

    def __init__(
        self,
        response: httpcore.Response,
        *,
        encoding: str | None,
        max_bytes: int,
        failed: Callable[[Exception], CallRefused],
    ) -> None:
        """`failed` says what a worker gets for an error of the network."""
        self._response = response
        self._encoding = encoding
        self._max_bytes = max_bytes
        self._failed = failed
        pieces = self._read()
        assert isinstance(pieces, AsyncGeneratorType)
        self._pieces = pieces

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self._pieces

    async def aclose(self) -> None:
        # who is reading just now hears of it by the connection's end
        if not self._pieces.ag_running:
            await self._pieces.aclose()
        await self._response.aclose()

    async def _read(self) -> AsyncGenerator[bytes, None]:
        num_bytes = 0
        try:
            async for piece in self._unpacked():
                num_bytes += len(piece)
                if num_bytes > self._max_bytes:
                    raise self._too_long()
                # an empty one costs its reader no credit
                if piece:
                    yield piece
        except (httpcore.NetworkError, httpcore.ProtocolError, httpcore.TimeoutException) as error:
            raise self._failed(error) from error
        finally:
            await self._response.aclose()

    async def _unpacked(self) -> AsyncGenerator[bytes, None]:
        if self._encoding is None:
            async for piece in self._response.aiter_stream():
                yield piece
            return
        unpacker = _Unpacker(PACKED[self._encoding])
        num_packed = 0
        try:
            async for packed in self._response.aiter_stream():
                # what unpacks to nothing counts too, and would come for ever
                num_packed += len(packed)
                if num_packed > self._max_bytes:
                    raise self._too_long()
                for piece in unpacker.feed(packed):
                    yield piece
            yield unpacker.flush()
        except zlib.error as error:
            raise CallRefused("ConnectionError", "fetch: the response is packed wrongly") from error
        if num_packed and not unpacker.is_whole:
            raise CallRefused("ConnectionError", "fetch: the packed response is cut off")

    def _too_long(self) -> CallRefused:
        problem = f"the response has more than {self._max_bytes} bytes"
        return CallRefused("ConnectionError", f"fetch: {problem}")


class _Unpacker:
    """Unpacks pieces of a body, member after member; raises `zlib.error`."""

    def __init__(self, window_bits: int) -> None:
        self._window_bits = window_bits
        self._member = zlib.decompressobj(window_bits)

    @property
    def is_whole(self) -> bool:
        """Whether the last member has ended."""
        return self._member.eof

    def feed(self, packed: bytes) -> Iterator[bytes]:
        """Yield what a piece unpacks to, at most `MAX_DATA_BYTES` at a time; some may be empty."""
        for start in range(0, len(packed), FEED_BYTES):
            left = packed[start : start + FEED_BYTES]
            # a small piece may be a very long one, packed
            while left:
                if self._member.eof:
                    if not left.startswith(MEMBER):
                        # one that has ended would keep all that comes
                        break
                    self._member = zlib.decompressobj(self._window_bits)
                yield self._member.decompress(left, MAX_DATA_BYTES)
                left = self._member.unconsumed_tail or self._member.unused_data

    def flush(self) -> bytes:
        return self._member.flush()
