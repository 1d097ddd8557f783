"""What a hand-off may write: its own pages, in any order, until it is closed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tenantry_runtime.cache.allocator import PageAllocator
from tenantry_runtime.cache.owners import OwnerSlot
from tenantry_runtime.cache.page_batch import PageBatch
from tenantry_runtime.cache.pages import HandoffId, PageIndex, PageRef, Tag
from tenantry_runtime.cache.reservation import PushedPage, Reservation
from tenantry_runtime.cache.tags import PageTags
from tenantry_runtime.errors import CacheIntegrityError

OWNER = OwnerSlot(3)


def a_reservation(num_pages: int = 3) -> tuple[PageTags, Reservation]:
    tags = PageTags(8, num_appends=1)
    pool = PageAllocator(8, stamp=tags.stamp)
    return tags, Reservation.fresh(pool, OWNER, num_pages)


def a_push(reservation: Reservation, logical_page: int, num_tokens: int = 64) -> PushedPage:
    return PushedPage(
        handoff=reservation.handoff,
        logical_page=logical_page,
        ref=reservation.lease.ref(logical_page),
        num_tokens=num_tokens,
    )


def arrives(tags: PageTags, pages: PageBatch) -> list[bool]:
    checked = tags.check(pages)
    checked.landing.landed(checked.write_slot_T)
    ok: list[bool] = tags.confirm(checked).tolist()
    return ok


def test_pages_that_arrive_in_any_order_are_a_sequence() -> None:
    tags, reservation = a_reservation()
    assert arrives(
        tags, reservation.accept([a_push(reservation, 2, 5), a_push(reservation, 0)])
    ) == [
        True,
        True,
    ]
    assert arrives(tags, reservation.accept([a_push(reservation, 1)])) == [True]
    reservation.close()
    lease = reservation.lease
    pages = PageBatch(leases_S=(lease,), owner_S=(OWNER,), start_S=(133,), read_len_S=(134,))
    assert arrives(tags, pages) == [True]


def test_pages_that_follow_each_other_are_one_run() -> None:
    _, reservation = a_reservation(5)
    pushed = [a_push(reservation, page, 64 if page < 4 else 9) for page in (3, 4, 0, 1)]
    runs = reservation.accept(pushed)
    assert (runs.first_page_S, runs.start_S, runs.read_len_S) == (
        [3, 0],
        [3 * 64, 0],
        [4 * 64 + 9, 2 * 64],
    )
    # what follows a page that is not full is no run with it
    split = reservation.accept([a_push(reservation, 0, 7), a_push(reservation, 1)])
    assert (split.start_S, split.read_len_S) == ([0, 64], [7, 128])


def test_a_page_is_pushed_once() -> None:
    tags, reservation = a_reservation()
    assert arrives(tags, reservation.accept([a_push(reservation, 0)])) == [True]
    assert arrives(tags, reservation.accept([a_push(reservation, 0)])) == [False]


def test_a_page_that_does_not_arrive_is_missed_in_the_first_step() -> None:
    tags, reservation = a_reservation(2)
    arrives(tags, reservation.accept([a_push(reservation, 0)]))
    lease = reservation.lease
    pages = PageBatch(leases_S=(lease,), owner_S=(OWNER,), start_S=(128,), read_len_S=(128,))
    assert arrives(tags, pages) == [False]


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"handoff": HandoffId(999)}, "after its hand-off ended"),
        ({"logical_page": 3}, "is not reserved"),
        ({"logical_page": -1}, "is not reserved"),
        ({"logical_page": 1}, "is not the reserved one"),
        ({"ref": PageRef(PageIndex(0), Tag(1))}, "is not the reserved one"),
        ({"num_tokens": 65}, "has 65 tokens"),
        ({"num_tokens": 0}, "has 0 tokens"),
    ],
)
def test_a_page_that_is_not_as_reserved_is_refused(change: dict[str, object], problem: str) -> None:
    _, reservation = a_reservation()
    with pytest.raises(CacheIntegrityError, match=problem):
        reservation.accept([replace(a_push(reservation, 0), **change)])  # type: ignore[arg-type]  # of any field


def test_a_page_that_comes_late_is_refused() -> None:
    _, reservation = a_reservation()
    push = a_push(reservation, 0)
    reservation.close()
    with pytest.raises(CacheIntegrityError, match="after its hand-off ended"):
        reservation.accept([push])


def test_a_page_that_was_tagged_anew_is_refused_on_the_device() -> None:
    tags, reservation = a_reservation()
    ref = reservation.lease.ref(0)
    tags.stamp([PageRef(ref.index, Tag(ref.tag + 1))])
    checked = tags.check(reservation.accept([a_push(reservation, 0)]))
    assert checked.read_len_S == (0,)


def test_pages_of_an_aborted_request_are_not_given_away_while_they_may_be_written() -> None:
    _, reservation = a_reservation()
    pool = reservation.lease.pool
    pool.release(reservation.lease, after=reservation.handoff)
    assert not reservation.is_open
    assert pool.statistics().num_quiescing == 3
    reservation.close()
    assert pool.num_free == 8
    assert pool.audit() == []
