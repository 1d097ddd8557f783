"""The scheduler's promises: work goes on, nobody starves, pages are never promised twice."""

from __future__ import annotations

import subprocess
import sys

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from support.scheduling import TOKEN, Desk
from tenantry_runtime.core import PAGE_TOKENS
from tenantry_runtime.engine.plan import StepPlan, StepResult
from tenantry_runtime.engine.sequence import Finished, Prefilling, Running, Waiting
from tenantry_runtime.errors import CapacityExceeded
from tenantry_runtime.pool.messages import Failed

LENGTHS = st.integers(1, 200) | st.sampled_from([63, 64, 65, 127, 128, 129])


class SchedulerMachine(RuleBasedStateMachine):
    """Any order of arrivals, cancels and turns; `Desk` checks every turn."""

    @initialize(chunk_tokens=st.sampled_from([16, 32, 300]), runs_ahead=st.booleans())
    def open(self, chunk_tokens: int, runs_ahead: bool) -> None:
        # 5 pages are what the longest sequence here needs alone: others are often in its way
        self.desk = Desk(num_pages=5, max_batch=4, chunk_tokens=chunk_tokens, runs_ahead=runs_ahead)

    @rule(
        num_prompt=LENGTHS,
        max_tokens=st.integers(1, 120),
        tenant=st.sampled_from(["acme", "globex", "initech"]),
    )
    def add(self, num_prompt: int, max_tokens: int, tenant: str) -> None:
        request_id = f"r{len(self.desk.sequences)}"
        self.desk.add(request_id, num_prompt=num_prompt, max_tokens=max_tokens, tenant=tenant)

    @rule(which=st.integers(0, 1000))
    def cancel(self, which: int) -> None:
        if live := sorted(self.desk.live):
            assert self.desk.scheduler.cancel(live[which % len(live)])

    @rule(num_turns=st.integers(1, 40))
    def turn(self, num_turns: int) -> None:
        for _ in range(num_turns):
            self.desk.turn()

    @invariant()
    def books_are_in_order(self) -> None:
        self.desk.check_books()

    def teardown(self) -> None:
        self.desk.run_to_end(max_turns=20_000)


TestSchedulerUnderAnySchedule = SchedulerMachine.TestCase


def planned(desk: Desk) -> list[list[str]]:
    """Return the request ids in each plan of the last turn."""
    return [[entry.sequence.request_id for entry in plan.entries] for plan in desk.last_plans]


def finish(desk: Desk, plan: StepPlan) -> None:
    tokens_S = tuple(TOKEN if entry.wants_token else None for entry in plan.entries)
    result = StepResult(tokens_S=tokens_S, ok_S=(True,) * len(tokens_S))
    assert desk.scheduler.commit(plan, result, 2.0) == []


def test_the_scheduler_needs_no_torch_no_event_loop_and_no_network() -> None:
    script = (
        "import sys, tenantry_runtime.engine.scheduler\n"
        "print(*sorted({'torch', 'anyio', 'grpc', 'numpy'} & set(sys.modules)))"
    )
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert run.stdout.split() == []


def test_a_long_prompt_is_cut_at_multiples_of_the_chunk() -> None:
    desk = Desk(chunk_tokens=32)
    desk.add("long", num_prompt=70, max_tokens=2)
    spans = []
    while isinstance(desk.sequences["long"].state, Waiting | Prefilling):
        desk.turn()
        (entry,) = desk.last_plans[0].entries
        spans.append((entry.start, len(entry.token_ids)))
    assert spans == [(0, 32), (32, 32), (64, 6)]


def test_short_prompts_share_a_chunk() -> None:
    desk = Desk(chunk_tokens=32)
    for name in ("a", "b", "c", "d"):
        desk.add(name, num_prompt=10)
    desk.turn()
    assert planned(desk) == [["a", "b", "c"]]


def test_a_running_sequence_gets_a_token_in_every_turn_of_a_long_prefill() -> None:
    desk = Desk(chunk_tokens=32)
    desk.add("quick", num_prompt=3, max_tokens=50)
    desk.turn()
    desk.add("long", num_prompt=320)
    for num_told in range(2, 12):
        desk.turn()
        assert planned(desk) == [["quick"], ["long"]]
        assert desk.num_tokens_told["quick"] == num_told


def test_a_tenant_is_served_in_order_of_arrival() -> None:
    desk = Desk(chunk_tokens=32, max_batch=1)
    for name in ("first", "second", "third"):
        desk.add(name, num_prompt=20, max_tokens=2)
    desk.run_to_end()
    assert desk.finished == ["first", "second", "third"]


