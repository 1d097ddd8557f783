from __future__ import annotations

from itertools import count

import pytest
from hypothesis import given, strategies as st

from support.limits import a_principal
from tenantry_runtime.errors import CapacityExceeded
from tenantry_runtime.tenancy.limits.terms import Terms
from tenantry_runtime.tenancy.limits.waiting import Waiting, WaitingRoom

_numbers = count()


def someone(tenant: str) -> Waiting:
    terms = Terms.of(a_principal(tenant, requests=1), "model")
    assert terms is not None
    return Waiting(terms, next(_numbers))


def tenants(chosen: list[Waiting]) -> str:
    return "".join(waiting.terms.place.tenant for waiting in chosen)


def a_room(of: str, **limits: int) -> WaitingRoom:
    room = WaitingRoom(**limits)
    for tenant in of:
        room.enter(someone(tenant))
    return room


def test_tenants_take_turns() -> None:
    room = a_room("aaaaabbc")

    assert tenants(room.next(4)) == "abca"
    assert tenants(room.next(9)) == "baaa"
    assert tenants(room.next(9)) == ""


@given(st.text("abcd", max_size=60), st.integers(1, 8))
def test_nobody_waits_for_more_than_one_of_each_other_tenant(arrivals: str, group: int) -> None:
    room = a_room(arrivals)
    order = ""
    while chosen := tenants(room.next(group)):
        order += chosen
    assert sorted(order) == sorted(arrivals)
    for tenant in set(arrivals):
        turns = [at for at, each in enumerate(order) if each == tenant]
        for before, after in zip([-1, *turns], turns, strict=False):
            between = order[before + 1 : after]
            assert all(between.count(other) <= 1 for other in set(between))


def test_within_a_tenant_the_first_is_the_first() -> None:
    room = WaitingRoom()
    first, second = someone("a"), someone("a")
    room.enter(first)
    room.enter(second)

    assert room.next(1) == [first]
    assert room.next(1) == [second]


def test_who_leaves_is_not_chosen() -> None:
    room = WaitingRoom()
    first, second = someone("a"), someone("a")
    room.enter(first)
    room.enter(second)

    assert room.leave(first)
    assert not room.leave(first)
    assert room.next(2) == [second]
    assert not room.leave(second)
    assert len(room) == 0


def test_one_tenant_cannot_take_the_places_of_all() -> None:
    room = a_room("aaa", max_of_one=3, max_waiting=5)
    with pytest.raises(CapacityExceeded):
        room.enter(someone("a"))
    room.enter(someone("b"))
    room.enter(someone("c"))
    with pytest.raises(CapacityExceeded):
        room.enter(someone("d"))
    assert len(room) == 5
    assert tenants(room.next(9)) == "abcaa"
    room.enter(someone("a"))
