"""The page allocator: every page in exactly one state, every tag unique."""

from __future__ import annotations

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from tenantry_runtime.cache.allocator import PageAllocator
from tenantry_runtime.cache.owners import OwnerSlot
from tenantry_runtime.cache.pages import (
    GENERATION_BITS,
    NOBODY_TAG,
    HandoffId,
    Lease,
    PageIndex,
    PageRef,
    PageState,
    SharedPage,
    make_tag,
    owner_of,
)

NUM_PAGES = 12
OWNERS = st.integers(0, 2**16 - 2).map(OwnerSlot)


class AllocatorMachine(RuleBasedStateMachine):
    """Drives an allocator beside a model that is nothing but counts and sets."""

    leases: Bundle[Lease] = Bundle("leases")
    handoffs: Bundle[HandoffId] = Bundle("handoffs")

    def __init__(self) -> None:
        super().__init__()
        self.stamped: list[PageRef] = []
        self.pool = PageAllocator(NUM_PAGES, stamp=self.stamped.extend)
        self.sizes: dict[int, int] = {}
        self.quiescing: list[tuple[int, int]] = []
        self.draining: dict[HandoffId, tuple[int, int]] = {}
        self.handed: dict[HandoffId, Lease] = {}
        self.suspects: set[int] = set()
        self.launched = 0
        self.finished = 0

    @property
    def num_quiescing(self) -> int:
        return sum(n for _, n in self.quiescing) + sum(n for _, n in self.draining.values())

    @property
    def num_quarantined(self) -> int:
        return sum(self.is_quarantined(index) for index in range(NUM_PAGES))

    @property
    def num_free(self) -> int:
        return NUM_PAGES - sum(self.sizes.values()) - self.num_quiescing - self.num_quarantined

    def is_quarantined(self, index: int) -> bool:
        return self.pool.state_of(PageIndex(index)) is PageState.QUARANTINED

    @rule(target=leases, owner=OWNERS, wanted=st.integers(0, NUM_PAGES))
    def reserve(self, owner: OwnerSlot, wanted: int) -> Lease:
        num_pages = min(wanted, self.num_free)
        lease = self.pool.reserve(owner, num_pages)
        assert [owner_of(ref.tag) for ref in lease.refs] == [owner] * num_pages
        self.sizes[id(lease)] = num_pages
        return lease

    @rule(lease=leases, wanted=st.integers(0, 3))
    def extend(self, lease: Lease, wanted: int) -> None:
        before = lease.refs
        num_pages = min(wanted, self.num_free)
        lease.extend(num_pages)
        assert lease.refs[: len(before)] == before
        self.sizes[id(lease)] += num_pages

    @rule(target=leases, lease=consumes(leases))
    def transfer(self, lease: Lease) -> Lease:
        if lease in self.handed.values():
            return lease
        before = lease.refs
        heir = self.pool.transfer(lease)
        assert (heir.refs, heir.owner, lease.refs) == (before, lease.owner, [])
        self.sizes[id(heir)] = self.sizes.pop(id(lease))
        return heir

    @rule()
    def launch_a_step(self) -> None:
        self.launched += 1

    @rule(lease=consumes(leases))
    def release(self, lease: Lease) -> None:
        self.pool.release(lease, after=self.launched)
        num_pages = self.sizes.pop(id(lease))
        handoff = next((h for h, handed in self.handed.items() if handed is lease), None)
        if handoff is not None:
            del self.handed[handoff]
            self.draining[handoff] = self.launched, num_pages
        elif self.launched > self.finished:
            self.quiescing.append((self.launched, num_pages))

    @rule(target=handoffs, lease=leases)
    def open_a_handoff(self, lease: Lease) -> HandoffId:
        for handoff, handed in self.handed.items():
            if handed is lease:
                return handoff
        handoff = self.pool.open_handoff(lease)
        self.handed[handoff] = lease
        return handoff

    @rule(handoff=handoffs)
    def close_a_handoff(self, handoff: HandoffId) -> None:
        self.pool.close_handoff(handoff)
        self.handed.pop(handoff, None)
        step, num_pages = self.draining.pop(handoff, (0, 0))
        if step > self.finished and num_pages:
            step = max(step, *(fence for fence, _ in self.quiescing), 0)
            self.quiescing.append((step, num_pages))

    @rule(index=st.integers(0, NUM_PAGES - 1))
    def quarantine(self, index: int) -> None:
        was_free = self.pool.state_of(PageIndex(index)) is PageState.FREE
        self.pool.quarantine(PageIndex(index))
        assert self.is_quarantined(index) or not was_free
        self.suspects.add(index)

    @rule()
    def readmit(self) -> None:
        assert self.pool.readmit() == []
        if not self.sizes and not self.num_quiescing:
            self.suspects.clear()

    @rule(num_steps=st.integers(1, 3))
    def finish_steps(self, num_steps: int) -> None:
        self.finished = min(self.launched, self.finished + num_steps)
        self.pool.completed(self.finished)
        self.quiescing = [(fence, n) for fence, n in self.quiescing if fence > self.finished]

    @invariant()
    def every_page_is_in_exactly_one_state(self) -> None:
        statistics = self.pool.statistics()
        assert self.pool.audit() == []
        assert statistics.num_free == self.num_free
        assert statistics.num_private == sum(self.sizes.values())
        assert statistics.num_quiescing == self.num_quiescing
        assert statistics.num_quarantined == self.num_quarantined
        assert statistics.num_leases == len(self.sizes)
        assert statistics.num_handoffs == len(self.handed) + len(self.draining)
        owned = statistics.owners.values()
        assert sum(pages.num_private for pages in owned) == statistics.num_private
        assert sum(pages.num_quiescing for pages in owned) == statistics.num_quiescing

    @invariant()
    def a_page_in_quarantine_is_never_given(self) -> None:
        for index in self.suspects:
            assert self.pool.state_of(PageIndex(index)) is not PageState.FREE

    @invariant()
    def no_tag_was_ever_given_twice(self) -> None:
        tags = [ref.tag for ref in self.stamped if ref.tag != NOBODY_TAG]
        assert len(set(tags)) == len(tags)

    @invariant()
    def the_last_stamp_of_a_page_is_its_tag(self) -> None:
        stamps = dict.fromkeys(range(NUM_PAGES), NOBODY_TAG)
        stamps |= {ref.index: ref.tag for ref in self.stamped}
        assert tuple(stamps.values()) == self.pool.tags


