"""Bytes that are there, as a stream: what is too long to be a value of a frame."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

from tenantry_runtime.workers.frames import MAX_DATA_BYTES

MAX_VALUE_BYTES = 256 << 10
"""A longer result is a stream: a frame holds no more than four of this."""


class BytesStream:
    """A `ByteStream` of bytes that are there. `closed` is called once, when nobody needs them any more."""

    __slots__ = ("_at", "_closed", "_whole")

    def __init__(self, whole: bytes, closed: Callable[[], None] | None = None) -> None:
        self._whole = whole
        self._at = 0
        self._closed = closed

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        piece = self._whole[self._at : self._at + MAX_DATA_BYTES]
        self._at += len(piece)
        if not piece:
            self._close()
            raise StopAsyncIteration
        return piece

    async def aclose(self) -> None:
        self._close()

    def _close(self) -> None:
        self._whole = b""
        closed, self._closed = self._closed, None
        if closed is not None:
            closed()
