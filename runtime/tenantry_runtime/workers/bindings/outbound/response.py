"""The body of a response: read at its reader's pace, unpacked, and no longer than it may be."""

from __future__ import annotations

import zlib
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from types import AsyncGeneratorType

import httpcore

from tenantry_runtime.workers.frames import MAX_DATA_BYTES
from tenantry_runtime.workers.interface import CallRefused

PACKED = {"gzip": 31, "x-gzip": 31, "deflate": 15}
"""What is unpacked, though nobody has asked for it: zlib's word for each."""


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
                    problem = f"the response has more than {self._max_bytes} bytes"
                    raise CallRefused("ConnectionError", f"fetch: {problem}")
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
        unpacker = zlib.decompressobj(PACKED[self._encoding])
        try:
            async for packed in self._response.aiter_stream():
                left = packed
                # a small piece may be a very long one, packed
                while left:
                    yield unpacker.decompress(left, MAX_DATA_BYTES)
                    left = unpacker.unconsumed_tail
            yield unpacker.flush()
        except zlib.error as error:
            raise CallRefused("ConnectionError", "fetch: the response is packed wrongly") from error
