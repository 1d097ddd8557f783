from __future__ import annotations

import random

from tenantry_runtime.routing.breaker import FIRST_PAUSE_S, LAST_PAUSE_S, MAX_FAILURES, Breaker

TENANT = "tenant"


def an_open_breaker() -> Breaker:
    breaker = Breaker()
    for _ in range(MAX_FAILURES + 1):
        breaker.fail(0.0, TENANT, is_trial=breaker.begin())
    assert breaker.is_open
    return breaker


def test_a_few_failures_among_successes_change_nothing() -> None:
    breaker = Breaker()
    for number in range(320):
        is_trial = breaker.begin()
        assert not is_trial
        if number % 11 == 0:
            breaker.fail(0.0, TENANT, is_trial=is_trial)
        else:
            breaker.succeed(TENANT, is_trial=is_trial)

    assert breaker.admits(0.0)


def test_a_member_that_fails_a_fifth_is_shut_out_soon() -> None:
    draw = random.Random(0)
    num_placed = []
    for _ in range(100):
        breaker = Breaker()
        num_placed.append(0)
        while breaker.admits(0.0):
            num_placed[-1] += 1
            if draw.random() < 0.2:
                breaker.fail(0.0, TENANT, is_trial=breaker.begin())
            else:
                breaker.succeed(TENANT, is_trial=breaker.begin())

    # the fourth failure is the 20th request on average
    assert sorted(num_placed)[50] < 25
    assert max(num_placed) < 100


def test_one_trial_after_the_pause_decides() -> None:
    breaker = an_open_breaker()
    assert not breaker.admits(FIRST_PAUSE_S - 0.1)
    assert breaker.admits(FIRST_PAUSE_S)

    is_trial = breaker.begin()

    assert is_trial
    assert not breaker.admits(FIRST_PAUSE_S)
    breaker.succeed(TENANT, is_trial=is_trial)
    assert not breaker.is_open
    assert breaker.admits(FIRST_PAUSE_S)


def test_each_failed_trial_doubles_the_pause_up_to_a_bound() -> None:
    breaker = an_open_breaker()
    now_s, pause_s = 0.0, FIRST_PAUSE_S
    for _ in range(10):
        assert not breaker.admits(now_s + pause_s - 0.1)
        now_s += pause_s
        assert breaker.admits(now_s)
        breaker.fail(now_s, TENANT, is_trial=breaker.begin())
        pause_s = min(2 * pause_s, LAST_PAUSE_S)


def test_a_trial_that_says_nothing_is_followed_by_another() -> None:
    breaker = an_open_breaker()

    breaker.abandon(is_trial=breaker.begin())

    assert breaker.is_open
    assert breaker.admits(FIRST_PAUSE_S)


def test_what_was_placed_before_it_opened_does_not_close_it() -> None:
    breaker = an_open_breaker()

    breaker.succeed(TENANT, is_trial=False)
    breaker.fail(100.0, TENANT, is_trial=False)

    assert breaker.is_open
    assert breaker.admits(FIRST_PAUSE_S)


def test_a_tenants_bad_requests_keep_nobody_else_from_a_member() -> None:
    breaker = Breaker()
    for _ in range(100):
        breaker.succeed("another", is_trial=breaker.begin())
        breaker.fail(0.0, TENANT, is_trial=breaker.begin())
    assert breaker.admits(0.0)

    breaker.fail(0.0, "a third", is_trial=breaker.begin())

    assert not breaker.admits(0.0)


def test_a_bad_peer_is_not_taken_for_a_bad_member() -> None:
    member, bad_peer = Breaker(), Breaker()
    for number in range(40):
        member.fail(0.0, TENANT, is_trial=False, suspect_with="bad peer")
        bad_peer.succeed(TENANT, is_trial=False)
        bad_peer.fail(0.0, TENANT, is_trial=False, suspect_with=("member", number % 3))

    assert member.admits(0.0)
    assert not bad_peer.admits(0.0)


def test_what_a_member_fails_by_itself_counts_whatever_its_handoffs_do() -> None:
    breaker = Breaker()
    for _ in range(MAX_FAILURES + 1):
        breaker.fail(0.0, TENANT, is_trial=False, suspect_with="peer")
        assert breaker.admits(0.0)
        breaker.fail(0.0, TENANT, is_trial=False)

    assert not breaker.admits(0.0)
