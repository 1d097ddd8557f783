"""A hand-off between members with pools of their own, as the sequence at either end holds it."""

from __future__ import annotations

import struct
from typing import TypeAlias

from tenantry_runtime.cache.formats import CacheName
from tenantry_runtime.cache.pages import PageIndex, PageRef, Tag
from tenantry_runtime.cache.reservation import Reservation
from tenantry_runtime.pool.messages import HandoffTarget
from tenantry_runtime.pool.page_port import Channel, PagePort

Source: TypeAlias = tuple[PagePort, int]
"""A port, and the incoming stream of it."""


class Delivery:
    """A prompt's way out: pages before `next_page` are pushed. Closing it is the sequence's to do."""

    __slots__ = (
        "cache",
        "channel",
        "first_page",
        "handoff",
        "is_ended",
        "next_page",
        "num_bytes",
        "opened_ns",
        "port",
        "refs",
    )

    def __init__(
        self,
        port: PagePort,
        channel: Channel,
        target: HandoffTarget,
        cache: CacheName,
        *,
        opened_ns: int = 0,
    ) -> None:
        """`opened_ns` is Unix time."""
        self.port = port
        self.channel = channel
        self.cache = cache
        """Format of the pages as they are pushed."""
        self.handoff = target.handoff
        self.first_page = self.next_page = target.first_page
        self.refs = unpack_refs(target.pages)
        """From `first_page` on."""
        self.opened_ns = opened_ns
        self.num_bytes = 0
        """Pushed so far."""
        self.is_ended = False
        """Whether all has been pushed and said."""

    def close(self) -> None:
        self.port.close(self.channel)


class Reception:
    """A prompt's way in: what of its reservation has come, and from whom."""

    __slots__ = ("reservation", "source", "written")

    def __init__(self, reservation: Reservation) -> None:
        self.reservation = reservation
        self.source: Source | None = None
        """Who pushes; nobody else may."""
        self.written: set[int] = set()
        """Logical pages."""

    @property
    def num_wanted(self) -> int:
        return len(self.reservation.lease) - self.reservation.first_page

    def close(self, problem: str | None) -> None:
        """Accept no more, and tell who pushes how it ended: admitted (None), or why not."""
        self.reservation.close()
        if self.source is not None:
            port, source = self.source
            port.answer(source, problem)


def pack_refs(refs: list[PageRef]) -> bytes:
    """Return (index, tag) pairs as little-endian int64."""
    words = [word for ref in refs for word in (ref.index, ref.tag)]
    return struct.pack(f"<{len(words)}q", *words)


def unpack_refs(packed: bytes) -> list[PageRef]:
    """Raise `ValueError` when the bytes are no whole number of pairs."""
    if len(packed) % 16:
        raise ValueError(f"{len(packed)} bytes are no (index, tag) pairs of 16")
    words = [
        int.from_bytes(packed[at : at + 8], "little", signed=True)
        for at in range(0, len(packed), 8)
    ]
    return [
        PageRef(PageIndex(index), Tag(tag))
        for index, tag in zip(words[::2], words[1::2], strict=True)
    ]
