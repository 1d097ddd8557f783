"""`ByteStream`s that several parts need: bytes that are there, and a stream that holds something."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

from .frames import MAX_DATA_BYTES
from .interface import ByteStream

MAX_VALUE_BYTES = 256 << 10
"""A longer result of a call is a stream: a frame holds no more than four of this."""


class BytesStream:
    """Bytes that are there, in pieces; read once."""

    __slots__ = ("_whole",)

    def __init__(self, whole: bytes) -> None:
        self._whole = whole

    async def __aiter__(self) -> AsyncIterator[bytes]:
        at = 0
        while piece := self._whole[at : at + MAX_DATA_BYTES]:
            at += len(piece)
            yield piece

    async def aclose(self) -> None:
        self._whole = b""


class HeldStream:
    """Another stream; `release` is called once, when it ends, breaks off or is closed."""

    __slots__ = ("_release", "_stream")

    def __init__(self, stream: ByteStream, release: Callable[[], None]) -> None:
        self._stream = stream
        self._release: Callable[[], None] | None = release

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            async for piece in self._stream:
                yield piece
        finally:
            self._give_back()

    async def aclose(self) -> None:
        try:
            await self._stream.aclose()
        finally:
            self._give_back()

    def _give_back(self) -> None:
        if self._release is not None:
            release, self._release = self._release, None
            release()
