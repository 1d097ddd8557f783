"""A port whose errors cost no more than the hand-off that they are about."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from tenantry_runtime.pool.messages import (
    HandoffEnd,
    HandoffTarget,
    MemberDescription,
    PageHeader,
)
from tenantry_runtime.pool.page_port import Channel, PageCame, PagePort, PortEvent

_log = logging.getLogger(__name__)


class GuardedPort:
    """A `PagePort`. What ends a use of the port never raises: whoever ends it goes on to release pages.

    What begins one, or goes on with it, raises, and its caller fails the hand-off.
    """

    def __init__(self, port: PagePort) -> None:
        self._port = port

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

    def events(self) -> list[PortEvent]:
        return self._port.events()

    def close(self, channel: Channel) -> None:
        with _logged(f"channel {channel} could not be closed"):
            self._port.close(channel)

    def release(self, pages: Sequence[PageCame]) -> None:
        with _logged("slots could not be released"):
            self._port.release(pages)

    def answer(self, source: int, problem: str | None) -> None:
        with _logged(f"source {source} could not be answered"):
            self._port.answer(source, problem)


@contextmanager
def _logged(problem: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        _log.error(problem, exc_info=error)
