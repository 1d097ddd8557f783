"""A port at which the hand-offs of a batch wait for each other."""

from __future__ import annotations

from tenantry_runtime.engine.guarded_port import GuardedPort
from tenantry_runtime.pool.page_port import EndCame, PagePort, PortEvent


class MeetingPort(GuardedPort):
    """A `PagePort` around another, whose step loop hears of all ends of a batch at one time.

    The sequences of a batch are handed over one after the other, and one that begins at once may be
    done before the last is there: on a machine with much else to do they have few steps in common.
    """

    def __init__(self, port: PagePort, *, num_handoffs: int, num_pages: int) -> None:
        """`num_handoffs`, of `num_pages` each, begin together; others pass."""
        super().__init__(port)
        self._num_handoffs = num_handoffs
        self._num_pages = num_pages
        self._waiting: list[PortEvent] = []

    def events(self) -> list[PortEvent]:
        passing: list[PortEvent] = []
        for event in super().events():
            meets = isinstance(event, EndCame) and event.end.num_pages == self._num_pages
            (self._waiting if meets else passing).append(event)
        if len(self._waiting) >= self._num_handoffs:
            passing += self._waiting
            self._waiting = []
        return passing
