"""So many bytes a second, on average: who is late catches up, within limits."""

from __future__ import annotations

from collections.abc import Callable

import anyio

MOST_LATE_S = 0.05
"""What is caught up with. A rate that is out of reach does not pile up."""


class Pace:
    """Delays what several tasks send, so that together they keep to a rate."""

    def __init__(
        self,
        bytes_per_s: float | None = None,
        *,
        clock: Callable[[], float] = anyio.current_time,
    ) -> None:
        """Without a rate nothing waits."""
        self._bytes_per_s = bytes_per_s
        self._clock = clock
        self._due_s: float | None = None

    async def take(self, num_bytes: int) -> None:
        """Wait until so many bytes are due."""
        await anyio.sleep(self.delay_s(num_bytes))

    def delay_s(self, num_bytes: int) -> float:
        """Count the bytes as sent, and return for how long they must wait."""
        if self._bytes_per_s is None:
            return 0.0
        now_s = self._clock()
        due_s = now_s if self._due_s is None else max(self._due_s, now_s - MOST_LATE_S)
        self._due_s = due_s + num_bytes / self._bytes_per_s
        return max(0.0, due_s - now_s)
