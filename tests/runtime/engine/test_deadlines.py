"""Sequences that are to have their first token by some time."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given, strategies as st
from msgspec.structs import replace

from support.engine import (
    Transcript,
    a_submit,
    an_engine,
    assert_nothing_is_held,
    expected_answer,
    run_to_end,
)
from support.pools import assert_nothing_is_left
from tenantry_runtime.engine.deadlines import Deadlines
from tenantry_runtime.engine.loop import EngineLoop
from tenantry_runtime.pool.messages import Failed, Part, Submit

LATE = "it had no token in the time that its client would wait"


@dataclass
class Clock:
    now_s: float = 1000.0

    def __call__(self) -> float:
        return self.now_s


def within(ms: int, submit: Submit) -> Submit:
    return replace(submit, first_token_within_ms=ms)


def late(request_id: str) -> Failed:
    return Failed(request_id=request_id, reason="deadline", message=LATE)


def turns_until_late(loop: EngineLoop, clock: Clock, request_id: str, step_s: float) -> int:
    """Turn, a step each `step_s`, until the sequence is told to be late; return how often."""
    for num_turns in range(1, 100):
        clock.now_s += step_s
        if late(request_id) in loop.turn():
            return num_turns
    raise AssertionError("never")


def test_a_sequence_that_waits_too_long_for_its_turn_fails_in_the_step_after() -> None:
    clock = Clock()
    loop = an_engine(max_batch=1, clock_s=clock)
    loop.submit(a_submit("long", max_tokens=50, stop_token_ids=()))
    loop.turn()
    loop.submit(within(100, a_submit("waits")))

    assert turns_until_late(loop, clock, "waits", step_s=0.0251) == 4
    assert loop.statistics().num_waiting == 0
    transcript = run_to_end(loop)
    assert "long" in transcript.finished and "waits" not in transcript.tokens
    assert_nothing_is_held(loop)


def test_a_prompt_that_is_not_computed_in_time_gives_its_pages_back() -> None:
    clock = Clock()
    loop = an_engine(chunk_tokens=32, clock_s=clock)
    loop.submit(within(100, a_submit("slow", prompt=[3] * 320)))

    assert turns_until_late(loop, clock, "slow", step_s=0.04) == 3
    run_to_end(loop)
    assert_nothing_is_held(loop)


def test_who_has_the_first_token_in_time_may_take_any_time_for_the_rest() -> None:
    clock = Clock()
    loop = an_engine(clock_s=clock)
    submit = within(100, a_submit("r", max_tokens=20, stop_token_ids=()))
    loop.submit(submit)
    transcript = Transcript()
    while not loop.is_idle:
        clock.now_s += 0.09
        transcript.read(loop.turn())

    assert transcript.tokens["r"] == expected_answer(submit)
    assert not transcript.failed


def test_a_first_token_of_the_step_in_which_the_time_ends_is_in_time() -> None:
    clock = Clock()
    loop = an_engine(clock_s=clock)
    loop.submit(within(100, a_submit("r", max_tokens=1)))
    clock.now_s += 0.099
    transcript = Transcript()
    transcript.read(loop.turn())
    clock.now_s += 1
    transcript.read(loop.turn())

    assert "r" in transcript.finished


def test_no_time_at_all_is_a_deadline_too() -> None:
    loop = an_engine(clock_s=Clock())
    loop.submit(within(0, a_submit("r")))

    assert loop.turn() == [late("r")]


def test_a_whole_sequence_in_two_pools_has_one_deadline() -> None:
    clock = Clock()
    loop = an_engine(separate_pools=True, num_pages=8, clock_s=clock)
    # more pages than there are left: its hand-off waits for the first to end
    loop.submit(a_submit("long", prompt=[3] * 300, max_tokens=60, stop_token_ids=()))
    for _ in range(15):
        loop.turn()
    loop.submit(within(100, a_submit("late", prompt=[4] * 200, max_tokens=60)))

    turns_until_late(loop, clock, "late", step_s=0.02)
    transcript = run_to_end(loop)
    assert "long" in transcript.finished
    assert_nothing_is_left(loop)


def test_a_whole_sequence_in_two_pools_that_has_begun_goes_on() -> None:
    clock = Clock()
    loop = an_engine(separate_pools=True, clock_s=clock)
    submit = within(1000, a_submit("r", max_tokens=30, stop_token_ids=()))
    loop.submit(submit)
    transcript = Transcript()
    while not loop.is_idle:
        clock.now_s += 0.1
        transcript.read(loop.turn())

    assert transcript.tokens["r"] == expected_answer(submit)


@pytest.mark.parametrize("part", ["prefill", "decode"])
def test_a_part_whose_other_part_never_comes_ends_with_the_deadline(part: Part) -> None:
    clock = Clock()
    loop = an_engine(separate_pools=True, clock_s=clock)
    loop.submit(replace(within(100, a_submit("r", prompt=[3] * 100)), part=part))

    turns_until_late(loop, clock, "r", step_s=0.01)
    run_to_end(loop)
    assert_nothing_is_left(loop)


def test_the_deadline_of_a_canceled_sequence_does_not_end_a_later_one_of_its_name() -> None:
    clock = Clock()
    loop = an_engine(clock_s=clock)
    loop.submit(within(100, a_submit("r", prompt=[3] * 320)))
    loop.turn()
    loop.cancel("r")
    loop.submit(a_submit("r", max_tokens=3, stop_token_ids=()))
    clock.now_s += 1

    assert "r" in run_to_end(loop).finished


@given(
    st.lists(
        st.tuples(st.sampled_from("abcdef"), st.sampled_from(["add", "drop"]), st.integers(0, 9))
    )
)
def test_what_has_passed_is_told_once_and_nothing_else_is(
    events: list[tuple[str, str, int]],
) -> None:
    deadlines, expected = Deadlines(), dict[str, int]()
    for now, (name, kind, ahead) in enumerate(events):
        if kind == "add":
            deadlines.add(name, now + ahead)
            expected[name] = now + ahead
        else:
            deadlines.drop(name)
            expected.pop(name, None)
        passed = {each for each, due in expected.items() if due <= now}
        assert set(deadlines.take_passed(now)) == passed
        for each in passed:
            del expected[each]
        assert len(deadlines) == len(expected)
