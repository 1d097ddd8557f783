"""A tenant's next turn begins with the pages of its last one: same answer, less work, nobody else's."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

import pytest

from support.engine import (
    Transcript,
    a_submit,
    an_engine,
    assert_nothing_is_held,
    expected_answer,
    run_to_end,
)
from support.scheduling import Desk
from tenantry_runtime.core import PAGE_TOKENS
from tenantry_runtime.engine.build import build_loop
from tenantry_runtime.engine.config import ModelSource, NodeConfig
from tenantry_runtime.engine.loop import EngineLoop
from tenantry_runtime.engine.plan import StepResult
from tenantry_runtime.engine.sequence import Waiting
from tenantry_runtime.pool.messages import SequenceTokens, Step, Submit

CHECKPOINTS = Path(str(files("tenantry_runtime"))) / "checkpoints"


def a_prompt(num_tokens: int, first: int = 0) -> list[int]:
    return [(first + 7 * k + k * k) % 23 + 1 for k in range(num_tokens)]


def answered(loop: EngineLoop, submit: Submit) -> tuple[list[int], int]:
    """Return a request's tokens and how many of its prompt were cached, as its first token told."""
    loop.submit(submit)
    transcript, cached = Transcript(), []
    while not loop.is_idle:
        messages = loop.turn()
        transcript.read(messages)
        cached += [
            sequence.cached_tokens
            for message in messages
            if isinstance(message, Step)
            for sequence in message.sequences
        ]
    assert not any(cached[1:]), "only the first token tells"
    return transcript.tokens[submit.request_id], cached[0]


@pytest.mark.parametrize("chunk_tokens", [16, 48, 100, 1000])
@pytest.mark.parametrize(
    ("num_tokens", "num_cached"), [(1, 0), (64, 0), (65, 64), (128, 64), (150, 128), (300, 256)]
)
def test_the_same_prompt_again_computes_only_what_follows_its_full_pages(
    num_tokens: int, num_cached: int, chunk_tokens: int
) -> None:
    loop = an_engine(chunk_tokens=chunk_tokens)
    first = a_submit("first", prompt=a_prompt(num_tokens))
    again = a_submit("again", prompt=a_prompt(num_tokens))

    assert answered(loop, first) == (expected_answer(first), 0)
    assert answered(loop, again) == (expected_answer(again), num_cached)
    assert_nothing_is_held(loop)


def test_a_conversation_goes_on_from_its_last_prompt_and_pays_for_the_answer() -> None:
    """Pages that decode steps wrote are not kept: a cached page always has prefill's numerics."""
    loop = an_engine()
    first = a_submit("first", prompt=a_prompt(130), max_tokens=100, stop_token_ids=())
    answer, _ = answered(loop, first)
    second = a_submit("second", prompt=[*first.token_ids, *answer, *a_prompt(20, 5)])

    assert answered(loop, second) == (expected_answer(second), 2 * PAGE_TOKENS)


def test_another_tenants_equal_prompt_finds_nothing() -> None:
    loop = an_engine()
    answered(loop, a_submit("ours", prompt=a_prompt(200), tenant="acme"))

    theirs = a_submit("theirs", prompt=a_prompt(200), tenant="globex")

    assert answered(loop, theirs) == (expected_answer(theirs), 0)


def test_prompts_that_part_share_what_comes_before() -> None:
    loop = an_engine()
    stem = a_prompt(2 * PAGE_TOKENS)
    answered(loop, a_submit("one", prompt=[*stem, *a_prompt(80, 3)]))

    other = a_submit("other", prompt=[*stem, *a_prompt(80, 4)])

    assert answered(loop, other) == (expected_answer(other), 2 * PAGE_TOKENS)


def test_a_canceled_prompt_leaves_nothing_to_find() -> None:
    loop = an_engine(chunk_tokens=64)
    loop.submit(a_submit("canceled", prompt=a_prompt(200)))
    loop.turn()
    loop.turn()
    loop.cancel("canceled")

    assert answered(loop, a_submit("again", prompt=a_prompt(200)))[1] == 0


