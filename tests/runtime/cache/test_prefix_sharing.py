"""Shared pages in the allocator: frozen by one lease, read by many, retired when none reads them."""

from __future__ import annotations

import pytest

from tenantry_runtime.cache.allocator import PageAllocator
from tenantry_runtime.cache.owners import OwnerSlot
from tenantry_runtime.cache.pages import Lease, PageIndex, PageRef, PageState, SharedPage

OWNER, OTHER = OwnerSlot(1), OwnerSlot(2)


def a_lease_with_shared_pages(
    pool: PageAllocator, num_pages: int
) -> tuple[Lease, list[SharedPage]]:
    lease = pool.reserve(OWNER, num_pages)
    pages = [SharedPage(ref) for ref in lease.refs]
    pool.share(lease, 0, pages)
    return lease, pages


def states(pool: PageAllocator) -> list[PageState]:
    return [pool.state_of(PageIndex(i)) for i in range(pool.statistics().num_pages)]


def test_the_lease_that_shares_its_pages_is_their_first_reader() -> None:
    pool = PageAllocator(4)
    lease, pages = a_lease_with_shared_pages(pool, 2)
    lease.extend(1)
    assert [page.num_readers for page in pages] == [1, 1]
    statistics = pool.statistics()
    assert (statistics.num_shared, statistics.num_private, statistics.num_free) == (2, 1, 1)
    assert pool.audit() == []


def test_a_released_lease_gives_back_its_private_pages_and_only_stops_reading_the_shared() -> None:
    pool = PageAllocator(4)
    lease, (page,) = a_lease_with_shared_pages(pool, 1)
    lease.extend(2)
    pool.release(lease, after=0)
    assert (page.num_readers, pool.num_free) == (0, 3)
    assert pool.state_of(page.ref.index) is PageState.SHARED
    assert pool.audit() == []


def test_a_reader_sees_the_pages_with_the_tags_from_when_they_were_acquired() -> None:
    pool = PageAllocator(4)
    first, pages = a_lease_with_shared_pages(pool, 2)
    second = pool.read(OWNER, pages)
    assert second.refs == first.refs
    heir = pool.transfer(second)
    assert [page.num_readers for page in pages] == [2, 2]
    pool.release(heir, after=0)
    assert [page.num_readers for page in pages] == [1, 1]
    assert pool.audit() == []


def test_another_owner_cannot_read_a_shared_page() -> None:
    pool = PageAllocator(4)
    _, pages = a_lease_with_shared_pages(pool, 2)
    with pytest.raises(AssertionError, match="another owner's"):
        pool.read(OTHER, pages)
    assert pool.audit() == []


def test_a_page_with_a_reader_is_not_retired() -> None:
    pool = PageAllocator(4)
    _, (page,) = a_lease_with_shared_pages(pool, 1)
    with pytest.raises(AssertionError, match="1 readers"):
        pool.retire(page)
    assert pool.audit() == []


def test_a_retired_page_quiesces_until_its_last_readers_step_is_finished() -> None:
    pool = PageAllocator(2)
    first, (page,) = a_lease_with_shared_pages(pool, 1)
    second = pool.read(OWNER, [page])
    pool.release(second, after=7)
    pool.release(first, after=7)
    pool.retire(page)
    assert pool.state_of(page.ref.index) is PageState.QUIESCING
    pool.completed(6)
    assert pool.num_free == 1
    pool.completed(7)
    assert pool.num_free == 2
    assert pool.audit() == []


def test_a_retired_page_waits_for_no_step_that_began_after_its_last_reader_left() -> None:
    pool = PageAllocator(2)
    lease, (page,) = a_lease_with_shared_pages(pool, 1)
    pool.release(lease, after=3)
    pool.completed(3)
    pool.release(pool.reserve(OWNER, 1), after=9)
    pool.retire(page)
    assert pool.num_free == 1


def test_a_retired_page_queues_behind_pages_with_later_fences() -> None:
    pool = PageAllocator(2)
    lease, (page,) = a_lease_with_shared_pages(pool, 1)
    pool.release(lease, after=3)
    pool.release(pool.reserve(OWNER, 1), after=9)
    pool.retire(page)
    assert states(pool) == [PageState.QUIESCING] * 2
    pool.completed(9)
    assert pool.num_free == 2


def test_a_page_is_retired_once() -> None:
    pool = PageAllocator(2)
    lease, (page,) = a_lease_with_shared_pages(pool, 1)
    pool.release(lease, after=0)
    pool.retire(page)
    with pytest.raises(AssertionError, match="retired"):
        pool.retire(page)
    with pytest.raises(AssertionError, match="not shared"):
        pool.read(OWNER, [page])
    assert pool.num_free == 2
    assert pool.audit() == []


def test_a_reader_leaves_once() -> None:
    page = SharedPage(PageAllocator(1).reserve(OWNER, 1).ref(0))
    page.enter()
    page.leave(after=0)
    with pytest.raises(AssertionError, match="no reader"):
        page.leave(after=0)


def test_of_a_run_with_a_page_that_may_not_be_shared_no_page_is() -> None:
    pool = PageAllocator(4)
    lease = pool.reserve(OWNER, 3)
    shared = SharedPage(lease.ref(2))
    pool.share(lease, 2, [shared])
    fresh = [SharedPage(ref) for ref in lease.refs]
    with pytest.raises(AssertionError, match="not private"):
        pool.share(lease, 0, fresh)
    assert pool.statistics().num_shared == 1
    assert [page.num_readers for page in fresh] == [0, 0, 0]
    assert pool.audit() == []


def test_a_page_that_its_lease_no_longer_holds_is_not_shared() -> None:
    pool = PageAllocator(1)
    stale = pool.reserve(OWNER, 1)
    ref = stale.ref(0)
    pool.release(stale, after=0)
    with pytest.raises(AssertionError, match="released"):
        pool.share(stale, 0, [SharedPage(ref)])
    again = pool.reserve(OWNER, 1)
    with pytest.raises(AssertionError, match="not at that position"):
        pool.share(again, 0, [SharedPage(ref)])
    again.tags[0] = ref.tag
    with pytest.raises(AssertionError, match="holder"):
        pool.share(again, 0, [SharedPage(ref)])


def test_an_audit_sees_a_reader_too_many_and_a_reader_too_few() -> None:
    pool = PageAllocator(2)
    _, pages = a_lease_with_shared_pages(pool, 2)
    pages[0].num_readers, pages[1].num_readers = 2, -1
    assert pool.audit() == [
        f"page {pages[0].ref.index} has 1 readers, counted 2",
        f"page {pages[1].ref.index} has 1 readers, counted -1",
    ]


def test_an_audit_sees_a_shared_page_whose_tag_is_not_its_own() -> None:
    pool = PageAllocator(2)
    lease, (page,) = a_lease_with_shared_pages(pool, 1)
    pool.release(lease, after=0)
    right = page.ref
    page.ref = PageRef(right.index, pool.reserve(OWNER, 1).ref(0).tag)
    assert pool.audit() == [
        f"page {right.index} is shared with tag {page.ref.tag:#x} but has {right.tag:#x}"
    ]


def test_an_audit_sees_a_lease_that_reads_another_owners_page() -> None:
    pool = PageAllocator(2)
    _, (page,) = a_lease_with_shared_pages(pool, 1)
    foreign = pool.reserve(OTHER, 0)
    foreign.indices.append(page.ref.index)
    foreign.tags.append(page.ref.tag)
    page.enter()
    assert pool.audit() == [f"page {page.ref.index} of owner 1 is read by a lease of owner 2"]
