"""Bodies in pieces."""

from __future__ import annotations

from collections.abc import AsyncIterator


class Pieces:
    """A `ByteStream` of given pieces, which knows what became of it."""

    def __init__(self, *pieces: bytes, error: Exception | None = None) -> None:
        self._pieces = list(pieces)
        self._error = error
        self.num_read = 0
        self.is_closed = False

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for piece in self._pieces:
            self.num_read += 1
            yield piece
        if self._error is not None:
            raise self._error

    async def aclose(self) -> None:
        self.is_closed = True
