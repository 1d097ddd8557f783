"""A device has its next step before the host knows what the last one brought."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from msgspec.structs import replace

from support.constrained import WEATHER, a_constrained_submit, a_random_engine, read_answer
from support.engine import (
    Transcript,
    a_submit,
    an_engine,
    assert_nothing_is_held,
    expected_answer,
    run_to_end,
)
from support.fake_decoder import FakeDecoder
from support.scheduling import Desk
from tenantry_runtime.core import PAGE_TOKENS, JsonFormat, Sampling, ToolChoice
from tenantry_runtime.engine.constraints import MaskFinder
from tenantry_runtime.engine.device_runner import DeviceHandle, DeviceRunner
from tenantry_runtime.engine.loop import EngineLoop
from tenantry_runtime.engine.sequence import Running, Waiting
from tenantry_runtime.text import OutputState, Wanted


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What happens to steps, by their numbers."""
    noted: list[str] = []
    launch, collect = DeviceRunner.launch, DeviceHandle.collect

    # Any: the arguments are passed on as they are
    def noted_launch(runner: Any, plan: Any, **others: Any) -> Any:
        noted.append(f"launch {plan.step}")
        return launch(runner, plan, **others)

    def noted_collect(handle: DeviceHandle) -> Any:
        noted.append(f"collect {handle.plan.step}")
        return collect(handle)

    monkeypatch.setattr(DeviceRunner, "launch", noted_launch)
    monkeypatch.setattr(DeviceHandle, "collect", noted_collect)
    return noted


def test_a_step_is_launched_before_the_one_before_it_is_collected(log: list[str]) -> None:
    loop = an_engine(runs_ahead=True)
    submit = a_submit(max_tokens=5, stop_token_ids=())
    loop.submit(submit)
    assert run_to_end(loop).tokens["r"] == expected_answer(submit)
    # the first is the prompt's, whose token nobody goes on from before it is known
    prompt, rest = log[:2], log[2:]
    assert prompt == ["launch 1", "collect 1"]
    assert rest == [
        "launch 2",
        *("launch 3", "collect 2"),
        *("launch 4", "collect 3"),
        *("launch 5", "collect 4"),
        "collect 5",
    ]


def test_a_prompts_next_chunk_is_launched_before_the_last_is_collected(log: list[str]) -> None:
    loop = an_engine(runs_ahead=True, chunk_tokens=32)
    submit = a_submit(prompt=[3] * 90, max_tokens=1)
    loop.submit(submit)
    assert run_to_end(loop).tokens["r"] == expected_answer(submit)
    assert log == [
        "launch 1",
        *("launch 2", "collect 1"),
        *("launch 3", "collect 2"),
        "collect 3",
    ]


def test_what_ends_by_its_length_is_in_no_step_in_vain() -> None:
    loop = an_engine(runs_ahead=True)
    for n in range(3):
        loop.submit(a_submit(f"r{n}", max_tokens=4 + n, stop_token_ids=()))
    run_to_end(loop)
    [pool] = loop.statistics().pools
    # of each answer the first token is the prompt's
    assert pool.steps["decode"].num_tokens == 3 + 4 + 5


def test_what_ends_by_itself_is_in_one_step_more_and_its_pages_are_free_after_that() -> None:
    submit = a_submit(max_tokens=40, stop_token_ids=())
    answer = expected_answer(submit)
    end = next(n for n in range(2, 40) if answer[n] not in answer[:n])
    loop = an_engine(runs_ahead=True)
    loop.submit(replace(submit, stop_token_ids=(answer[end],)))
    transcript = Transcript()
    while "r" not in transcript.finished:
        transcript.read(loop.turn())
    assert transcript.tokens["r"] == answer[: end + 1]
    pages = loop.lanes[0].pool.statistics()
    assert pages.num_quiescing > 0, "a step that reads them is under way"
    assert not loop.is_idle
    assert loop.turn() == []
    assert loop.is_idle
    [pool] = loop.statistics().pools
    assert pool.steps["decode"].num_tokens == end + 1
    assert_nothing_is_held(loop)


def test_nobody_gives_pages_back_while_a_step_is_under_way() -> None:
    desk = Desk(num_pages=7, chunk_tokens=256, runs_ahead=True)
    for name in ("old", "middle", "young"):
        desk.add(name, num_prompt=60, max_tokens=3 * PAGE_TOKENS)
    while not desk.scheduler.statistics().num_preemptions:
        # the desk sees to it that nobody is preempted beside a step
        desk.turn()
    assert isinstance(desk.sequences["young"].state, Waiting)
    assert isinstance(desk.sequences["old"].state, Running)
    desk.run_to_end()


def test_a_canceled_request_is_told_nothing_more_and_its_id_may_be_used_again() -> None:
    loop = an_engine(runs_ahead=True)
    loop.submit(a_submit(max_tokens=40, stop_token_ids=()))
    for _ in range(5):
        loop.turn()
    loop.cancel("r")
    again = a_submit(prompt=(9, 8, 7), max_tokens=6, stop_token_ids=())
    loop.submit(again)
    assert run_to_end(loop).tokens["r"] == expected_answer(again)
    assert_nothing_is_held(loop)


