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
        self._changed: anyio.Event | None = None
        """There while somebody waits: most of what is posted nobody waits for."""

    @property
    def num_bytes(self) -> int:
        return self._num_bytes

    @property
    def has_room(self) -> bool:
        """Whether `wait_for_room` returns at once."""
        return self._num_bytes <= self._max_bytes

    async def wait_for_room(self) -> None:
        """Return when a submission may be posted, or when the queue is closed."""
        while not self.has_room:
            await self._change()

    def post(self, message: bytes) -> None:
        """Queue a message; one for a closed queue is dropped."""
        if self._is_closed:
            return
        self._messages.append(message)
        self._num_bytes += len(message)
        self._announce()

    async def take(self) -> bytes:
        """Return the next message."""
        return await self.take_run(0)

    async def take_run(self, max_bytes: int) -> bytes:
        """Return the next message and those after it that make no more than so many bytes together."""
        while not self._messages:
            await self._change()
        run = [self._messages.popleft()]
        num_bytes = len(run[0])
        while self._messages and num_bytes + len(self._messages[0]) <= max_bytes:
            num_bytes += len(self._messages[0])
            run.append(self._messages.popleft())
        self._num_bytes -= num_bytes
        self._announce()
        return b"".join(run)

    def close(self) -> None:
        """Drop what is queued: the peer is gone."""
        self._is_closed = True
        self._messages.clear()
        self._num_bytes = 0
        self._announce()

    def _announce(self) -> None:
        if self._changed is not None:
            self._changed.set()
            self._changed = None

    async def _change(self) -> None:
        if self._changed is None:
            self._changed = anyio.Event()
        await self._changed.wait()
