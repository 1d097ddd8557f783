"""Requests that are to have their first token by some time."""

from __future__ import annotations

from math import inf


class Deadlines:
    """By request id. A look costs nothing until the next one passes, then O(requests)."""

    def __init__(self) -> None:
        self._due_s: dict[str, float] = {}
        self._next_s = inf
        """No later than the earliest."""

    def __len__(self) -> int:
        return len(self._due_s)

    def add(self, request_id: str, due_s: float) -> None:
        self._due_s[request_id] = due_s
        self._next_s = min(self._next_s, due_s)

    def drop(self, request_id: str) -> None:
        """It has its token, or needs none any more; one that has no deadline is ignored."""
        self._due_s.pop(request_id, None)

    def take_passed(self, now_s: float) -> list[str]:
        """Return the requests whose time is over, and forget them."""
        if now_s < self._next_s:
            return []
        passed = [request_id for request_id, due_s in self._due_s.items() if due_s <= now_s]
        for request_id in passed:
            del self._due_s[request_id]
        self._next_s = min(self._due_s.values(), default=inf)
        return passed