TestAllocator = AllocatorMachine.TestCase


def test_a_page_is_stamped_before_its_lease_names_it() -> None:
    stamped: list[PageRef] = []
    pool = PageAllocator(4, stamp=stamped.extend)
    lease = pool.reserve(OwnerSlot(7), 2)
    lease.extend(1)
    assert stamped == lease.refs


def test_pages_released_behind_a_running_step_are_free_only_when_it_is_known_finished() -> None:
    pool = PageAllocator(3)
    lease = pool.reserve(OwnerSlot(1), 3)
    pool.completed(4)
    pool.release(lease, after=6)
    pool.completed(5)
    assert pool.num_free == 0
    pool.completed(6)
    assert pool.num_free == 3


def test_pages_released_behind_a_finished_step_are_free_at_once() -> None:
    pool = PageAllocator(3)
    lease = pool.reserve(OwnerSlot(1), 3)
    pool.completed(6)
    pool.release(lease, after=6)
    assert pool.num_free == 3


def test_a_lease_is_released_once() -> None:
    pool = PageAllocator(3)
    lease = pool.reserve(OwnerSlot(1), 2)
    pool.release(lease, after=0)
    with pytest.raises(AssertionError, match="released"):
        pool.release(lease, after=0)
    with pytest.raises(AssertionError, match="released"):
        lease.extend(1)
    assert pool.audit() == []


def test_a_transferred_lease_is_void() -> None:
    pool = PageAllocator(3)
    lease = pool.reserve(OwnerSlot(1), 2)
    heir = pool.transfer(lease)
    with pytest.raises(AssertionError, match="transferred"):
        pool.release(lease, after=0)
    pool.release(heir, after=0)
    assert pool.num_free == 3


def test_more_pages_than_are_free_are_not_given() -> None:
    pool = PageAllocator(3)
    pool.reserve(OwnerSlot(1), 2)
    with pytest.raises(AssertionError, match="2 pages wanted, 1 are free"):
        pool.reserve(OwnerSlot(2), 2)


def test_an_audit_sees_a_page_that_two_leases_hold() -> None:
    pool = PageAllocator(4)
    first, second = pool.reserve(OwnerSlot(1), 2), pool.reserve(OwnerSlot(2), 2)
    second.indices[0] = first.indices[0]
    assert pool.audit()


