"""What hand-offs ask of a cache: pages to bytes, and bytes to pages. No torch (`wire_pages.py` has it)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol

from .formats import CacheName
from .owners import OwnerSlot
from .page_batch import PageBatch
from .pages import Lease, Tag

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, slots=True)
class Departure:
    """Pages of a lease that are to be sent, from `first_page` to the one of the last token."""

    lease: Lease
    owner: OwnerSlot
    """The request's."""
    first_page: int
    num_tokens: int
    """Of the sequence, up to the end of what is sent."""


@dataclass(frozen=True, slots=True)
class WirePage:
    """One page as it is sent."""

    logical_page: int
    num_tokens: int
    data: memoryview
    digest: int
    """Of the bytes alone, not bound to anything yet."""


@dataclass(frozen=True, slots=True)
class ArrivedPage:
    """One page as it came."""

    handoff: int
    logical_page: int
    tag: Tag
    digest: int
    """Bound, as its sender has it."""
    data: memoryview


@dataclass(frozen=True, slots=True, eq=False)
class Arrivals:
    """Pages as they came, and their bytes in memory of the cache's device."""

    pages: Sequence[ArrivedPage]
    data_SB: torch.Tensor
    digest_S: Sequence[int] | None = None
    """Of the bytes alone, where bringing them there has told them."""

    def only(self, places: Sequence[int]) -> Arrivals:
        """Return some of the pages, in the order of `places`."""
        if len(places) == len(self.pages):
            return self
        return Arrivals([self.pages[place] for place in places], self.data_SB[list(places)])


class Outcome(NamedTuple):
    """What became of a run of pages that came: all of them are written, or none."""

    is_ok: bool
    fault: int
    """The fault word of the check (`fault_word.py`)."""


class PageWire(Protocol):
    """One cache's way out and in (`wire_pages.WirePages`)."""

    @property
    def page_bytes(self) -> int: ...

    @property
    def layout(self) -> str: ...

    def sent_bytes(self, cache: CacheName) -> int | None: ...

    def to_wire(self, departure: Departure, cache: CacheName) -> tuple[list[WirePage], int]: ...

    def bind(self, digest: int, handoff: int, logical_page: int, tag: Tag) -> int: ...

    def load(self, arrived: Sequence[ArrivedPage]) -> Arrivals: ...

    def verify(self, arrivals: Arrivals) -> list[bool]: ...

    def from_wire(self, writes: PageBatch, arrivals: Arrivals) -> list[Outcome]: ...

    def fault(self, lease: Lease, owner: OwnerSlot, num_tokens: int) -> int: ...
