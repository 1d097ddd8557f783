"""The arithmetic of a rate, against a bucket that is kept with fractions and all of its history."""

from __future__ import annotations

from fractions import Fraction
from typing import NamedTuple

from hypothesis import given, strategies as st

from tenantry_runtime.tenancy.limits.rates import (
    WINDOW_US,
    Level,
    Reservation,
    cost_us,
    num_free,
    reserve,
    settle,
    take,
    wait_us,
)

SECOND_US = 1_000_000
MINUTE_US = 60 * SECOND_US

START_US = 1_700_000_000_000_000

# 7 does not divide a minute of microseconds, 300 does
LIMITS = st.sampled_from([1, 2, 7, 60, 300, 1_000, 99_991, 10_000_000])


class Bucket:
    """Units missing from a bucket into which a limit flows per minute: what is being tested, in other words."""

    def __init__(self, per_minute: int) -> None:
        self.per_minute = per_minute
        self.missing = Fraction(0)
        self._seen_us = START_US

    def at(self, now_us: int) -> Fraction:
        flowed = Fraction((now_us - self._seen_us) * self.per_minute, MINUTE_US)
        self.missing = max(Fraction(0), self.missing - flowed)
        self._seen_us = now_us
        return self.missing


@given(LIMITS, st.lists(st.tuples(st.integers(0, 90_000_000), st.integers(1, 50)), max_size=60))
def test_it_admits_what_a_bucket_has(per_minute: int, asked: list[tuple[int, int]]) -> None:
    bucket, level, now_us = Bucket(per_minute), Level(), START_US
    num_admitted = 0
    for gap_us, num_units in asked:
        now_us += gap_us
        num_units = min(num_units, per_minute)
        cost = cost_us(num_units, per_minute)
        # a microsecond of each admission may have been rounded away
        slack = Fraction((num_admitted + 1) * per_minute, MINUTE_US)
        is_there = bucket.at(now_us) + num_units <= per_minute
        is_admitted = not wait_us(level, cost, now_us)
        if is_there:
            assert is_admitted
        if is_admitted:
            assert bucket.missing + num_units <= per_minute + slack
            level = take(level, cost, now_us)
            bucket.missing += num_units
            num_admitted += 1


@given(LIMITS, st.lists(st.integers(0, 20_000_000), max_size=80))
def test_no_interval_sees_more_than_a_burst_and_what_flows_in(
    per_minute: int, gaps_us: list[int]
) -> None:
    level, now_us = Level(), START_US
    cost = cost_us(1, per_minute)
    admitted_us: list[int] = []
    for gap_us in gaps_us:
        now_us += gap_us
        while len(admitted_us) < 400 and not wait_us(level, cost, now_us):
            level = take(level, cost, now_us)
            admitted_us.append(now_us)
    for first, start_us in enumerate(admitted_us):
        for last in range(first, len(admitted_us)):
            num = last - first + 1
            interval_us = admitted_us[last] - start_us
            assert num * cost <= WINDOW_US + interval_us


@given(LIMITS, st.integers(0, 10**9))
def test_a_whole_limit_is_there_at_once_and_not_one_more(per_minute: int, idle_us: int) -> None:
    level, now_us = Level(START_US), START_US + idle_us
    num = min(per_minute, 500)
    rest = cost_us(per_minute - num, per_minute)
    level = take(level, rest, now_us)
    for _ in range(num):
        assert not wait_us(level, cost_us(1, per_minute), now_us)
        level = take(level, cost_us(1, per_minute), now_us)
    if per_minute < 100_000:
        # of larger limits, the rounding of single units leaves a few
        assert wait_us(level, cost_us(1, per_minute), now_us) > 0


@given(LIMITS, st.integers(1, 1_000), st.integers(0, 120_000_000))
def test_a_wait_is_exact(per_minute: int, num_units: int, ahead_us: int) -> None:
    level = Level(START_US + ahead_us)
    cost = cost_us(min(num_units, per_minute), per_minute)
    wait = wait_us(level, cost, START_US)
    assert not wait_us(level, cost, START_US + wait)
    if wait:
        assert wait_us(level, cost, START_US + wait - 1)


