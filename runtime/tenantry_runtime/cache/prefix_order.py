"""Which of many members was used least recently, while members come and go."""

from __future__ import annotations

from collections.abc import Hashable
from heapq import heapify, heappop, heappush
from typing import Generic, TypeVar

Member = TypeVar("Member", bound=Hashable)


class RecencyOrder(Generic[Member]):
    """Members by the time of their last use. Every time is another. O(log n), amortized."""

    __slots__ = ("_heap", "_used")

    def __init__(self) -> None:
        self._used: dict[Member, int] = {}
        # also holds who has left, until it comes up or they are the majority
        self._heap: list[tuple[int, Member]] = []

    def __len__(self) -> int:
        return len(self._used)

    def __contains__(self, member: Member) -> bool:
        return member in self._used

    def add(self, member: Member, used: int) -> None:
        assert member not in self._used
        self._used[member] = used
        heappush(self._heap, (used, member))

    def discard(self, member: Member) -> None:
        """Take a member out, if it is in."""
        self._used.pop(member, None)
        if len(self._heap) > 2 * len(self._used):
            self._heap = [(used, member) for member, used in self._used.items()]
            heapify(self._heap)

    def pop(self) -> Member:
        """Take the member out that was used least recently; there must be one."""
        while True:
            used, member = heappop(self._heap)
            if self._used.get(member) == used:
                del self._used[member]
                return member
