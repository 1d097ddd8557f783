"""What a step loop relies on in every `PagePort`, whatever is behind it: subclass and give it `joined`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

import pytest

from support.page_members import PREFILL
from tenantry_runtime.pool.messages import HandoffEnd, HandoffTarget, PageHeader
from tenantry_runtime.pool.page_port import (
    Channel,
    ChannelLost,
    Confirmed,
    EndCame,
    PageCame,
    PagePort,
    PortEvent,
    SourceLost,
)

PAGE_BYTES = 4096
INCARNATION = 7


class Joined(Protocol):
    """Two ports with a way from the first to the second."""

    @property
    def sender(self) -> PagePort: ...

    @property
    def receiver(self) -> PagePort: ...

    @property
    def address(self) -> str:
        """Of the receiver."""
        ...

    def settle(self) -> None:
        """Let all that has been said arrive."""
        ...

    def lose_sender(self) -> None:
        """Let the sender be gone, without a word."""
        ...

    def lose_receiver(self) -> None: ...


def a_target(handoff: int = 5, num_pages: int = 3) -> HandoffTarget:
    return HandoffTarget(
        model=PREFILL.model,
        incarnation=INCARNATION,
        handoff=handoff,
        cache_format="fp8",
        first_page=0,
        pages=bytes(16 * num_pages),
    )


def a_page(place: int, handoff: int = 5, num_bytes: int = PAGE_BYTES) -> tuple[PageHeader, bytes]:
    data = bytes((place * 31 + k * k) % 256 for k in range(num_bytes))
    header = PageHeader(
        handoff=handoff,
        logical_page=place,
        index=place + 100,
        tag=-(1 << 62) + place,
        num_tokens=64,
        digest=-place - 1,
        num_bytes=num_bytes,
    )
    return header, data


def an_end(handoff: int = 5, num_pages: int = 3) -> HandoffEnd:
    return HandoffEnd(
        handoff=handoff,
        num_pages=num_pages,
        first_token=17,
        cached_tokens=64,
        queued_ns=1,
        prefill_started_ns=2,
        first_token_ns=3,
        num_prefill_chunks=4,
    )


class PortContract:
    """The promises."""

    def open(self, joined: Joined, handoff: int = 5) -> Channel:
        return joined.sender.open(a_target(handoff), joined.address, PREFILL)

    def push(
        self, joined: Joined, channel: Channel, places: Iterable[int], handoff: int = 5
    ) -> None:
        for place in places:
            header, data = a_page(place, handoff)
            scratch = bytearray(data)
            joined.sender.push(channel, header, memoryview(scratch))
            # the port has made its copy
            scratch[:] = bytes(len(data))

    def came(self, joined: Joined) -> list[PortEvent]:
        joined.settle()
        return joined.receiver.events()

    def told(self, joined: Joined) -> list[PortEvent]:
        joined.settle()
        return joined.sender.events()

    def test_pages_and_the_end_come_whole_and_in_order(self, joined: Joined) -> None:
        channel = self.open(joined)
        self.push(joined, channel, [0, 1])
        events = self.came(joined)
        self.push(joined, channel, [2])
        joined.sender.end(channel, an_end())
        *pages, end = events + self.came(joined)
        for place, page in enumerate(pages):
            assert isinstance(page, PageCame)
            header, data = a_page(place)
            assert (page.header, bytes(page.data)) == (header, data)
            joined.receiver.release([page])
        assert isinstance(end, EndCame)
        assert end.end == an_end()
        assert {page.source for page in pages if isinstance(page, PageCame)} == {end.source}

    def test_an_admitted_hand_off_is_confirmed_once(self, joined: Joined) -> None:
        channel = self.open(joined)
        joined.sender.end(channel, an_end())
        [end] = self.came(joined)
        assert isinstance(end, EndCame)
        assert self.told(joined) == []
        joined.receiver.answer(end.source, None)
        joined.receiver.answer(end.source, "again")
        assert self.told(joined) == [Confirmed(channel)]
        assert self.came(joined) == []

    def test_a_refused_hand_off_is_lost_and_says_why(self, joined: Joined) -> None:
        channel = self.open(joined)
        self.push(joined, channel, [0])
        [page] = self.came(joined)
        assert isinstance(page, PageCame)
        joined.receiver.release([page])
        joined.receiver.answer(page.source, "digest of page 0")
        [lost] = self.told(joined)
        assert isinstance(lost, ChannelLost)
        assert lost.channel == channel
        assert "digest of page 0" in lost.problem

    def test_what_is_pushed_after_the_answer_changes_nothing(self, joined: Joined) -> None:
        channel = self.open(joined)
        self.push(joined, channel, [0])
        [page] = self.came(joined)
        assert isinstance(page, PageCame)
        joined.receiver.release([page])
        joined.receiver.answer(page.source, "too late")
        # the sender does not know it yet
        self.push(joined, channel, [1])
        joined.sender.end(channel, an_end())
        assert self.came(joined) == []
        assert all(isinstance(event, ChannelLost) for event in self.told(joined))

    def test_a_closed_hand_off_is_lost_to_its_receiver_alone(self, joined: Joined) -> None:
        channel = self.open(joined)
        self.push(joined, channel, [0])
        [page] = self.came(joined)
        assert isinstance(page, PageCame)
        joined.receiver.release([page])
        joined.sender.close(channel)
        joined.sender.close(channel)
        assert self.came(joined) == [SourceLost(5, page.source)]
        assert self.told(joined) == []

    def test_room_comes_back_when_pages_are_released(self, joined: Joined) -> None:
        room = joined.sender.room
        assert room > 0
        channel = self.open(joined)
        pages: list[PageCame] = []
        for place in range(3 * room):
            assert joined.sender.room > 0
            self.push(joined, channel, [place])
            for page in self.came(joined):
                assert isinstance(page, PageCame)
                joined.receiver.release([page])
                pages.append(page)
            joined.settle()
        assert [page.header.logical_page for page in pages] == list(range(3 * room))
        assert joined.sender.room == room

    def test_pages_that_are_not_released_take_up_room_until_none_is_left(
        self, joined: Joined
    ) -> None:
        channel = self.open(joined)
        held: list[PageCame] = []
        for place in range(1000):
            if not joined.sender.room:
                break
            self.push(joined, channel, [place])
            held += [page for page in self.came(joined) if isinstance(page, PageCame)]
        assert not joined.sender.room, "pages pile up somewhere"
        for place, page in enumerate(held):
            assert bytes(page.data) == a_page(place)[1], "a page that is not released has changed"
            joined.receiver.release([page])
        joined.settle()
        assert joined.sender.room

    def test_hand_offs_do_not_mix(self, joined: Joined) -> None:
        first, second = self.open(joined, 5), self.open(joined, 6)
        assert first != second
        self.push(joined, first, [0], 5)
        self.push(joined, second, [0], 6)
        joined.settle()
        joined.sender.close(first)
        joined.sender.end(second, an_end(6))
        sources: dict[int, set[int]] = {}
        for event in self.came(joined):
            match event:
                case PageCame(header=header, source=source):
                    joined.receiver.release([event])
                    sources.setdefault(header.handoff, set()).add(source)
                case EndCame(end=end, source=source):
                    sources.setdefault(end.handoff, set()).add(source)
                case SourceLost(handoff=handoff, source=source):
                    sources.setdefault(handoff, set()).add(source)
                case _:
                    pytest.fail(f"{event} came to the receiver")
        assert sorted(sources) == [5, 6]
        assert [len(found) for found in sources.values()] == [1, 1]
        assert sources[5] != sources[6]

    def test_a_page_that_is_pushed_twice_comes_twice(self, joined: Joined) -> None:
        """Which of them counts is for who reserved the page to say."""
        channel = self.open(joined)
        self.push(joined, channel, [0, 0])
        events = self.came(joined)
        assert len(events) == 2
        for page in events:
            assert isinstance(page, PageCame)
            joined.receiver.release([page])

    def test_a_sender_that_is_gone_is_told_of(self, joined: Joined) -> None:
        channel = self.open(joined)
        self.push(joined, channel, [0])
        [page] = self.came(joined)
        assert isinstance(page, PageCame)
        joined.receiver.release([page])
        joined.lose_sender()
        assert self.came(joined) == [SourceLost(5, page.source)]

    def test_a_receiver_that_is_gone_is_told_of(self, joined: Joined) -> None:
        channel = self.open(joined)
        self.push(joined, channel, [0])
        joined.settle()
        joined.lose_receiver()
        [lost] = self.told(joined)
        assert isinstance(lost, ChannelLost)
        assert lost.channel == channel
        # nobody minds
        self.push(joined, channel, [1])
        joined.sender.end(channel, an_end())
        joined.sender.close(channel)

    def test_nobody_at_the_address_is_a_lost_hand_off(self, joined: Joined) -> None:
        channel = joined.sender.open(a_target(), joined.address + "-nobody", PREFILL)
        self.push(joined, channel, [0])
        [lost] = self.told(joined)
        assert isinstance(lost, ChannelLost)
        assert lost.channel == channel
