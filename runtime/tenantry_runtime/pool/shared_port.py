"""The step loop's `PagePort` onto its front: pages in shared memory, the rest in the loop's socket."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count

from .messages import HandoffEnd, HandoffTarget, MemberDescription, PageHeader
from .page_messages import (
    EndArrived,
    PageCommand,
    PageReport,
    PagesArrived,
    PagesReady,
    PushAnswer,
    PushBegin,
    PushClose,
    PushConfirmed,
    PushEnd,
    PushLost,
    PushPage,
    SlotsRead,
    SlotsSent,
    SourceGone,
)
from .page_port import (
    Channel,
    ChannelLost,
    Confirmed,
    EndCame,
    PageCame,
    PortEvent,
    SourceLost,
    channel_of,
)
from .shared_pages import SharedPages, SlotLayout, set_size


class SharedMemoryPort:
    """Implements `PagePort`. `post` queues what the front is told; it must not block."""

    def __init__(self, fd: int, post: Callable[[PageReport], None]) -> None:
        self._fd = fd
        self._post = post
        self._pages: SharedPages | None = None
        self._free: list[int] = []
        self._sending: dict[int, Channel] = {}
        """Outgoing slots that are the front's, by whose pages are in them."""
        self._reading: set[int] = set()
        """Incoming slots that are ours."""
        self._open: set[Channel] = set()
        self._live: set[int] = set()
        """Sources that have said something and are not gone."""
        self._answered: set[int] = set()
        """Of the live ones."""
        self._events: list[PortEvent] = []
        self._channels = count(1)

    def allocate(self, page_bytes: int) -> None:
        assert self._pages is None, "slots are allocated once"
        layout = SlotLayout.of(page_bytes)
        set_size(self._fd, layout)
        self._pages = SharedPages(self._fd, layout)
        self._free = list(reversed(range(layout.num_slots)))
        self._post(PagesReady(slot_bytes=layout.slot_bytes, num_slots=layout.num_slots))

    @property
    def room(self) -> int:
        return len(self._free)

    def room_for(self, channel: Channel) -> int:
        # one may hold as many as are free: whatever stands still, some are left, and one
        # that is alone has half of them
        num_held = sum(holder == channel for holder in self._sending.values())
        return max(0, -(-(len(self._free) - num_held) // 2))

    def open(self, target: HandoffTarget, address: str, source: MemberDescription) -> Channel:
        channel = Channel(next(self._channels))
        self._open.add(channel)
        self._post(PushBegin(channel=channel, address=address, target=target, source=source))
        return channel

    def push(self, channel: Channel, header: PageHeader, data: memoryview) -> None:
        if channel not in self._open:
            return  # lost, and the event that says so waits
        assert self._pages is not None, "pages need slots"
        assert header.num_bytes == data.nbytes, "the header names the number of bytes"
        slot = self._free.pop()
        self._pages.outgoing(slot)[: data.nbytes] = data.cast("B")
        self._sending[slot] = channel
        self._post(PushPage(channel=channel, slot=slot, header=header))

    def end(self, channel: Channel, end: HandoffEnd) -> None:
        if channel in self._open:
            self._post(PushEnd(channel=channel, end=end))

    def close(self, channel: Channel) -> None:
        if channel in self._open:
            self._open.remove(channel)
            self._post(PushClose(channel=channel))
        # one that waits to be taken is an event all the same
        self._events = [event for event in self._events if channel_of(event) != channel]

    def events(self) -> list[PortEvent]:
        taken, self._events = self._events, []
        return taken

    def release(self, pages: Sequence[PageCame]) -> None:
        slots = tuple(page.slot for page in pages)
        for slot in slots:
            self._reading.remove(slot)
        self._post(SlotsRead(slots=slots))

    def answer(self, source: int, problem: str | None) -> None:
        if source in self._live and source not in self._answered:
            self._answered.add(source)
            self._post(PushAnswer(source=source, problem=problem))

    def accept(self, command: PageCommand) -> None:
        """Take what the front says; `events` tells it to the engine."""
        match command:
            case SlotsSent(slots=slots):
                for slot in slots:
                    del self._sending[slot]
                self._free += slots
            case PushConfirmed(channel=channel):
                self._conclude(Confirmed(Channel(channel)))
            case PushLost(channel=channel, problem=problem):
                self._conclude(ChannelLost(Channel(channel), problem))
            case PagesArrived():
                self._arrived(command)
            case EndArrived(source=source, end=end):
                self._live.add(source)
                if source not in self._answered:
                    self._events.append(EndCame(end, source))
            case SourceGone(source=source, handoff=handoff):
                if source not in self._answered:
                    self._events.append(SourceLost(handoff, source))
                self._live.discard(source)
                self._answered.discard(source)

    def _conclude(self, event: Confirmed | ChannelLost) -> None:
        if event.channel in self._open:
            self._open.remove(event.channel)
            self._events.append(event)

    def _arrived(self, came: PagesArrived) -> None:
        assert self._pages is not None, "the front has no slots before this"
        source = came.source
        if source in self._answered:
            self._post(SlotsRead(slots=tuple(slot for slot, _ in came.pages)))
            return
        self._live.add(source)
        for slot, header in came.pages:
            self._reading.add(slot)
            view = self._pages.incoming(slot)[: header.num_bytes]
            self._events.append(PageCame(header, view, source, slot))
