from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from enum import Enum

import pytest

from tenantry_runtime.telemetry.post import Post, PostLimits, close_all

PATIENCE_S = 30.0

SMALL = PostLimits(max_waiting=10, max_batch=4, delay_s=0.01)


class Result(Enum):
    SUCCESS = 0
    FAILURE = 1


class Blocked:
    """An exporter that stays in its first batch until it is let go."""

    def __init__(self) -> None:
        self.is_in = threading.Event()
        self.may_go = threading.Event()
        self.sent: list[int] = []

    def export(self, batch: Sequence[int], /) -> Result:
        self.is_in.set()
        self.may_go.wait(PATIENCE_S)
        self.sent += batch
        return Result.SUCCESS

    def shutdown(self) -> None:
        pass


class Failing:
    def __init__(self, how: Result | Exception) -> None:
        self._how = how

    def export(self, batch: Sequence[int], /) -> Result:
        if isinstance(self._how, Exception):
            raise self._how
        return self._how

    def shutdown(self) -> None:
        pass


def test_who_makes_telemetry_never_waits_and_the_queue_has_a_bound() -> None:
    exporter = Blocked()
    post = Post[int](exporter, name="test", limits=SMALL)
    post.take(0)
    exporter.is_in.wait(PATIENCE_S)
    # were any of these to wait, nobody would let the exporter go
    for number in range(1000):
        post.take(number)
    statistics = post.statistics()
    assert (statistics.num_waiting, statistics.num_dropped) == (10, 990)
    exporter.may_go.set()
    close_all([post], PATIENCE_S)
    assert exporter.sent == [0, *range(10)]


def test_one_that_hangs_costs_the_others_nothing() -> None:
    hanging, well = Blocked(), Blocked()
    well.may_go.set()
    posts = [Post[int](each, name="test", limits=SMALL) for each in (hanging, well)]
    for post in posts:
        post.take(1)
    hanging.is_in.wait(PATIENCE_S)
    started_s = time.monotonic()
    close_all(posts, 0.2)
    assert time.monotonic() - started_s < 5
    assert well.sent == [1]
    assert hanging.sent == []
    hanging.may_go.set()


@pytest.mark.parametrize("how", [Result.FAILURE, RuntimeError("out of luck")], ids=str)
def test_what_does_not_arrive_is_counted_and_given_up(how: Result | Exception) -> None:
    post = Post[int](Failing(how), name="test", limits=SMALL)
    for number in range(3):
        post.take(number)
    close_all([post], PATIENCE_S)
    statistics = post.statistics()
    assert (statistics.num_lost, statistics.num_sent, statistics.num_waiting) == (3, 0, 0)


def test_what_is_sent_is_made_where_it_is_sent() -> None:
    exporter = Blocked()
    exporter.may_go.set()
    threads: list[str] = []

    def prepare(number: int) -> int:
        threads.append(threading.current_thread().name)
        return number * 10

    post = Post[int](exporter, name="elsewhere", limits=SMALL, prepare=prepare)
    post.take(7)
    close_all([post], PATIENCE_S)
    assert exporter.sent == [70]
    assert threads == ["post-elsewhere"]
