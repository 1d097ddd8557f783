"""Sequences with tokens left to prefill, first come first served inside a tenant."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from .sequence import Sequence, Waiting


class Backlog:
    """One line per tenant; which line is served is the policy's business."""

    def __init__(self) -> None:
        self._lines: dict[str, deque[Sequence]] = {}

    def __len__(self) -> int:
        return sum(len(line) for line in self._lines.values())

    def __bool__(self) -> bool:
        return bool(self._lines)

    @property
    def tenants(self) -> Iterable[str]:
        return self._lines

    def head(self, tenant: str) -> Sequence:
        return self._lines[tenant][0]

    def append(self, sequence: Sequence) -> None:
        self._lines.setdefault(sequence.tenant, deque()).append(sequence)

    def restore(self, sequence: Sequence) -> None:
        """Put back a preempted sequence: nobody who waits in its line is older.

        Who is being prefilled goes on: nobody else would have the pages back from it.
        """
        line = self._lines.setdefault(sequence.tenant, deque())
        num_at_work = sum(not isinstance(each.state, Waiting) for each in line)
        line.insert(num_at_work, sequence)

    def remove(self, sequence: Sequence) -> None:
        """Take a sequence out, wherever it stands; one that is not there is ignored."""
        line = self._lines.get(sequence.tenant)
        if line is None or sequence not in line:
            return
        line.remove(sequence)
        if not line:
            del self._lines[sequence.tenant]
