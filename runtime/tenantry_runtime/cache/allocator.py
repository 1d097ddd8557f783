"""Which page belongs to whom. Pure bookkeeping: no torch, no device, O(1) per page.

| state | leaves when |
|---|---|
| free | reserved: gets the next generation and its owner as its tag |
| private | its lease is released, or shares it |
| shared | it is retired, when no lease reads it |
| quiescing | the step and the hand-off that may still touch it are known finished: then free, or quarantined |
| quarantined | the node is idle and the audit finds nothing: then free |

A page that becomes nobody's gets the nobody tag, so that whoever still reads it is found out. What
does not agree with the pool's own record is never freed on somebody's word: it is quarantined.
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import count

from .ledger import PageLedger
from .owners import OwnerSlot
from .pages import (
    GENERATION_BITS,
    NOBODY_TAG,
    Fence,
    HandoffId,
    Lease,
    PageIndex,
    PageRef,
    PageState,
    PageStatistics,
    SharedPage,
    StepNumber,
    Tag,
    make_tag,
    owner_of,
)
from .pool_audit import findings_of

_GENERATION_MASK = (1 << GENERATION_BITS) - 1


class PageAllocator:
    """The pages of one pool. Asking for more than `num_free` is the caller's error."""

    def __init__(
        self,
        num_pages: int,
        *,
        stamp: Callable[[Sequence[PageRef]], None] = lambda refs: None,
        handoffs: Iterator[int] | None = None,
    ) -> None:
        """`stamp` learns of every tag before its page can be used, and of every page that is freed.

        `handoffs` numbers hand-offs: one of all pools of a node, where they must not be confused.
        """
        self._stamp = stamp
        self._ledger = PageLedger(num_pages)
        # the last is taken first: recently used pages are warm, untouched ones cost no memory
        self._free = [PageIndex(index) for index in reversed(range(num_pages))]
        self._generation = 0
        self._serials = count(1)
        self._handoff_numbers = handoffs or count(1)
        self._leases: set[Lease] = set()
        self._shared: dict[PageIndex, SharedPage] = {}
        self._quiescing: deque[tuple[StepNumber, array[int]]] = deque()
        self._finished: StepNumber = 0
        self._handoffs: dict[Lease, HandoffId] = {}
        self._draining: dict[HandoffId, tuple[Lease, StepNumber]] = {}
        """Released leases that an open hand-off may still touch."""
        self._suspects: set[PageIndex] = set()
        """Pages that become quarantined instead of free."""

    @property
    def num_free(self) -> int:
        return len(self._free)

    @property
    def num_pages(self) -> int:
        return len(self._ledger)

    @property
    def num_usable(self) -> int:
        """Pages that are not quarantined."""
        return len(self._ledger) - self._ledger.num_in(PageState.QUARANTINED)

    def num_private(self, owner: OwnerSlot) -> int:
        """Return how many pages of the owner are in leases alone."""
        return self._ledger.num_owned(owner, PageState.PRIVATE)

    @property
    def tags(self) -> Sequence[Tag]:
        """What each page's tag should be, for an audit of the device."""
        return tuple(self._ledger.tags)

    def reserve(self, owner: OwnerSlot, num_pages: int) -> Lease:
        """Return fresh pages, private to the caller."""
        lease = self._new_lease(owner)
        self.extend(lease, num_pages)
        return lease

    def extend(self, lease: Lease, num_pages: int) -> None:
        assert lease in self._leases, "the lease has been released or transferred"
        assert num_pages <= len(self._free), f"{num_pages} pages wanted, {len(self._free)} are free"
        fresh = [self._acquire(lease.owner) for _ in range(num_pages)]
        if fresh:
            self._stamp(fresh)
        for ref in fresh:
            lease.indices.append(ref.index)
            lease.tags.append(ref.tag)

    def transfer(self, lease: Lease) -> Lease:
        """Move the pages to a new lease; the old one is void from here on."""
        assert lease in self._leases, "the lease has been released or transferred"
        assert lease not in self._handoffs, "the lease is being handed off"
        heir = Lease(self, lease.owner, lease.serial)
        heir.indices, lease.indices = lease.indices, heir.indices
        heir.tags, lease.tags = lease.tags, heir.tags
        self._leases.remove(lease)
        self._leases.add(heir)
        return heir

    def release(self, lease: Lease, after: Fence) -> None:
        """Give the pages back; they become free when `after` and an open hand-off are known finished."""
        assert lease in self._leases, "the lease has been released or transferred"
        handoff = self._handoffs.get(lease)
        step = 0
        if isinstance(after, HandoffId):
            assert after == handoff, f"{after} does not hand this lease off"
        else:
            step = after
        self._leases.remove(lease)
        if not self._agrees(lease):
            self._correct(lease)
        if handoff is None:
            self._give_back(lease, step)
            return
        del self._handoffs[lease]
        self._draining[handoff] = lease, step
        for index in self._private(lease):
            self._ledger.move(PageIndex(index), PageState.QUIESCING)

    def open_handoff(self, lease: Lease) -> HandoffId:
        """Begin to let a hand-off touch the lease's pages; `close_handoff` is its end."""
        assert lease in self._leases, "the lease has been released or transferred"
        assert lease not in self._handoffs, "the lease is already being handed off"
        handoff = self._handoffs[lease] = HandoffId(next(self._handoff_numbers))
        return handoff

    def close_handoff(self, handoff: HandoffId) -> None:
        """Learn that the hand-off touches nothing any more; one that is closed is ignored."""
        for lease, open_handoff in self._handoffs.items():
            if open_handoff == handoff:
                del self._handoffs[lease]
                return
        if handoff in self._draining:
            lease, step = self._draining.pop(handoff)
            self._give_back(lease, step)

    def is_handed_off(self, lease: Lease, handoff: HandoffId) -> bool:
        """Whether the hand-off may still write the lease's pages."""
        return self._handoffs.get(lease) == handoff

    def share(self, lease: Lease, first: int, pages: Sequence[SharedPage]) -> None:
        """Freeze the lease's private pages from position `first` on, all of them or none.

        The lease goes on as their first reader.
        """
        assert lease in self._leases, "the lease has been released or transferred"
        for position, page in enumerate(pages, first):
            index = page.ref.index
            assert page.ref == lease.ref(position), "the page is not at that position"
            assert page.ref.tag == self._ledger.tags[index], "the lease is not the page's holder"
            assert self.state_of(index) is PageState.PRIVATE, f"page {index} is not private"
        for page in pages:
            self._ledger.move(page.ref.index, PageState.SHARED)
            self._shared[page.ref.index] = page
            page.enter()

    def read(self, owner: OwnerSlot, pages: Sequence[SharedPage]) -> Lease:
        """Return a lease that begins with shared pages of its owner, as their reader."""
        for page in pages:
            assert self._shared.get(page.ref.index) is page, f"page {page.ref.index} is not shared"
            assert owner_of(page.ref.tag) == owner, f"page {page.ref.index} is another owner's"
        lease = self._new_lease(owner)
        for page in pages:
            lease.indices.append(page.ref.index)
            lease.tags.append(page.ref.tag)
            page.enter()
        return lease

    def retire(self, *pages: SharedPage) -> None:
        """Give shared pages back; each becomes free when all steps that read it are finished."""
        unread = array("q")
        for page in pages:
            index = page.ref.index
            assert self._shared.get(index) is page, (
                f"page {index} is not shared, or has been retired"
            )
            assert not page.num_readers, f"page {index} has {page.num_readers} readers"
            del self._shared[index]
            if page.last_read <= self._finished:
                unread.append(index)
            else:
                self._quiesce(array("q", [index]), page.last_read)
        # in one call: on the device, too, it costs as much as one page
        self._quiesce(unread, self._finished)

    def quarantine(self, index: PageIndex) -> None:
        """Let nobody have the page until `readmit`: at once if it is free, else when it would be.

        What is no page of the pool is ignored.
        """
        if not 0 <= index < len(self._ledger):
            return
        match self.state_of(index):
            case PageState.FREE:
                self._free.remove(index)
                self._ledger.take(index, PageState.QUARANTINED)
            case PageState.QUARANTINED:
                pass
            case _:
                self._suspects.add(index)

    def readmit(self) -> list[str]:
        """Free what is quarantined, if no lease, step or hand-off is left and an audit finds nothing.

        Return the findings.
        """
        findings = self.audit()
        if findings or self._leases or self._quiescing or self._draining:
            return findings
        num_pages = len(self._ledger)
        pages = map(PageIndex, range(num_pages))
        freed = [index for index in pages if self.state_of(index) is PageState.QUARANTINED]
        for index in freed:
            self._ledger.take(index, PageState.FREE)
        self._free.extend(freed)
        if freed:
            self._stamp([PageRef(index, NOBODY_TAG) for index in freed])
        return []

    def state_of(self, index: PageIndex) -> PageState:
        return self._ledger.states[index]

    def pages(self) -> tuple[Sequence[PageState], Sequence[Tag]]:
        """Return each page's state, and each page's tag, by index: to be read at once."""
        return self._ledger.states, self._ledger.tags

    @property
    def shared_pages(self) -> list[SharedPage]:
        return list(self._shared.values())

    def completed(self, step: StepNumber) -> None:
        """Learn that no step up to `step` will touch a page any more."""
        self._finished = max(self._finished, step)
        while self._quiescing and self._quiescing[0][0] <= self._finished:
            _, indices = self._quiescing.popleft()
            self._free_all(indices)

    def statistics(self) -> PageStatistics:
        return PageStatistics(
            num_pages=len(self._ledger),
            num_free=len(self._free),
            num_private=self._ledger.num_in(PageState.PRIVATE),
            num_shared=self._ledger.num_in(PageState.SHARED),
            num_quiescing=self._ledger.num_in(PageState.QUIESCING),
            num_quarantined=self._ledger.num_in(PageState.QUARANTINED),
            num_leases=len(self._leases),
            num_handoffs=len(self._handoffs) + len(self._draining),
            owners=self._ledger.owners(),
        )

    def audit(self) -> list[str]:
        """Walk every page, lease and list; return what does not add up. O(pages)."""
        draining = [lease for lease, _ in self._draining.values()]
        quiescing = [PageIndex(index) for _, indices in self._quiescing for index in indices]
        return findings_of(
            ledger=self._ledger,
            free=self._free,
            leases=self._leases,
            draining=draining,
            shared=self._shared,
            quiescing=quiescing,
        )

    def _new_lease(self, owner: OwnerSlot) -> Lease:
        lease = Lease(self, owner, next(self._serials))
        self._leases.add(lease)
        return lease

    def _acquire(self, owner: OwnerSlot) -> PageRef:
        index = self._free.pop()
        self._generation = (self._generation + 1) & _GENERATION_MASK
        tag = make_tag(owner, self._generation)
        self._ledger.give(index, tag)
        return PageRef(index, tag)

    def _private(self, lease: Lease) -> array[int]:
        if not self._shared:
            return lease.indices
        return array("q", (i for i in lease.indices if i not in self._shared))

    def _give_back(self, lease: Lease, step: StepNumber) -> None:
        self._quiesce(self._private(lease), step)
        # the deepest first: of one sequence's pages it is the first that may go
        for index in reversed(lease.indices):
            page = self._shared.get(PageIndex(index))
            if page is not None:
                page.leave(step)

    def _quiesce(self, indices: array[int], after: StepNumber) -> None:
        if not indices:
            return
        if after <= self._finished:
            self._free_all(indices)
            return
        if self._quiescing:
            # its last toucher may be older than the queue's last: it waits no less
            after = max(after, self._quiescing[-1][0])
        for index in indices:
            self._ledger.move(PageIndex(index), PageState.QUIESCING)
        self._quiescing.append((after, indices))

    def _free_all(self, indices: Iterable[int]) -> None:
        gone: list[PageRef] = []
        for index in map(PageIndex, indices):
            if self.state_of(index) in (PageState.FREE, PageState.QUARANTINED):
                # freed twice: whoever was wrong, nobody gets it now
                self.quarantine(index)
            elif index in self._suspects:
                self._suspects.remove(index)
                self._ledger.take(index, PageState.QUARANTINED)
            else:
                self._ledger.take(index, PageState.FREE)
                self._free.append(index)
            gone.append(PageRef(index, NOBODY_TAG))
        self._stamp(gone)

    def _agrees(self, lease: Lease) -> bool:
        tags = self._ledger.tags
        return all(
            0 <= index < len(tags) and tags[index] == tag
            for index, tag in zip(lease.indices, lease.tags, strict=True)
        )

    def _correct(self, lease: Lease) -> None:
        """Make a lease whose pages are not as the pool has them name those that are its own.

        They, and all that it named, are quarantined as soon as nobody holds them. O(pages).
        """
        held = {tag for other in self._leases for tag in other.tags}
        own = self._ledger.with_tags([Tag(tag) for tag in lease.tags])
        for index in map(PageIndex, lease.indices):
            if not 0 <= index < len(self._ledger):
                continue
            is_lost = self.state_of(index) is PageState.PRIVATE and (
                self._ledger.tags[index] not in held
            )
            if is_lost and index not in own:
                own.append(index)
            self.quarantine(index)
        usable = (PageState.PRIVATE, PageState.SHARED)
        own = [index for index in own if self.state_of(index) in usable]
        for index in own:
            self.quarantine(index)
        lease.indices = array("q", own)
        lease.tags = array("q", (self._ledger.tags[index] for index in own))
