"""Invocations are spread over a version's isolates, wait in order, and more isolates start for them."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from tenantry_runtime.workers.engine.roster import Roster
from tenantry_runtime.workers.interface import WorkerFailed
from tenantry_runtime.workers.outcome import Outcome


@dataclass(eq=False)
class Seats:
    """An isolate, as a roster sees it."""

    num_taken: int = 0
    is_leaving: bool = False
    is_saturated: bool = False
    is_held_up: bool = False


def a_roster(
    *, places_each: int = 2, max_hosts: int = 4, queue_length: int = 10, is_single_use: bool = False
) -> Roster[Seats]:
    return Roster(
        places_each=places_each,
        max_hosts=max_hosts,
        queue_length=queue_length,
        is_single_use=is_single_use,
    )


def started(roster: Roster[Seats]) -> Seats:
    host = Seats()
    roster.starting()
    roster.started(host)
    return host


def test_an_invocation_goes_where_the_fewest_are() -> None:
    roster = a_roster(places_each=3)
    first, second = started(roster), started(roster)
    first.num_taken = 2
    second.num_taken = 1
    assert roster.place() is second
    assert second.num_taken == 2


def test_there_is_no_place_in_isolates_that_are_full_or_leave() -> None:
    roster = a_roster(places_each=1)
    started(roster).num_taken = 1
    started(roster).is_leaving = True
    assert roster.place() is None


def test_those_that_wait_get_places_in_the_order_in_which_they_came() -> None:
    roster = a_roster(places_each=1)
    told: list[str] = []
    first = roster.wait(lambda: told.append("first"))
    second = roster.wait(lambda: told.append("second"))
    host = started(roster)
    assert told == ["first"]
    assert first.host is host
    roster.give_back(host)
    assert told == ["first", "second"]
    assert second.host is host


def test_whoever_comes_last_does_not_overtake_those_that_wait() -> None:
    roster = a_roster(places_each=1)
    host = started(roster)
    assert roster.place() is host
    roster.wait(lambda: None)
    host.num_taken = 0
    assert roster.place() is None


def test_a_place_granted_to_one_that_gave_up_goes_to_the_next() -> None:
    roster = a_roster(places_each=1)
    first = roster.wait(lambda: None)
    second = roster.wait(lambda: None)
    host = started(roster)
    roster.give_up(first)
    assert second.host is host
    assert host.num_taken == 1


def test_one_that_gave_up_before_is_passed_over() -> None:
    roster = a_roster()
    waiter = roster.wait(lambda: None)
    roster.give_up(waiter)
    host = started(roster)
    assert (waiter.host, host.num_taken, roster.num_waiting) == (None, 0, 0)


def test_too_many_do_not_wait() -> None:
    roster = a_roster(queue_length=1)
    roster.wait(lambda: None)
    with pytest.raises(WorkerFailed) as raised:
        roster.wait(lambda: None)
    assert raised.value.outcome is Outcome.OVERLOADED


def test_as_many_isolates_start_as_those_that_wait_need() -> None:
    roster = a_roster(places_each=2, max_hosts=4)
    for _ in range(5):
        roster.wait(lambda: None)
    assert roster.num_wanted() == 3
    roster.starting()
    assert roster.num_wanted() == 2


def test_no_more_start_than_a_version_may_have() -> None:
    roster = a_roster(places_each=1, max_hosts=2)
    started(roster)
    for _ in range(5):
        roster.wait(lambda: None)
    roster.starting()
    assert roster.num_wanted() == 0


def test_another_starts_when_all_are_short_of_cpu() -> None:
    roster = a_roster()
    first, second = started(roster), started(roster)
    first.is_saturated = True
    assert roster.num_wanted() == 0
    second.is_saturated = True
    assert roster.num_wanted() == 1
    roster.starting()
    assert roster.num_wanted() == 0


def test_one_that_leaves_is_replaced_before_it_has_ended() -> None:
    roster = a_roster(places_each=1, max_hosts=1)
    host = started(roster)
    assert roster.place() is host
    roster.wait(lambda: None)
    assert roster.num_wanted() == 0
    host.is_leaving = True
    assert roster.num_wanted() == 1


def test_one_that_is_held_up_takes_none_until_it_reads_again_and_counts() -> None:
    roster = a_roster(places_each=2, max_hosts=2)
    held_up = started(roster)
    held_up.is_held_up = True
    waiter = roster.wait(lambda: None)
    assert roster.num_wanted() == 1
    other = Seats(is_held_up=True)
    roster.starting()
    roster.started(other)
    assert (waiter.host, roster.num_wanted()) == (None, 0)
    held_up.is_held_up = False
    roster.grant()
    assert waiter.host is held_up


def test_isolates_for_a_single_use_count_until_they_have_ended() -> None:
    roster = a_roster(places_each=1, max_hosts=1, is_single_use=True)
    host = started(roster)
    host.is_leaving = True
    roster.wait(lambda: None)
    assert roster.num_wanted() == 0
    roster.remove(host)
    assert roster.num_wanted() == 1


def test_a_start_that_fails_is_told_to_all_that_wait_for_it() -> None:
    roster = a_roster()
    waiter = roster.wait(lambda: None)
    failure = WorkerFailed(Outcome.LOAD_FAILED, "no")
    roster.starting()
    roster.not_started(failure)
    assert waiter.failure is failure
    assert roster.is_empty


def test_a_start_that_fails_beside_an_isolate_that_serves_is_told_to_nobody() -> None:
    roster = a_roster(places_each=1)
    host = started(roster)
    assert roster.place() is host
    waiter = roster.wait(lambda: None)
    roster.starting()
    roster.not_started(WorkerFailed(Outcome.LOAD_FAILED, "no"))
    assert waiter.failure is None
    roster.give_back(host)
    assert waiter.host is host