@pytest.mark.parametrize("problem", ["fatal_token", "nan_token"])
def test_what_goes_wrong_in_a_step_ends_those_whose_step_it_is(problem: str) -> None:
    good, bad, later = (
        a_submit(name, prompt=[n + 2] * 5, max_tokens=10, stop_token_ids=())
        for n, name in enumerate(("good", "bad", "later"))
    )
    tokens = {each.request_id: expected_answer(each) for each in (good, bad, later)}
    harmless = {2, 3, 4, *tokens["good"], *tokens["later"]}
    place = next(n for n, token in enumerate(tokens["bad"]) if token not in harmless)
    fatal = tokens["bad"][place]
    is_fatal = problem == "fatal_token"
    decoder = FakeDecoder(
        fatal_token=fatal if is_fatal else None, nan_token=None if is_fatal else fatal
    )
    loop = an_engine(runs_ahead=True, decoder=decoder)
    for submit in (good, bad):
        loop.submit(submit)
    transcript = Transcript()
    while "bad" not in transcript.failed:
        transcript.read(loop.turn())
    loop.submit(later)
    run_to_end(loop, transcript)

    # the token itself is good: what comes of reading it is not
    assert transcript.tokens["bad"] == tokens["bad"][: place + 1]
    assert transcript.tokens["later"] == tokens["later"]
    # a step that raises is everybody's who is in it; logits that are no numbers are one row's
    is_whole = transcript.tokens["good"] == tokens["good"]
    assert is_whole == (not is_fatal)
    assert ("good" in transcript.failed) == is_fatal
    assert_nothing_is_held(loop)


@dataclass
class Clock:
    now_s: float = 1000.0

    def __call__(self) -> float:
        return self.now_s


def test_a_first_token_that_is_under_way_when_the_time_ends_is_in_time() -> None:
    clock = Clock()
    loop = an_engine(clock_s=clock, runs_ahead=True)
    submit = replace(a_submit("r", max_tokens=3, stop_token_ids=()), first_token_within_ms=100)
    loop.submit(submit)
    clock.now_s += 0.099
    assert loop.turn() == []
    clock.now_s += 1
    assert run_to_end(loop).tokens["r"] == expected_answer(submit)


def test_a_loop_that_is_closed_holds_nothing() -> None:
    loop = an_engine(runs_ahead=True)
    loop.submit(a_submit(max_tokens=40, stop_token_ids=()))
    for _ in range(4):
        loop.turn()
    loop.close()
    assert loop.is_idle
    assert_nothing_is_held(loop)


GRAMMARS = [
    Wanted(initial=OutputState.CONTENT, format=JsonFormat(schema=WEATHER.parameters)),
    Wanted(initial=OutputState.CONTENT, tools=(WEATHER,), choice=ToolChoice(mode="required")),
]


@pytest.mark.parametrize("wanted", GRAMMARS, ids=["json", "call"])
def test_an_answer_under_a_grammar_is_the_same(wanted: Wanted) -> None:
    told = []
    for runs_ahead in (False, True):
        loop = a_random_engine("kimi", runs_ahead=runs_ahead)
        for n in range(4):
            loop.submit(a_constrained_submit(f"r{n}", "kimi", wanted, seed=n, max_tokens=300))
        # one that is free, and one that asks for more than the grammar
        loop.submit(a_submit("free", max_tokens=60, stop_token_ids=()))
        adjusted = a_constrained_submit("adjusted", "kimi", wanted, seed=9, max_tokens=300)
        sampling = Sampling(seed=9, temperature=0.8, frequency_penalty=0.3, top_logprobs=2)
        loop.submit(replace(adjusted, sampling=sampling))
        transcript = run_to_end(loop)
        assert not transcript.failed
        assert_nothing_is_held(loop)
        told.append((dict(transcript.tokens), dict(transcript.logprobs)))
    assert told[0] == told[1]
    assert read_answer("kimi", told[0][0]["r0"], tools=(WEATHER,)).events


def test_masks_wait_for_the_tokens_before_them_and_the_forward_pass_does_not(
    log: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    note(monkeypatch, FakeDecoder, "forward", lambda: log.append("forward"))
    note(monkeypatch, MaskFinder, "find", lambda: log.append("masks"))
    loop = a_random_engine("kimi", runs_ahead=True)
    loop.submit(a_constrained_submit("r", "kimi", GRAMMARS[0], max_tokens=300))
    run_to_end(loop)
    assert log[:4] == ["launch 1", "forward", "masks", "collect 1"]
    assert log[4:12] == [
        *("launch 2", "forward", "masks"),
        *("launch 3", "forward", "collect 2", "masks"),
        "launch 4",
    ]


def test_the_mask_of_a_first_token_waits_for_nobody_elses_step(
    log: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    note(monkeypatch, MaskFinder, "find", lambda: log.append("masks"))
    loop = a_random_engine("kimi", runs_ahead=True)
    loop.submit(a_submit("free", max_tokens=30, stop_token_ids=()))
    for _ in range(4):
        loop.turn()
    loop.submit(a_constrained_submit("r", "kimi", GRAMMARS[0], max_tokens=300))
    while "masks" not in log:
        log.clear()
        loop.turn()
    # the stream's step of this turn, then the prompt's; the stream's last one is collected after both
    stream, prompt, masks, collected = log
    assert (stream.split()[0], prompt.split()[0], masks) == ("launch", "launch", "masks")
    assert collected.split()[0] == "collect"


def note(
    monkeypatch: pytest.MonkeyPatch, owner: type[Any], name: str, tell: Callable[[], None]
) -> None:
    method = getattr(owner, name)

    def noted(*arguments: Any) -> Any:
        tell()
        return method(*arguments)

    monkeypatch.setattr(owner, name, noted)


def a_loop_of_two(runs_ahead: bool) -> EngineLoop:
    loop = an_engine(runs_ahead=runs_ahead, models=("one", "two"))
    for n, model in enumerate(("one", "two")):
        loop.submit(a_submit(f"r{n}", model=model, max_tokens=12, stop_token_ids=()))
    return loop


def test_steps_of_two_models_are_told_apart() -> None:
    answers = [dict(run_to_end(a_loop_of_two(runs_ahead)).tokens) for runs_ahead in (False, True)]
    assert answers[0] == answers[1]
    assert [len(told) for told in answers[0].values()] == [12, 12]