def test_an_audit_sees_a_tag_that_is_not_the_pages_own() -> None:
    pool = PageAllocator(4)
    lease = pool.reserve(OwnerSlot(1), 2)
    lease.tags[1] += 1
    assert pool.audit() == [
        f"page {lease.indices[1]} is leased with tag {lease.tags[1]:#x} "
        f"but has {lease.tags[1] - 1:#x}"
    ]


def test_an_audit_sees_a_lost_page() -> None:
    pool = PageAllocator(4)
    lease = pool.reserve(OwnerSlot(1), 2)
    lease.indices.pop()
    lease.tags.pop()
    assert pool.audit()


@pytest.mark.parametrize("owner", [0, 1, 0x7FFF, 0x8000, 0xFFFF])
def test_a_tag_is_a_signed_word_that_tells_its_owner(owner: int) -> None:
    for generation in (0, 1, 2**GENERATION_BITS - 1):
        tag = make_tag(OwnerSlot(owner), generation)
        assert -(2**63) <= tag < 2**63
        assert owner_of(tag) == owner
        assert tag & 2**GENERATION_BITS - 1 == generation


def test_pages_of_a_released_lease_wait_for_its_open_handoff_too() -> None:
    pool = PageAllocator(3)
    lease = pool.reserve(OwnerSlot(1), 2)
    handoff = pool.open_handoff(lease)
    pool.release(lease, after=4)
    pool.completed(9)
    assert pool.statistics().num_quiescing == 2
    assert not pool.is_handed_off(lease, handoff)
    pool.close_handoff(handoff)
    assert pool.num_free == 3


def test_a_page_that_a_reader_hands_off_is_not_freed_when_it_is_evicted() -> None:
    pool = PageAllocator(2)
    lease = pool.reserve(OwnerSlot(1), 1)
    page = SharedPage(lease.ref(0))
    pool.share(lease, 0, [page])
    handoff = pool.open_handoff(lease)
    pool.release(lease, after=handoff)
    with pytest.raises(AssertionError, match="readers"):
        pool.retire(page)
    pool.close_handoff(handoff)
    pool.retire(page)
    assert pool.num_free == 2


def test_pages_are_counted_by_their_owners() -> None:
    pool = PageAllocator(8)
    lease = pool.reserve(OwnerSlot(3), 3)
    other = pool.reserve(OwnerSlot(5), 2)
    pool.share(lease, 0, [SharedPage(lease.ref(0))])
    pool.release(other, after=1)
    owners = pool.statistics().owners
    assert (owners[OwnerSlot(3)].num_private, owners[OwnerSlot(3)].num_shared) == (2, 1)
    assert owners[OwnerSlot(5)].num_quiescing == 2
    pool.completed(1)
    assert set(pool.statistics().owners) == {OwnerSlot(3)}


def test_pages_whose_entries_do_not_agree_are_found_by_their_tags_and_quarantined() -> None:
    pool = PageAllocator(6)
    lease, other = pool.reserve(OwnerSlot(1), 2), pool.reserve(OwnerSlot(2), 2)
    lost, lease.indices[0] = lease.indices[0], other.indices[1]
    pool.release(lease, after=0)
    assert pool.audit() == []
    assert pool.state_of(PageIndex(lost)) is PageState.QUARANTINED
    assert pool.state_of(PageIndex(other.indices[1])) is PageState.PRIVATE
    pool.release(other, after=0)
    assert pool.statistics().num_quarantined == 3
    assert pool.readmit() == []
    assert pool.num_free == 6


def test_a_page_that_is_freed_behind_its_lease_is_not_freed_with_it_again() -> None:
    pool = PageAllocator(3)
    lease = pool.reserve(OwnerSlot(1), 1)
    twin = Lease(pool, lease.owner, lease.serial)
    twin.indices, twin.tags = lease.indices[:], lease.tags[:]
    pool._leases.add(twin)
    pool.release(twin, after=0)
    newcomer = pool.reserve(OwnerSlot(2), 1)
    assert newcomer.indices == lease.indices
    pool.release(lease, after=0)
    assert pool.audit() == []
    assert pool.state_of(PageIndex(newcomer.indices[0])) is PageState.PRIVATE
