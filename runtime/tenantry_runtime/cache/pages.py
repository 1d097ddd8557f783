"""What a page is to its holders: a number, a tag, a state, and who may read it."""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, NewType, TypeAlias

from .owners import NOBODY, OWNER_BITS, OwnerSlot

if TYPE_CHECKING:
    from .allocator import PageAllocator

PageIndex = NewType("PageIndex", int)
Tag = NewType("Tag", int)
"""Owner slot in the upper 16 bits, generation in the lower 48, as a signed 64-bit integer."""

StepNumber: TypeAlias = int
"""Steps finish in the order of their numbers."""

GENERATION_BITS = 48
_WORD_BITS = OWNER_BITS + GENERATION_BITS


@dataclass(frozen=True, slots=True)
class HandoffId:
    """A hand-off that may read or write a lease's pages until it is closed."""

    number: int


Fence: TypeAlias = StepNumber | HandoffId
"""What may still touch a page: a launched step, or an open hand-off."""


def make_tag(owner: OwnerSlot, generation: int) -> Tag:
    word = owner << GENERATION_BITS | generation
    return Tag(word - (1 << _WORD_BITS) if word >> (_WORD_BITS - 1) else word)


def owner_of(tag: Tag) -> OwnerSlot:
    return OwnerSlot(tag >> GENERATION_BITS & ((1 << OWNER_BITS) - 1))


NOBODY_TAG = make_tag(NOBODY, (1 << GENERATION_BITS) - 1)
"""Of a page that is nobody's: no request expects it."""


@dataclass(frozen=True, slots=True)
class PageRef:
    """A page, and the tag it had when it was acquired."""

    index: PageIndex
    tag: Tag


class PageState(IntEnum):
    """Who may use a page."""

    FREE = 0
    """Nobody."""
    PRIVATE = 1
    """The holder of its lease."""
    QUIESCING = 2
    """Nobody new; a launched step or an open hand-off may still read or write it."""
    SHARED = 3
    """Leases of its owner, to read."""
    QUARANTINED = 4
    """Nobody, until the node is idle and audited."""


class SharedPage:
    """A page that leases of its owner may read and nobody may write, from `share` to `retire`."""

    __slots__ = ("last_read", "num_readers", "ref")

    def __init__(self, ref: PageRef) -> None:
        self.ref = ref
        self.num_readers = 0
        """Leases that name it."""
        self.last_read: StepNumber = 0
        """The last step that may read it for a lease that is gone."""

    def enter(self) -> None:
        self.num_readers += 1

    def leave(self, after: StepNumber) -> None:
        assert self.num_readers > 0, f"page {self.ref.index} has no reader that could leave"
        self.num_readers -= 1
        self.last_read = max(self.last_read, after)


class Lease:
    """Pages of one sequence in logical order. The allocator changes it; its holder reads it.

    Some may be shared: the lease is then one of their readers. Tags are those from when the pages
    were acquired, and are never read again from where they are kept.
    """

    __slots__ = ("indices", "owner", "pool", "serial", "tags")

    def __init__(self, pool: PageAllocator, owner: OwnerSlot, serial: int) -> None:
        """`serial` is no other sequence's in this pool; an heir keeps it."""
        self.pool = pool
        self.owner = owner
        self.serial = serial
        # arrays, not lists of refs: a step copies them whole into its page table
        self.indices: array[int] = array("q")
        self.tags: array[int] = array("q")

    def __len__(self) -> int:
        return len(self.indices)

    @property
    def refs(self) -> list[PageRef]:
        return [
            PageRef(PageIndex(index), Tag(tag))
            for index, tag in zip(self.indices, self.tags, strict=True)
        ]

    def ref(self, position: int) -> PageRef:
        return PageRef(PageIndex(self.indices[position]), Tag(self.tags[position]))

    def extend(self, num_pages: int) -> None:
        """Append fresh pages; the pool must have them free."""
        self.pool.extend(self, num_pages)


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnerPages:
    """Pages of one owner."""

    num_private: int
    num_shared: int
    num_quiescing: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PageStatistics:
    """How many pages are in which state."""

    num_pages: int
    num_free: int
    num_private: int
    num_shared: int
    num_quiescing: int
    num_quarantined: int
    num_leases: int
    num_handoffs: int
    """Open ones."""
    owners: Mapping[OwnerSlot, OwnerPages]
    """Those with any."""
