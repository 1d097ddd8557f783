"""A `PagePort` that spoils one hand-off on its way out, in a way of one's choosing."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from msgspec.structs import replace

from tenantry_runtime.pool.messages import (
    HandoffEnd,
    HandoffTarget,
    MemberDescription,
    PageHeader,
)
from tenantry_runtime.pool.page_port import Channel, PageCame, PagePort, PortEvent

Sent: TypeAlias = tuple[PageHeader, bytes] | HandoffEnd
Spoil: TypeAlias = Callable[[list[Sent]], list[Sent]]
"""Makes of all that a hand-off sends, its end last, what is sent instead."""


def _flipped(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


def _page(sent: Sent) -> tuple[PageHeader, bytes]:
    assert isinstance(sent, tuple)
    return sent


def _with_header(change: Callable[[PageHeader], PageHeader]) -> Spoil:
    def spoil(sent: list[Sent]) -> list[Sent]:
        header, data = _page(sent[0])
        return [(change(header), data), *sent[1:]]

    return spoil


def _with_data(change: Callable[[bytes], bytes]) -> Spoil:
    def spoil(sent: list[Sent]) -> list[Sent]:
        header, data = _page(sent[0])
        return [(header, change(data)), *sent[1:]]

    return spoil


def _swapped(sent: list[Sent]) -> list[Sent]:
    (header, data), (other_header, other_data) = _page(sent[0]), _page(sent[1])
    return [(header, other_data), (other_header, data), *sent[2:]]


def _swapped_with_digests(sent: list[Sent]) -> list[Sent]:
    """Each page is what its digest says, only not where it belongs."""
    (header, data), (other_header, other_data) = _page(sent[0]), _page(sent[1])
    return [
        (replace(header, digest=other_header.digest), other_data),
        (replace(other_header, digest=header.digest), data),
        *sent[2:],
    ]


def _at_each_others_place(sent: list[Sent]) -> list[Sent]:
    (header, data), (other_header, other_data) = _page(sent[0]), _page(sent[1])
    return [
        (replace(header, logical_page=other_header.logical_page), data),
        (replace(other_header, logical_page=header.logical_page), other_data),
        *sent[2:],
    ]


def _with_end(change: Callable[[HandoffEnd], HandoffEnd]) -> Spoil:
    def spoil(sent: list[Sent]) -> list[Sent]:
        end = sent[-1]
        assert isinstance(end, HandoffEnd)
        return [*sent[:-1], change(end)]

    return spoil


FAULTS: Mapping[str, Spoil] = {
    "first byte flipped": _with_data(lambda data: _flipped(data, 0)),
    "last byte flipped": _with_data(lambda data: _flipped(data, len(data) - 1)),
    "cut short": _with_data(lambda data: data[:-8]),
    "pages swapped": _swapped,
    "pages swapped with their digests": _swapped_with_digests,
    "pages at each other's place": _at_each_others_place,
    "page twice": lambda sent: [sent[0], *sent],
    "page twice at the end": lambda sent: [*sent[:-1], sent[0], sent[-1]],
    "page lost": lambda sent: sent[1:],
    "last page lost": lambda sent: [*sent[:-2], sent[-1]],
    "end first": lambda sent: [sent[-1], *sent[:-1]],
    "page after the end": lambda sent: [*sent[:-2], sent[-1], sent[-2]],
    "end lost": lambda sent: sent[:-1],
    "end of fewer pages": _with_end(lambda end: replace(end, num_pages=end.num_pages - 1)),
    "end of another hand-off": _with_end(lambda end: replace(end, handoff=end.handoff + 999)),
    "no such token": _with_end(lambda end: replace(end, first_token=1 << 20)),
    "wrong hand-off": _with_header(lambda header: replace(header, handoff=header.handoff + 999)),
    "wrong tag": _with_header(lambda header: replace(header, tag=header.tag ^ 1)),
    "wrong index": _with_header(lambda header: replace(header, index=header.index ^ 1)),
    "wrong place": _with_header(lambda header: replace(header, logical_page=77)),
    "too few tokens": _with_header(lambda header: replace(header, num_tokens=63)),
    "another digest": _with_header(lambda header: replace(header, digest=header.digest ^ 1)),
}
"""What can happen to pages between two nodes."""

AFTER_THE_ANSWER: Mapping[str, Spoil] = {
    "page again after the end": lambda sent: [*sent, sent[0]],
    "end twice": lambda sent: [*sent, sent[-1]],
}
"""What comes too late to do harm."""


class FaultyPort:
    """Keeps what one hand-off sends until its end, then sends what `spoil` makes of it."""

    def __init__(self, port: PagePort, spoil: Spoil) -> None:
        self._port = port
        self._spoil = spoil
        self._kept: dict[Channel, list[Sent]] = {}
        self.spoiled: int | None = None
        """The hand-off."""

    def allocate(self, page_bytes: int) -> None:
        self._port.allocate(page_bytes)

    @property
    def room(self) -> int:
        return self._port.room

    def room_for(self, channel: Channel) -> int:
        return self._port.room_for(channel)

    def open(self, target: HandoffTarget, address: str, source: MemberDescription) -> Channel:
        channel = self._port.open(target, address, source)
        if self.spoiled is None and len(target.pages) > 32:
            self.spoiled = target.handoff
            self._kept[channel] = []
        return channel

    def push(self, channel: Channel, header: PageHeader, data: memoryview) -> None:
        if channel in self._kept:
            self._kept[channel].append((header, bytes(data)))
        else:
            self._port.push(channel, header, data)

    def end(self, channel: Channel, end: HandoffEnd) -> None:
        kept = self._kept.pop(channel, None)
        if kept is None:
            self._port.end(channel, end)
            return
        sent = self._spoil([*kept, end])
        for each in sent:
            if isinstance(each, HandoffEnd):
                self._port.end(channel, each)
            else:
                header, data = each
                self._port.push(channel, header, memoryview(data))
        if not any(isinstance(each, HandoffEnd) for each in sent):
            # the stream broke off
            self._port.close(channel)

    def close(self, channel: Channel) -> None:
        self._kept.pop(channel, None)
        self._port.close(channel)

    def events(self) -> list[PortEvent]:
        return self._port.events()

    def release(self, pages: Sequence[PageCame]) -> None:
        self._port.release(pages)

    def answer(self, source: int, problem: str | None) -> None:
        self._port.answer(source, problem)
