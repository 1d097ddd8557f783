"""The page allocator: every page in exactly one state, every tag unique."""

from __future__ import annotations

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from tenantry_runtime.cache.allocator import (
    GENERATION_BITS,
    Lease,
    PageAllocator,
    PageRef,
    make_tag,
    owner_of,
)
from tenantry_runtime.cache.owners import OwnerSlot

NUM_PAGES = 12
OWNERS = st.integers(0, 2**16 - 1).map(OwnerSlot)


class AllocatorMachine(RuleBasedStateMachine):
    """Drives an allocator beside a model that is nothing but counts and sets."""

    leases: Bundle[Lease] = Bundle("leases")

    def __init__(self) -> None:
        super().__init__()
        self.stamped: list[PageRef] = []
        self.pool = PageAllocator(NUM_PAGES, stamp=self.stamped.extend)
        self.sizes: dict[int, int] = {}
        self.quiescing: list[tuple[int, int]] = []
        self.launched = 0
        self.finished = 0

    @property
    def num_free(self) -> int:
        held = sum(self.sizes.values()) + sum(num_pages for _, num_pages in self.quiescing)
        return NUM_PAGES - held

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
        if self.launched > self.finished:
            self.quiescing.append((self.launched, num_pages))

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
        assert statistics.num_quiescing == sum(num_pages for _, num_pages in self.quiescing)
        assert statistics.num_leases == len(self.sizes)

    @invariant()
    def no_tag_was_ever_given_twice(self) -> None:
        tags = [ref.tag for ref in self.stamped]
        assert len(set(tags)) == len(tags)


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