def test_the_tenant_that_was_given_least_is_served_first() -> None:
    desk = Desk(chunk_tokens=32, max_batch=1)
    for turn in range(3):
        desk.add(f"greedy-{turn}", num_prompt=30, max_tokens=1, tenant="greedy")
    desk.add("modest", num_prompt=5, max_tokens=1, tenant="modest")
    desk.run_to_end()
    assert desk.finished == ["greedy-0", "modest", "greedy-1", "greedy-2"]


def test_a_long_prompt_of_one_tenant_does_not_hold_up_another() -> None:
    desk = Desk(chunk_tokens=32)
    desk.add("long", num_prompt=640, tenant="acme")
    desk.turn()
    desk.add("short", num_prompt=5, max_tokens=1, tenant="globex")
    for _ in range(2):
        desk.turn()
    assert desk.finished == ["short"]


def test_a_tenant_that_comes_back_has_no_credit_for_its_absence() -> None:
    desk = Desk(chunk_tokens=32, max_batch=1)
    for turn in range(40):
        desk.add(f"old-{turn}", num_prompt=32, max_tokens=1, tenant="old")
    for _ in range(20):
        desk.turn()
    for turn in range(20):
        desk.add(f"new-{turn}", num_prompt=32, max_tokens=1, tenant="new")
    for _ in range(20):
        desk.turn()
    assert 8 <= sum(name.startswith("old") for name in desk.finished[20:]) <= 12


def test_what_a_tenant_was_given_while_it_was_alone_is_not_held_against_it() -> None:
    desk = Desk(chunk_tokens=32, max_batch=1)
    desk.add("early", num_prompt=320, max_tokens=1, tenant="acme")
    desk.run_to_end()
    for turn in range(4):
        desk.add(f"other-{turn}", num_prompt=32, max_tokens=1, tenant="globex")
    desk.turn()
    desk.add("late", num_prompt=32, max_tokens=1, tenant="acme")
    desk.run_to_end()
    assert desk.finished == ["early", "other-0", "other-1", "late", "other-2", "other-3"]


def test_a_big_prompt_is_not_overtaken_for_ever_by_small_ones() -> None:
    desk = Desk(num_pages=8, max_batch=8, chunk_tokens=32)
    for turn in range(6):
        desk.add(f"early-{turn}", num_prompt=60, max_tokens=20, tenant="crowd")
    for _ in range(12):
        desk.turn()
    desk.add("big", num_prompt=6 * PAGE_TOKENS, max_tokens=1, tenant="patient")
    turns = 0
    while "big" not in desk.finished:
        desk.add(f"late-{turns}", num_prompt=60, max_tokens=20, tenant=f"crowd-{turns % 3}")
        desk.turn()
        turns += 1
        assert turns < 200


def test_a_sequence_is_admitted_only_with_room_to_grow() -> None:
    desk = Desk(num_pages=4, chunk_tokens=256)
    desk.add("first", num_prompt=2 * PAGE_TOKENS, max_tokens=100)
    desk.turn()
    # 2 pages are free; it needs 1, and each of the two may need one more
    desk.add("second", num_prompt=PAGE_TOKENS, max_tokens=100)
    desk.turn()
    assert planned(desk) == [["first"]]
    assert isinstance(desk.sequences["second"].state, Waiting)
    desk.run_to_end()
    assert desk.scheduler.statistics().num_preemptions == 0


def test_when_pages_run_out_the_youngest_gives_way_and_comes_back_with_what_it_had_said() -> None:
    desk = Desk(num_pages=7, chunk_tokens=256)
    for name in ("old", "middle", "young"):
        desk.add(name, num_prompt=60, max_tokens=3 * PAGE_TOKENS)
    desk.turn()
    while not desk.scheduler.statistics().num_preemptions:
        desk.turn()
    young = desk.sequences["young"]
    assert isinstance(desk.sequences["old"].state, Running)
    assert isinstance(desk.sequences["middle"].state, Running)
    assert isinstance(young.state, Waiting)
    assert len(young.tokens) == young.num_prompt + desk.num_tokens_told["young"] > 120
    desk.run_to_end()
    assert desk.finished == ["old", "middle", "young"]
    assert desk.num_tokens_told["young"] == 3 * PAGE_TOKENS


def test_a_preempted_sequence_is_ahead_of_its_tenants_later_ones() -> None:
    desk = Desk(num_pages=4, chunk_tokens=256, max_batch=2)
    desk.add("old", num_prompt=60, max_tokens=3 * PAGE_TOKENS)
    desk.add("young", num_prompt=60, max_tokens=3 * PAGE_TOKENS)
    desk.add("later", num_prompt=10, max_tokens=1)
    while not desk.scheduler.statistics().num_preemptions:
        desk.turn()
    while not any(plan.phase == "prefill" for plan in desk.last_plans):
        desk.turn()
    assert planned(desk)[-1][0] == "young"
    desk.run_to_end()