@given(LIMITS, st.integers(0, 60_000_000))
def test_the_number_that_is_there_is_the_most_that_can_be_taken(
    per_minute: int, ahead_us: int
) -> None:
    level = Level(START_US + ahead_us)
    num = num_free(level, per_minute, START_US)
    assert 0 <= num <= per_minute
    assert not num or not wait_us(level, cost_us(num, per_minute), START_US)
    if num < per_minute:
        assert wait_us(level, cost_us(num + 1, per_minute), START_US)


class Ask(NamedTuple):
    """In seconds, and in units of which one a second flows in."""

    gap: int
    reserved: int
    used: int
    lasts: int


ASKS = st.lists(
    st.builds(
        Ask,
        gap=st.sampled_from([0, 0, 1, 5, 20]),
        reserved=st.integers(1, 30),
        used=st.sampled_from([0, 1, 1, 10, 30]),
        lasts=st.integers(0, 50),
    ),
    min_size=4,
    max_size=20,
)


@given(ASKS)
def test_what_is_given_back_is_never_somebody_elses(asks: list[Ask]) -> None:
    """Against a bucket that knew at the beginning what each request would come to."""
    bucket, level, now_s = Bucket(60), Level(), START_US // SECOND_US
    running: list[tuple[int, int, Reservation, int]] = []
    for number, ask in enumerate(asks):
        now_s += ask.gap
        level = _settled(level, running, now_s, bucket)
        cost = cost_us(ask.reserved, 60)
        if wait_us(level, cost, now_s * SECOND_US):
            continue
        level, reservation = reserve(level, cost, now_s * SECOND_US)
        used = min(ask.used, ask.reserved)
        running.append((now_s + ask.lasts, number, reservation, used))
        bucket.at(now_s * SECOND_US)
        bucket.missing += used
        assert bucket.missing <= 60
    _settled(level, running, now_s + 100, bucket)
    assert not running


def _settled(
    level: Level, running: list[tuple[int, int, Reservation, int]], now_s: int, bucket: Bucket
) -> Level:
    for ended in sorted(each for each in running if each[0] <= now_s):
        running.remove(ended)
        end_s, _, reservation, used = ended
        level = settle(level, reservation, cost_us(used, 60), end_s * SECOND_US)
        assert max(0, level.full_us - end_s * SECOND_US) >= bucket.at(end_s * SECOND_US) * SECOND_US
    return level


@given(LIMITS, st.lists(st.tuples(st.integers(1, 500), st.integers(0, 500)), max_size=30))
def test_what_ends_at_once_counts_as_what_it_used(
    per_minute: int, asks: list[tuple[int, int]]
) -> None:
    level, used_us = Level(), 0
    for reserved, used in asks:
        cost, used_cost = (cost_us(min(num, per_minute), per_minute) for num in (reserved, used))
        level, reservation = reserve(level, cost, START_US)
        level = settle(level, reservation, used_cost, START_US)
        used_us += used_cost
    assert max(level.full_us, START_US) == START_US + used_us


def test_a_request_that_used_more_delays_the_next_ones() -> None:
    level, reservation = reserve(Level(), cost_us(100, 100), START_US)
    level = settle(level, reservation, cost_us(250, 100), START_US)

    # 250 of 100 a minute: two and a half minutes until all is there, so one and a half until any is
    assert wait_us(level, cost_us(1, 100), START_US) == 90_600_000


def test_what_came_back_by_itself_is_not_given_back() -> None:
    level, reservation = reserve(Level(), cost_us(50, 100), START_US)
    later_us = START_US + 30_000_000
    level, _ = reserve(level, cost_us(100, 100), later_us)

    assert num_free(settle(level, reservation, 0, later_us), 100, later_us) == 0


def test_a_turn_comes_earlier_by_what_those_before_it_gave_back() -> None:
    # 60 a minute: one a second
    def at(second: int) -> int:
        return START_US + second * SECOND_US

    level, first = reserve(Level(), cost_us(30, 60), at(0))
    level, second = reserve(level, cost_us(30, 60), at(0))
    level = settle(level, first, cost_us(10, 60), at(10))
    level, _ = reserve(level, cost_us(20, 60), at(39))

    # all of the second has come back by 40, so that what is still missing is the third's
    level = settle(level, second, cost_us(20, 60), at(45))

    assert level.full_us == at(60)
