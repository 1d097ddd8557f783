"""Which page belongs to whom. Pure bookkeeping: no torch, no device, O(1) per page.

| state | leaves when |
|---|---|
| free | reserved: gets the next generation and its owner as its tag |
| private | its lease is released |
| quiescing | the step that may still touch it is known finished: then free |
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import NewType, TypeAlias

from .owners import OWNER_BITS, OwnerSlot

PageIndex = NewType("PageIndex", int)
Tag = NewType("Tag", int)
"""Owner slot in the upper 16 bits, generation in the lower 48, as a signed 64-bit integer."""

Fence: TypeAlias = int
"""The number of a step. Steps finish in the order of their numbers."""

GENERATION_BITS = 48
_GENERATION_MASK = (1 << GENERATION_BITS) - 1
_WORD_BITS = OWNER_BITS + GENERATION_BITS


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
    """Nobody new; a launched step may still read or write it."""


class Lease:
    """Pages of one sequence in logical order. The allocator changes it; its holder reads it."""

    __slots__ = ("indices", "owner", "pool", "tags")

    def __init__(self, pool: PageAllocator, owner: OwnerSlot) -> None:
        self.pool = pool
        self.owner = owner
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

    def extend(self, num_pages: int) -> None:
        """Append fresh pages; the pool must have them free."""
        self.pool.extend(self, num_pages)


@dataclass(frozen=True, slots=True, kw_only=True)
class PageStatistics:
    """How many pages are in which state."""

    num_pages: int
    num_free: int
    num_private: int
    num_quiescing: int
    num_leases: int


class PageAllocator:
    """The pages of one pool. Asking for more than `num_free` is the caller's error."""

    def __init__(
        self, num_pages: int, *, stamp: Callable[[Sequence[PageRef]], None] = lambda refs: None
    ) -> None:
        """`stamp` learns of every tag before its page can be used."""
        self._stamp = stamp
        # the last is taken first: recently used pages are warm, untouched ones cost no memory
        self._free = [PageIndex(index) for index in reversed(range(num_pages))]
        self._states = [PageState.FREE] * num_pages
        self._tags = [Tag(0)] * num_pages
        self._generation = 0
        self._leases: set[Lease] = set()
        self._quiescing: deque[tuple[Fence, array[int]]] = deque()
        self._num_quiescing = 0
        self._finished: Fence = 0

    @property
    def num_free(self) -> int:
        return len(self._free)

    def reserve(self, owner: OwnerSlot, num_pages: int) -> Lease:
        """Return fresh pages, private to the caller."""
        lease = Lease(self, owner)
        self._leases.add(lease)
        self.extend(lease, num_pages)
        return lease

    def extend(self, lease: Lease, num_pages: int) -> None:
        assert lease in self._leases, "the lease has been released or transferred"
        assert num_pages <= len(self._free), f"{num_pages} pages wanted, {len(self._free)} are free"
        fresh = [self._acquire(lease.owner) for _ in range(num_pages)]
        self._stamp(fresh)
        for ref in fresh:
            lease.indices.append(ref.index)
            lease.tags.append(ref.tag)

    def transfer(self, lease: Lease) -> Lease:
        """Move the pages to a new lease; the old one is void from here on."""
        assert lease in self._leases, "the lease has been released or transferred"
        heir = Lease(self, lease.owner)
        heir.indices, lease.indices = lease.indices, heir.indices
        heir.tags, lease.tags = lease.tags, heir.tags
        self._leases.remove(lease)
        self._leases.add(heir)
        return heir

    def release(self, lease: Lease, after: Fence) -> None:
        """Give the pages back; they become free when step `after` is known finished."""
        assert lease in self._leases, "the lease has been released or transferred"
        self._leases.remove(lease)
        if after <= self._finished:
            self._free_all(lease.indices)
            return
        assert not self._quiescing or self._quiescing[-1][0] <= after, "fences must not go back"
        for index in lease.indices:
            self._states[index] = PageState.QUIESCING
        self._quiescing.append((after, lease.indices))
        self._num_quiescing += len(lease.indices)

    def completed(self, step: Fence) -> None:
        """Learn that no step up to `step` will touch a page any more."""
        self._finished = max(self._finished, step)
        while self._quiescing and self._quiescing[0][0] <= self._finished:
            _, indices = self._quiescing.popleft()
            self._num_quiescing -= len(indices)
            self._free_all(indices)

    def statistics(self) -> PageStatistics:
        num_pages = len(self._states)
        return PageStatistics(
            num_pages=num_pages,
            num_free=len(self._free),
            num_private=num_pages - len(self._free) - self._num_quiescing,
            num_quiescing=self._num_quiescing,
            num_leases=len(self._leases),
        )

    def audit(self) -> list[str]:
        """Walk every page, lease and list; return what does not add up. O(pages)."""
        leased = [index for lease in self._leases for index in lease.indices]
        quiescing = [index for _, indices in self._quiescing for index in indices]
        findings = [
            *self._misplaced(self._free, PageState.FREE),
            *self._misplaced(leased, PageState.PRIVATE),
            *self._misplaced(quiescing, PageState.QUIESCING),
        ]
        held = sorted([*self._free, *leased, *quiescing])
        if held != list(range(len(self._states))):
            findings.append(f"{len(self._states)} pages exist, but those held are {held}")
        if len(quiescing) != self._num_quiescing:
            findings.append(f"{len(quiescing)} pages are quiescing, counted {self._num_quiescing}")
        findings.extend(
            f"page {ref.index} is leased with tag {ref.tag:#x} but has {self._tags[ref.index]:#x}"
            for lease in self._leases
            for ref in lease.refs
            if ref.tag != self._tags[ref.index]
        )
        return findings

    def _acquire(self, owner: OwnerSlot) -> PageRef:
        index = self._free.pop()
        self._generation = (self._generation + 1) & _GENERATION_MASK
        tag = make_tag(owner, self._generation)
        self._states[index] = PageState.PRIVATE
        self._tags[index] = tag
        return PageRef(index, tag)

    def _free_all(self, indices: Iterable[int]) -> None:
        for index in indices:
            self._states[index] = PageState.FREE
            self._free.append(PageIndex(index))

    def _misplaced(self, indices: Iterable[int], state: PageState) -> list[str]:
        return [
            f"page {index} is held as {state.name} but its state is {self._states[index].name}"
            for index in indices
            if self._states[index] is not state
        ]


def make_tag(owner: OwnerSlot, generation: int) -> Tag:
    word = owner << GENERATION_BITS | generation
    return Tag(word - (1 << _WORD_BITS) if word >> (_WORD_BITS - 1) else word)


def owner_of(tag: Tag) -> OwnerSlot:
    return OwnerSlot(tag >> GENERATION_BITS & ((1 << OWNER_BITS) - 1))
