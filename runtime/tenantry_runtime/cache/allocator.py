"""Which page belongs to whom. Pure bookkeeping: no torch, no device, O(1) per page.

| state | leaves when |
|---|---|
| free | reserved: gets the next generation and its owner as its tag |
| private | its lease is released, or shares it |
| shared | it is retired, when no lease reads it |
| quiescing | the step that may still touch it is known finished: then free |
"""

from __future__ import annotations

from array import array
from collections import Counter, deque
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
    SHARED = 3
    """Leases of its owner, to read."""


class SharedPage:
    """A page that leases of its owner may read and nobody may write, from `share` to `retire`."""

    __slots__ = ("last_read", "num_readers", "ref")

    def __init__(self, ref: PageRef) -> None:
        self.ref = ref
        self.num_readers = 0
        """Leases that name it."""
        self.last_read: Fence = 0
        """The last step that may read it for a lease that is gone."""

    def enter(self) -> None:
        self.num_readers += 1

    def leave(self, after: Fence) -> None:
        assert self.num_readers > 0, f"page {self.ref.index} has no reader that could leave"
        self.num_readers -= 1
        self.last_read = max(self.last_read, after)


class Lease:
    """Pages of one sequence in logical order. The allocator changes it; its holder reads it.

    Some may be shared: the lease is then one of their readers.
    """

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

    def ref(self, position: int) -> PageRef:
        return PageRef(PageIndex(self.indices[position]), Tag(self.tags[position]))

    def extend(self, num_pages: int) -> None:
        """Append fresh pages; the pool must have them free."""
        self.pool.extend(self, num_pages)


@dataclass(frozen=True, slots=True, kw_only=True)
class PageStatistics:
    """How many pages are in which state."""

    num_pages: int
    num_free: int
    num_private: int
    num_shared: int
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
        self._shared: dict[PageIndex, SharedPage] = {}
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
        shared = [self._shared[PageIndex(i)] for i in lease.indices if i in self._shared]
        private = lease.indices
        if shared:
            private = array("q", (i for i in lease.indices if i not in self._shared))
        self._quiesce(private, after)
        # the deepest first: of one sequence's pages it is the first that may go
        for page in reversed(shared):
            page.leave(after)

    def share(self, lease: Lease, first: int, pages: Sequence[SharedPage]) -> None:
        """Freeze the lease's private pages from position `first` on, all of them or none.

        The lease goes on as their first reader.
        """
        assert lease in self._leases, "the lease has been released or transferred"
        for position, page in enumerate(pages, first):
            index = page.ref.index
            assert page.ref == lease.ref(position), "the page is not at that position"
            assert page.ref.tag == self._tags[index], "the lease is not the page's holder"
            assert self._states[index] is PageState.PRIVATE, f"page {index} is not private"
        for page in pages:
            self._states[page.ref.index] = PageState.SHARED
            self._shared[page.ref.index] = page
            page.enter()

    def read(self, owner: OwnerSlot, pages: Sequence[SharedPage]) -> Lease:
        """Return a lease that begins with shared pages of its owner, as their reader."""
        for page in pages:
            assert self._shared.get(page.ref.index) is page, f"page {page.ref.index} is not shared"
            assert owner_of(page.ref.tag) == owner, f"page {page.ref.index} is another owner's"
        lease = Lease(self, owner)
        self._leases.add(lease)
        for page in pages:
            lease.indices.append(page.ref.index)
            lease.tags.append(page.ref.tag)
            page.enter()
        return lease

    def retire(self, page: SharedPage) -> None:
        """Give a shared page back; it becomes free when all steps that read it are finished."""
        index = page.ref.index
        assert self._shared.get(index) is page, f"page {index} is not shared, or has been retired"
        assert not page.num_readers, f"page {index} has {page.num_readers} readers"
        del self._shared[index]
        after = page.last_read
        if after > self._finished and self._quiescing:
            # its last reader may have left before the queue's last page: it waits no less
            after = max(after, self._quiescing[-1][0])
        self._quiesce(array("q", [index]), after)

    def state_of(self, index: PageIndex) -> PageState:
        return self._states[index]

    @property
    def shared_pages(self) -> list[SharedPage]:
        return list(self._shared.values())

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
            num_private=num_pages - len(self._free) - len(self._shared) - self._num_quiescing,
            num_shared=len(self._shared),
            num_quiescing=self._num_quiescing,
            num_leases=len(self._leases),
        )

    def audit(self) -> list[str]:
        """Walk every page, lease and list; return what does not add up. O(pages)."""
        leased = [PageIndex(index) for lease in self._leases for index in lease.indices]
        private = [index for index in leased if index not in self._shared]
        quiescing = [index for _, indices in self._quiescing for index in indices]
        findings = [
            *self._misplaced(self._free, PageState.FREE),
            *self._misplaced(private, PageState.PRIVATE),
            *self._misplaced(self._shared, PageState.SHARED),
            *self._misplaced(quiescing, PageState.QUIESCING),
        ]
        held = sorted([*self._free, *private, *self._shared, *quiescing])
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
        return [*findings, *self._misread(Counter(leased))]

    def _acquire(self, owner: OwnerSlot) -> PageRef:
        index = self._free.pop()
        self._generation = (self._generation + 1) & _GENERATION_MASK
        tag = make_tag(owner, self._generation)
        self._states[index] = PageState.PRIVATE
        self._tags[index] = tag
        return PageRef(index, tag)

    def _quiesce(self, indices: array[int], after: Fence) -> None:
        if after <= self._finished:
            self._free_all(indices)
            return
        assert not self._quiescing or self._quiescing[-1][0] <= after, "fences must not go back"
        for index in indices:
            self._states[index] = PageState.QUIESCING
        self._quiescing.append((after, indices))
        self._num_quiescing += len(indices)

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

    def _misread(self, num_leases: Counter[PageIndex]) -> list[str]:
        findings = [
            f"page {index} has {num_leases[index]} readers, counted {page.num_readers}"
            for index, page in self._shared.items()
            if page.num_readers != num_leases[index]
        ]
        findings.extend(
            f"page {index} is shared with tag {page.ref.tag:#x} but has {self._tags[index]:#x}"
            for index, page in self._shared.items()
            if page.ref.tag != self._tags[index]
        )
        findings.extend(
            f"page {index} of owner {owner_of(self._shared[index].ref.tag)} is read by a lease "
            f"of owner {lease.owner}"
            for lease in self._leases
            for index in map(PageIndex, lease.indices)
            if index in self._shared and owner_of(self._shared[index].ref.tag) != lease.owner
        )
        return findings


def make_tag(owner: OwnerSlot, generation: int) -> Tag:
    word = owner << GENERATION_BITS | generation
    return Tag(word - (1 << _WORD_BITS) if word >> (_WORD_BITS - 1) else word)


def owner_of(tag: Tag) -> OwnerSlot:
    return OwnerSlot(tag >> GENERATION_BITS & ((1 << OWNER_BITS) - 1))
