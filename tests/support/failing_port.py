"""A `PagePort` whose calls fail when told to."""

from __future__ import annotations

from collections.abc import Sequence

from tenantry_runtime.pool.messages import (
    HandoffEnd,
    HandoffTarget,
    MemberDescription,
    PageHeader,
)
from tenantry_runtime.pool.page_port import Channel, PageCame, PagePort, PortEvent


class FailingPort:
    """Passes on all that is not in `failing`; what fails has done nothing."""

    def __init__(self, port: PagePort) -> None:
        self._port = port
        self.failing: set[str] = set()
        self.failed: set[str] = set()

    def allocate(self, page_bytes: int) -> None:
        self._port.allocate(page_bytes)

    @property
    def room(self) -> int:
        return self._port.room

    def room_for(self, channel: Channel) -> int:
        self._may_fail("room_for")
        return self._port.room_for(channel)

    def open(self, target: HandoffTarget, address: str, source: MemberDescription) -> Channel:
        self._may_fail("open")
        return self._port.open(target, address, source)

    def push(self, channel: Channel, header: PageHeader, data: memoryview) -> None:
        self._may_fail("push")
        self._port.push(channel, header, data)

    def end(self, channel: Channel, end: HandoffEnd) -> None:
        self._may_fail("end")
        self._port.end(channel, end)

    def close(self, channel: Channel) -> None:
        self._may_fail("close")
        self._port.close(channel)

    def events(self) -> list[PortEvent]:
        self._may_fail("events")
        return self._port.events()

    def release(self, pages: Sequence[PageCame]) -> None:
        self._may_fail("release")
        self._port.release(pages)

    def answer(self, source: int, problem: str | None) -> None:
        self._may_fail("answer")
        self._port.answer(source, problem)

    def _may_fail(self, call: str) -> None:
        if call in self.failing:
            self.failed.add(call)
            raise OSError(f"{call} does not work")