def test_a_sequence_that_is_preempted_amid_its_prompt_starts_it_again() -> None:
    desk = Desk(num_pages=5, chunk_tokens=1)
    desk.add("old", num_prompt=2, max_tokens=4 * PAGE_TOKENS)
    desk.turn()
    desk.add("young", num_prompt=3 * PAGE_TOKENS - 5, max_tokens=5)
    young = desk.sequences["young"]
    while not desk.scheduler.statistics().num_preemptions:
        desk.turn()
        assert isinstance(young.state, Prefilling | Waiting)
    desk.run_to_end()
    desk.add("next", num_prompt=2, max_tokens=2)
    desk.run_to_end()
    assert desk.finished == ["old", "young", "next"]


def test_a_full_queue_refuses() -> None:
    desk = Desk(max_waiting=2)
    desk.add("a", num_prompt=5)
    desk.add("b", num_prompt=5)
    with pytest.raises(CapacityExceeded):
        desk.add("c", num_prompt=5)
    desk.run_to_end()
    assert desk.finished == ["a", "b"]


@pytest.mark.parametrize("state", [Waiting, Prefilling, Running])
def test_a_cancel_releases_everything(state: type) -> None:
    desk = Desk(chunk_tokens=32)
    desk.add("r", num_prompt=70, max_tokens=100)
    while not isinstance(desk.sequences["r"].state, state):
        desk.turn()
    assert desk.scheduler.cancel("r")
    desk.check_nothing_is_held()
    assert not desk.scheduler.cancel("r")
    assert desk.scheduler.plan("decode", 1.0) is desk.scheduler.plan("prefill", 1.0) is None


@pytest.mark.parametrize("num_turns", [0, 1, 2, 3], ids=["chunk", "chunk-2", "last", "decode"])
def test_pages_of_a_cancel_during_a_step_are_free_only_after_it(num_turns: int) -> None:
    desk = Desk(chunk_tokens=32)
    desk.add("r", num_prompt=70, max_tokens=100)
    for _ in range(num_turns):
        desk.turn()
    plan = desk.scheduler.plan("prefill" if num_turns < 3 else "decode", 1.0)
    assert plan is not None
    desk.scheduler.cancel("r")
    assert desk.pool.num_free < desk.num_pages
    finish(desk, plan)
    desk.check_nothing_is_held()


def test_pages_of_a_sequence_that_ends_are_not_reused_while_a_later_step_runs() -> None:
    desk = Desk(chunk_tokens=32)
    desk.add("short", num_prompt=5, max_tokens=2)
    desk.turn()
    desk.add("other", num_prompt=5)
    decode, prefill = desk.scheduler.plan("decode", 1.0), desk.scheduler.plan("prefill", 1.0)
    assert decode is not None and prefill is not None
    desk.commit(decode)
    assert desk.pool.statistics().num_quiescing == 1
    desk.commit(prefill)
    assert desk.pool.statistics().num_quiescing == 0


def test_a_step_that_fails_ends_its_sequences_and_no_others() -> None:
    desk = Desk(chunk_tokens=32)
    desk.add("running", num_prompt=5, max_tokens=50)
    desk.turn()
    desk.add("new", num_prompt=5)
    decode, prefill = desk.scheduler.plan("decode", 1.0), desk.scheduler.plan("prefill", 1.0)
    assert decode is not None and prefill is not None
    failed = desk.scheduler.fail(decode, "it broke")
    assert failed == [Failed(request_id="running", reason="internal", message="it broke")]
    desk.commit(prefill)
    desk.check_books()
    desk.run_to_end()
    assert desk.finished == ["new"]


def test_a_sequence_whose_pages_were_not_its_own_fails_alone() -> None:
    desk = Desk(chunk_tokens=32)
    for name in ("good", "bad"):
        desk.add(name, num_prompt=5)
    plan = desk.scheduler.plan("prefill", 1.0)
    assert plan is not None
    result = StepResult(tokens_S=(TOKEN, TOKEN), ok_S=(True, False))
    _, failed = desk.scheduler.commit(plan, result, 2.0)
    assert isinstance(failed, Failed)
    assert (failed.request_id, failed.reason) == ("bad", "cache_integrity")
    assert isinstance(desk.sequences["bad"].state, Finished)
    desk.check_books()
