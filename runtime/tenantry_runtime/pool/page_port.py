"""The step loop's side of page traffic between members with pools of their own.

The engine pushes pages of a hand-off into a port and takes pages from it; what is behind the port,
the same process or another node, is not its business. Nothing here blocks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NewType, Protocol, TypeAlias

from .messages import HandoffEnd, HandoffTarget, MemberDescription, PageHeader

Channel = NewType("Channel", int)
"""An outgoing hand-off, unique in the life of the port."""


@dataclass(frozen=True, slots=True)
class Confirmed:
    """The receiver has admitted the sequence: all pages and the end are verified there."""

    channel: Channel


@dataclass(frozen=True, slots=True)
class ChannelLost:
    """The receiver is gone, or refuses the hand-off."""

    channel: Channel
    problem: str


@dataclass(frozen=True, slots=True)
class PageCame:
    """A page of a hand-off into this node. `data` is valid until it is released."""

    header: PageHeader
    data: memoryview
    source: int
    """Which incoming stream brought it."""
    slot: int


@dataclass(frozen=True, slots=True)
class EndCame:
    """A hand-off into this node is complete."""

    end: HandoffEnd
    source: int


@dataclass(frozen=True, slots=True)
class SourceLost:
    """An incoming stream broke off before its end."""

    handoff: int
    source: int


PortEvent: TypeAlias = Confirmed | ChannelLost | PageCame | EndCame | SourceLost


def channel_of(event: PortEvent) -> Channel | None:
    """Return the outgoing hand-off that an event is of; None: it is of one into this node."""
    return event.channel if isinstance(event, Confirmed | ChannelLost) else None


class PagePort(Protocol):
    """Where a step loop sends pages to and gets them from."""

    def allocate(self, page_bytes: int) -> None:
        """Make room for pages of up to so many bytes; called once, before all else."""
        ...

    @property
    def room(self) -> int:
        """Pages that `push` takes now, over all channels."""
        ...

    def room_for(self, channel: Channel) -> int:
        """Pages of `room` that one channel may take: one whose receiver takes none leaves some to others."""
        ...

    def open(self, target: HandoffTarget, address: str, source: MemberDescription) -> Channel:
        """Begin a hand-off to the node at `address`; how that goes, events say."""
        ...

    def push(self, channel: Channel, header: PageHeader, data: memoryview) -> None:
        """Send a page; copied before this returns. Needs `room`."""
        ...

    def end(self, channel: Channel, end: HandoffEnd) -> None:
        """Say that all is pushed. `Confirmed` or `ChannelLost` follows."""
        ...

    def close(self, channel: Channel) -> None:
        """Give a hand-off up; an unknown channel is ignored. No event follows."""
        ...

    def events(self) -> list[PortEvent]:
        """Take what has happened since the last call, in order."""
        ...

    def release(self, pages: Sequence[PageCame]) -> None:
        """The bytes of these pages, each of which has come and is named once, are not needed any more."""
        ...

    def answer(self, source: int, problem: str | None) -> None:
        """Tell the pusher how its hand-off ended: admitted (None), or why not. Ends the stream."""
        ...
