"""What CPU time an isolate may use, given the invocations in it, and which of them used it."""

from __future__ import annotations

from typing import NewType

Ticket = NewType("Ticket", float)
"""What an invocation has been admitted with."""


class CpuAllowance:
    """CPU time of one isolate, shared evenly among the invocations that run while it is used.

    The kernel tells the time of the process alone, and one thread runs all of its invocations, so
    that a share is what is known of one. No invocation's share may exceed its limit: over all, an
    isolate never uses more than what was admitted to it, however it divides it, and what an
    invocation leaves is nobody's. Times are in nanoseconds of the process's own CPU clock.
    """

    __slots__ = ("_first", "_num_running", "_per_invocation_ns", "read_ns")

    def __init__(self, cpu_ns: int) -> None:
        self.read_ns = cpu_ns
        """The clock at the last look."""
        self._num_running = 0
        # what an invocation would have, had it run from the beginning
        self._per_invocation_ns = 0.0
        self._first: dict[Ticket, int] = {}
        """Those that run, by when they came, oldest first: the oldest has the largest share."""

    @property
    def num_running(self) -> int:
        return self._num_running

    def read(self, cpu_ns: int) -> int:
        """Divide what was used since the last look; return it."""
        used_ns = cpu_ns - self.read_ns
        self.read_ns = cpu_ns
        if self._num_running:
            self._per_invocation_ns += used_ns / self._num_running
        return used_ns

    def admit(self) -> Ticket:
        """Let an invocation begin; its share starts at the last look."""
        ticket = Ticket(self._per_invocation_ns)
        self._first[ticket] = self._first.get(ticket, 0) + 1
        self._num_running += 1
        return ticket

    def end(self, ticket: Ticket) -> float:
        """Let an invocation end; return its share, in nanoseconds, up to the last look."""
        self._num_running -= 1
        if (left := self._first[ticket] - 1) > 0:
            self._first[ticket] = left
        else:
            del self._first[ticket]
        return self._per_invocation_ns - ticket

    def most_ns(self) -> float:
        """Return the largest share of those that run."""
        # a dictionary keeps its order, and shares only grow
        for ticket in self._first:
            return self._per_invocation_ns - ticket
        return 0.0
