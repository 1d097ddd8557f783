"""Sequences that ask for their turn, first come first served inside a tenant."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable

from .sequence import Sequence, Waiting


class Backlog:
    """One line per tenant; which line is served is the policy's business."""

    def __init__(self) -> None:
        self._lines: dict[str, deque[Sequence]] = {}
        self.short: Sequence | None = None
        """The first of those that asked for room in vain when it was last asked; it may have some by now."""

    def __len__(self) -> int:
        return sum(len(line) for line in self._lines.values())

    def __bool__(self) -> bool:
        return bool(self._lines)

    @property
    def tenants(self) -> Iterable[str]:
        return self._lines

    def head(self, tenant: str) -> Sequence:
        return self._lines[tenant][0]

    def first(self, tenant: str, *, beside: Collection[Sequence] = ()) -> Sequence | None:
        """Return the first in the tenant's line that is not among `beside`."""
        return next((s for s in self._lines[tenant] if s not in beside), None)

    def num_waiting(self, tenant: str) -> int:
        """Return how many of the tenant's hold nothing."""
        return sum(isinstance(s.state, Waiting) for s in self._lines.get(tenant, ()))

    def append(self, sequence: Sequence) -> None:
        self._lines.setdefault(sequence.tenant, deque()).append(sequence)

    def restore(self, sequence: Sequence) -> None:
        """Put back a preempted sequence: nobody who waits in its line is older.

        Who is being prefilled goes on: nobody else would have the pages back from it.
        """
        line = self._lines.setdefault(sequence.tenant, deque())
        num_at_work = sum(not isinstance(each.state, Waiting) for each in line)
        line.insert(num_at_work, sequence)

    def remove(self, sequence: Sequence) -> bool:
        """Take a sequence out, wherever it stands; return whether it was there."""
        line = self._lines.get(sequence.tenant)
        if line is None or sequence not in line:
            return False
        line.remove(sequence)
        if not line:
            del self._lines[sequence.tenant]
        return True
