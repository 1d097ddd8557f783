"""Which isolates that run nothing end, and when."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic, TypeVar

IsolateT = TypeVar("IsolateT")

TYPICAL_BYTES = 3 << 20
"""Private to an isolate that has not been measured: what one of a small worker has."""


class _Idle:
    __slots__ = ("memory_bytes", "since_s")

    def __init__(self, since_s: float) -> None:
        self.since_s = since_s
        self.memory_bytes: int | None = None


class IdleIsolates(Generic[IsolateT]):
    """Isolates that run nothing, in the order in which they began to. Pure: it ends none itself."""

    def __init__(self, *, budget_bytes: int, idle_s: float) -> None:
        self._budget_bytes = budget_bytes
        self._idle_s = idle_s
        self._idle: dict[IsolateT, _Idle] = {}
        self._num_bytes = 0

    def __len__(self) -> int:
        return len(self._idle)

    def __contains__(self, isolate: IsolateT) -> bool:
        return isolate in self._idle

    def __iter__(self) -> Iterator[IsolateT]:
        return iter(self._idle)

    @property
    def memory_bytes(self) -> int:
        """Of all of them; `TYPICAL_BYTES` for each that was not measured."""
        return self._num_bytes

    def add(self, isolate: IsolateT, now_s: float) -> None:
        """Take an isolate that has begun to run nothing."""
        assert isolate not in self._idle
        self._idle[isolate] = _Idle(now_s)
        self._num_bytes += TYPICAL_BYTES

    def discard(self, isolate: IsolateT) -> None:
        """Forget one: it runs something again, or has ended."""
        idle = self._idle.pop(isolate, None)
        if idle is not None:
            self._num_bytes -= _bytes_of(idle)

    def unmeasured(self) -> list[IsolateT]:
        """Return those whose memory nobody has told since they are here."""
        return [isolate for isolate, idle in self._idle.items() if idle.memory_bytes is None]

    def measured(self, isolate: IsolateT, num_bytes: int) -> None:
        """Take what memory is private to one; one that runs again by now is passed over."""
        idle = self._idle.get(isolate)
        if idle is not None:
            self._num_bytes += num_bytes - _bytes_of(idle)
            idle.memory_bytes = num_bytes

    def oldest(self) -> IsolateT | None:
        """Return the one idle for longest."""
        return next(iter(self._idle), None)

    def due(self, now_s: float) -> list[IsolateT]:
        """Return those that have to end: idle for too long, or for longest while all are too large."""
        excess_bytes = self._num_bytes - self._budget_bytes
        ending = []
        for isolate, idle in self._idle.items():
            if excess_bytes <= 0 and now_s - idle.since_s < self._idle_s:
                break
            excess_bytes -= _bytes_of(idle)
            ending.append(isolate)
        return ending


def _bytes_of(idle: _Idle) -> int:
    return TYPICAL_BYTES if idle.memory_bytes is None else idle.memory_bytes