def test_after_a_mismatch_the_tenant_starts_afresh() -> None:
    desk = Desk()
    desk.add("good", num_prompt=100, max_tokens=1)
    desk.run_to_end()
    desk.add("bad", num_prompt=100, max_tokens=9)
    plan = desk.scheduler.plan("prefill", 1.0)
    assert plan is not None
    (entry,) = plan.entries
    assert entry.start == PAGE_TOKENS
    desk.scheduler.commit(plan, StepResult(tokens_S=(9,), ok_S=(False,)), 2.0)

    assert desk.prefixes.trees == ()
    desk.add("next", num_prompt=100)
    plan = desk.scheduler.plan("prefill", 1.0)
    assert plan is not None
    assert plan.entries[0].start == 0


def test_kept_pages_give_way_before_anyone_is_preempted() -> None:
    desk = Desk(num_pages=6)
    for n in range(3):
        desk.add(f"past {n}", num_prompt=2 * PAGE_TOKENS, max_tokens=1, tenant=f"tenant {n}")
        desk.run_to_end()
    assert desk.pool.num_free == 0

    desk.add("large", num_prompt=3 * PAGE_TOKENS, max_tokens=3 * PAGE_TOKENS, tenant="other")
    desk.run_to_end()

    assert "large" in desk.finished
    assert desk.scheduler.statistics().num_preemptions == 0


def test_kept_pages_stay_where_they_would_not_be_enough() -> None:
    desk = Desk(num_pages=6)
    desk.add("past", num_prompt=2 * PAGE_TOKENS, max_tokens=1, tenant="patient")
    desk.run_to_end()
    desk.add("busy", num_prompt=3 * PAGE_TOKENS, max_tokens=30, tenant="other")
    while "busy" not in desk.num_tokens_told or not desk.num_tokens_told["busy"]:
        desk.turn()

    desk.add("large", num_prompt=4 * PAGE_TOKENS, tenant="greedy")
    desk.turn()

    assert isinstance(desk.sequences["large"].state, Waiting)
    assert desk.prefixes.num_cached("patient", [5] * (2 * PAGE_TOKENS + 1)) == 2 * PAGE_TOKENS
    desk.run_to_end()


def test_a_preempted_sequence_finds_its_own_prompt_and_is_billed_as_at_first() -> None:
    loop = an_engine(num_pages=6, max_batch=6, chunk_tokens=64)
    submits = [
        a_submit(f"r{n}", prompt=a_prompt(70, n), max_tokens=3 * PAGE_TOKENS, stop_token_ids=())
        for n in range(4)
    ]
    for submit in submits:
        loop.submit(submit)
    told: list[SequenceTokens] = []
    while not loop.is_idle:
        for message in loop.turn():
            told += message.sequences if isinstance(message, Step) else ()
    for submit in submits:
        own = [each for each in told if each.request_id == submit.request_id]
        assert [t for each in own for t in each.token_ids] == expected_answer(submit)
        assert [each.cached_tokens for each in own] == [0] * len(own)
    assert_nothing_is_held(loop, 6)


def test_what_is_cached_is_counted_once_per_request() -> None:
    desk = Desk(max_batch=1)
    for n in range(3):
        desk.add(f"r{n}", num_prompt=130, max_tokens=5)
    desk.run_to_end()

    statistics = desk.scheduler.statistics()
    assert statistics.num_prompt_tokens == 3 * 130
    assert statistics.num_cached_tokens == 2 * 128


@pytest.mark.parametrize("name", ["kimi-k2.6-nano", "glm-5.2-nano"])
def test_a_real_model_answers_from_cached_pages_as_from_fresh_ones(name: str) -> None:
    config = NodeConfig(
        models=(ModelSource(id=name, directory=str(CHECKPOINTS / name)),),
        num_pages=24,
        chunk_tokens=100,
        deterministic=True,
    )
    prompt = [(3 * k + k * k) % 300 for k in range(400)]
    submit = a_submit("r", model=name, prompt=prompt, max_tokens=24, stop_token_ids=())
    fresh, num_cached = answered(build_loop(config), submit)
    assert num_cached == 0

    loop = build_loop(config)
    answered(loop, a_submit("before", model=name, prompt=prompt[:390], max_tokens=1))

    assert answered(loop, submit) == (fresh, 6 * PAGE_TOKENS)
    assert run_to_end(loop).failed == {}
