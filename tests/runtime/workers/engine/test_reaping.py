"""Isolates that run nothing end when they have for long, or when there is no room for all."""

from __future__ import annotations

from tenantry_runtime.workers.engine.reaping import TYPICAL_BYTES, IdleIsolates


def some_idle(*, budget_bytes: int = 1 << 40, idle_s: float = 60.0) -> IdleIsolates[str]:
    return IdleIsolates(budget_bytes=budget_bytes, idle_s=idle_s)


def test_the_ones_idle_for_longest_end_when_all_are_larger_than_the_budget() -> None:
    idle = some_idle(budget_bytes=30)
    for name, num_bytes in (("first", 10), ("second", 20), ("third", 15)):
        idle.add(name, now_s=0.0)
        idle.measured(name, num_bytes)
    # 45 bytes: 15 have to go
    assert idle.due(1.0) == ["first", "second"]


def test_one_idle_for_too_long_ends_and_others_stay() -> None:
    idle = some_idle(idle_s=60.0)
    idle.add("old", now_s=0.0)
    idle.add("young", now_s=1.0)
    assert idle.due(60.5) == ["old"]


def test_one_that_has_run_again_is_the_last_to_go() -> None:
    idle = some_idle(budget_bytes=TYPICAL_BYTES)
    idle.add("a", now_s=0.0)
    idle.add("b", now_s=1.0)
    idle.discard("a")
    idle.add("a", now_s=2.0)
    assert idle.oldest() == "b"
    assert idle.due(2.0) == ["b"]


def test_a_measurement_of_one_that_runs_again_counts_for_nothing() -> None:
    idle = some_idle()
    idle.add("a", now_s=0.0)
    assert idle.unmeasured() == ["a"]
    idle.discard("a")
    idle.measured("a", 10**9)
    assert idle.memory_bytes == 0
    idle.add("a", now_s=1.0)
    assert idle.memory_bytes == TYPICAL_BYTES


def test_memory_is_what_was_measured_and_a_guess_for_the_others() -> None:
    idle = some_idle()
    idle.add("a", now_s=0.0)
    idle.add("b", now_s=0.0)
    idle.measured("a", 7)
    idle.measured("a", 9)
    assert idle.memory_bytes == 9 + TYPICAL_BYTES
    idle.discard("b")
    idle.discard("a")
    assert (idle.memory_bytes, len(idle)) == (0, 0)
