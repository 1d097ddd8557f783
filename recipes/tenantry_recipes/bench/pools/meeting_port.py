"""A port at which the hand-offs of a batch wait for each other."""

from __future__ import annotations

from collections.abc import Sequence

from tenantry_runtime.pool.messages import HandoffEnd, HandoffTarget, MemberDescription, PageHeader
from tenantry_runtime.pool.page_port import Channel, EndCame, PageCame, PagePort, PortEvent


class MeetingPort:
    """A `PagePort` around another, whose step loop hears of all ends of a batch at one time.

    The sequences of a batch are handed over one after the other, and one that begins at once may be
    done before the last is there: on a machine with much else to do they have few steps in common.
    """

    def __init__(self, port: PagePort, *, num_handoffs: int, num_pages: int) -> None:
        """`num_handoffs`, of `num_pages` each, begin together; others pass."""
        self._port = port
        self._num_handoffs = num_handoffs
        self._num_pages = num_pages
        self._waiting: list[PortEvent] = []

    def events(self) -> list[PortEvent]:
        passing: list[PortEvent] = []
        for event in self._port.events():
            meets = isinstance(event, EndCame) and event.end.num_pages == self._num_pages
            (self._waiting if meets else passing).append(event)
        if len(self._waiting) >= self._num_handoffs:
            passing += self._waiting
            self._waiting = []
        return passing

    def allocate(self, page_bytes: int) -> None:
        self._port.allocate(page_bytes)

    @property
    def room(self) -> int:
        return self._port.room

    def room_for(self, channel: Channel) -> int:
        return self._port.room_for(channel)

    def open(self, target: HandoffTarget, address: str, source: MemberDescription) -> Channel:
        return self._port.open(target, address, source)

    def push(self, channel: Channel, header: PageHeader, data: memoryview) -> None:
        self._port.push(channel, header, data)

    def end(self, channel: Channel, end: HandoffEnd) -> None:
        self._port.end(channel, end)

    def close(self, channel: Channel) -> None:
        self._port.close(channel)

    def release(self, pages: Sequence[PageCame]) -> None:
        self._port.release(pages)

    def answer(self, source: int, problem: str | None) -> None:
        self._port.answer(source, problem)
