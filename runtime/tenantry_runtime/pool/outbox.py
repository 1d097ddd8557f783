"""What one process has yet to tell another, in order and bounded."""

from __future__ import annotations

from collections import deque

import anyio


class Outbox:
    """A queue of encoded messages: submissions wait for room, cancellations never do.

    There is at most one cancellation per submission, so the bound holds for both.
    """

    def __init__(self, *, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._messages: deque[bytes] = deque()
        self._num_bytes = 0
        self._is_closed = False
        self._changed = anyio.Event()

    @property
    def num_bytes(self) -> int:
        return self._num_bytes

    async def wait_for_room(self) -> None:
        """Return when a submission may be posted, or when the queue is closed."""
        while self._num_bytes > self._max_bytes:
            await self._changed.wait()

    def post(self, message: bytes) -> None:
        """Queue a message; one for a closed queue is dropped."""
        if self._is_closed:
            return
        self._messages.append(message)
        self._num_bytes += len(message)
        self._announce()

    async def take(self) -> bytes:
        while not self._messages:
            await self._changed.wait()
        message = self._messages.popleft()
        self._num_bytes -= len(message)
        self._announce()
        return message

    def close(self) -> None:
        """Drop what is queued: the peer is gone."""
        self._is_closed = True
        self._messages.clear()
        self._num_bytes = 0
        self._announce()

    def _announce(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()
