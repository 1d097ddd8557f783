"""What front and step loop tell each other about pages; the pages themselves are in shared memory.

| from | message | then |
|---|---|---|
| loop | PagesReady | the front maps the slots |
| loop | PushBegin, PushPage, PushEnd, PushClose | a hand-off to another node, in this order |
| front | SlotsSent | the outgoing slots are the loop's again |
| front | PushConfirmed or PushLost | the end of a hand-off that the loop has not closed |
| front | PagesArrived, EndArrived | a hand-off from another node; the incoming slots are the loop's |
| loop | SlotsRead | the incoming slots are the front's again |
| loop | PushAnswer | how a hand-off from another node ended; the front ends its stream |
| front | SourceGone | nothing more comes from that stream, answered or not |

A slot is owned by one side at a time, and each message that passes it on is sent once.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from .messages import HandoffEnd, HandoffTarget, MemberDescription, PageHeader


class PagesReady(msgspec.Struct, frozen=True, kw_only=True, tag="pages_ready"):
    """The loop has laid out the slots (`shared_pages.py`)."""

    slot_bytes: int
    num_slots: int
    """Of each direction."""


class PushBegin(msgspec.Struct, frozen=True, kw_only=True, tag="push_begin"):
    """Connect to the node that has reserved pages."""

    channel: int
    address: str
    target: HandoffTarget
    source: MemberDescription


class PushPage(msgspec.Struct, frozen=True, kw_only=True, tag="push_page"):
    """A page is in this outgoing slot."""

    channel: int
    slot: int
    header: PageHeader


class PushEnd(msgspec.Struct, frozen=True, kw_only=True, tag="push_end"):
    """All pages are pushed."""

    channel: int
    end: HandoffEnd


class PushClose(msgspec.Struct, frozen=True, kw_only=True, tag="push_close"):
    """The loop gives a hand-off up."""

    channel: int


class SlotsRead(msgspec.Struct, frozen=True, kw_only=True, tag="slots_read"):
    """The loop does not need these incoming slots any more; those of a turn come together."""

    slots: tuple[int, ...]


class PushAnswer(msgspec.Struct, frozen=True, kw_only=True, tag="push_answer"):
    """How a hand-off into this node ended: admitted (None), or why not."""

    source: int
    problem: str | None


class SlotsSent(msgspec.Struct, frozen=True, kw_only=True, tag="slots_sent"):
    """The front does not need these outgoing slots any more."""

    slots: tuple[int, ...]


class PushConfirmed(msgspec.Struct, frozen=True, kw_only=True, tag="push_confirmed"):
    """The receiver has admitted the sequence."""

    channel: int


class PushLost(msgspec.Struct, frozen=True, kw_only=True, tag="push_lost"):
    """The receiver is gone, or refuses the hand-off."""

    channel: int
    problem: str


class PagesArrived(msgspec.Struct, frozen=True, kw_only=True, tag="pages_arrived"):
    """Pages from another node are in these incoming slots; those of one frame come together."""

    source: int
    pages: tuple[tuple[int, PageHeader], ...]
    """Slots, and what is in them, in the order in which they came."""


class EndArrived(msgspec.Struct, frozen=True, kw_only=True, tag="end_arrived"):
    """A hand-off from another node is complete."""

    source: int
    end: HandoffEnd


class SourceGone(msgspec.Struct, frozen=True, kw_only=True, tag="source_gone"):
    """The stream of a hand-off from another node is over."""

    source: int
    handoff: int


PageReport: TypeAlias = (
    PagesReady | PushBegin | PushPage | PushEnd | PushClose | SlotsRead | PushAnswer
)
"""What the step loop tells the front."""

PageCommand: TypeAlias = (
    SlotsSent | PushConfirmed | PushLost | PagesArrived | EndArrived | SourceGone
)
"""What the front tells the step loop."""
