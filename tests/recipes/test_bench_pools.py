"""The benchmark of pools: its figures, and a decode node that takes what it pushes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from support.port_contract import an_end
from support.text import KIMI_NANO
from tenantry_recipes.bench.contender import BenchPrompt, Run
from tenantry_recipes.bench.pools.handoff_overhead import NUM_WARM_UP, ONE_POOL, compare
from tenantry_recipes.bench.pools.layouts import Subject
from tenantry_recipes.bench.pools.meeting_port import MeetingPort
from tenantry_recipes.bench.pools.pace import MOST_LATE_S, Pace
from tenantry_recipes.bench.pools.pushed_steps import (
    Batch,
    Steps,
    layout,
    measure,
    rows_of,
    zero_page,
)
from tenantry_recipes.bench.pools.streams import ENGINE, rows_of as stream_rows
from tenantry_recipes.bench.pools.timed_node import TimedLoop, read_times
from tenantry_recipes.bench.pools.turns import in_turns
from tenantry_recipes.bench.prompts import MOST_TOKENS, long_prompts
from tenantry_runtime.core import PAGE_TOKENS, FinishReason, RenderOptions
from tenantry_runtime.pool.messages import NodeMessage, SequenceTokens, Step
from tenantry_runtime.pool.page_port import EndCame, PortEvent, SourceLost
from tenantry_runtime.pool.step_loop import Tell


class FakeContender:
    """Takes the same time for every request, whatever is asked."""

    def __init__(self, *token_s: float) -> None:
        self.num_asked = 0
        self._token_s = token_s

    def generate(self, prompts: Sequence[BenchPrompt], num_tokens: int) -> Run:
        assert num_tokens == len(self._token_s)
        self.num_asked += len(prompts)
        return Run(token_s=(self._token_s,) * len(prompts))

    def peak_bytes(self) -> int:
        return 0

    def close(self) -> None: ...


class FakeLoop:
    """A step loop that says what it is told to say."""

    def __init__(self, *turns: list[NodeMessage]) -> None:
        self._turns = list(turns)

    def turn(self, tell_ahead: Tell | None = None) -> list[NodeMessage]:
        return self._turns.pop(0)


def a_prompt(num_tokens: int) -> BenchPrompt:
    return BenchPrompt(token_ids=(1,) * num_tokens, messages=(), options=RenderOptions())


class FakePort:
    """A port that says what it is told to say."""

    def __init__(self, *turns: list[PortEvent]) -> None:
        self._turns = list(turns)

    def events(self) -> list[PortEvent]:
        return self._turns.pop(0)


def a_step(*finishes: FinishReason | None) -> Step:
    sequences = [
        SequenceTokens(str(number), (1,), finish) for number, finish in enumerate(finishes)
    ]
    return Step(step=0, sequences=sequences)


def test_everybody_is_first_in_a_turn() -> None:
    assert [in_turns("abc", turn) for turn in range(4)] == [
        ["a", "b", "c"],
        ["b", "c", "a"],
        ["c", "a", "b"],
        ["a", "b", "c"],
    ]


def test_a_layout_is_compared_with_one_pool_token_by_token() -> None:
    one, two = FakeContender(0.010, 0.013), FakeContender(0.014, 0.014)
    prompts = [a_prompt(100)] * NUM_WARM_UP + [a_prompt(120), a_prompt(130)]

    first, second = compare({ONE_POOL: one, "two processes": two}, prompts)

    assert one.num_asked == two.num_asked == len(prompts)
    assert first.prompt_tokens == second.prompt_tokens == 125
    assert (first.first_more_s, first.second_more_s) == (None, None)
    assert second.first_s.median == 0.014
    assert second.first_more_s is not None and second.second_more_s is not None
    assert second.first_more_s.median == pytest.approx(0.004)
    assert second.second_more_s.median == pytest.approx(0.001)


def test_streams_are_compared_with_the_engine_round_by_round() -> None:
    slow = Run(token_s=((1.0, 2.0, 4.0),) * 2)
    fast = Run(token_s=((0.5, 1.0, 2.0),) * 2)

    served, engine = stream_rows([{"pools": slow, ENGINE: fast}, {"pools": slow, ENGINE: slow}])

    assert engine.ratio is None
    # six tokens in four seconds
    assert served.tokens_per_s == pytest.approx((1.5, 1.5, 1.5))
    assert served.ratio == pytest.approx((0.5, 0.75, 1.0))


def test_steps_are_compared_with_those_of_their_round_without_pushes() -> None:
    def steps(*step_s: float, control: Steps | None = None) -> Steps:
        own_s = tuple(time_s / 2 for time_s in step_s)
        return Steps(reached_per_s=40e6, step_s=step_s, own_s=own_s, control=control)

    rows = rows_of(
        [
            {
                0.0: steps(0.002, 0.002, 0.008),
                50e6: steps(0.003, 0.003, 0.003, control=steps(0.0025, 0.0025, 1.0)),
            },
            {
                50e6: steps(0.004, 0.004, 0.004, control=steps(0.005, 0.005, 0.005)),
                0.0: steps(0.004, 0.004, 0.004),
            },
        ]
    )

    assert [row.asked_per_s for row in rows] == [0.0, 50e6]
    assert rows[0].median_ratio is None
    assert rows[1].median_ratio == rows[1].own_ratio == pytest.approx((1.0, 1.25, 1.5))
    assert rows[1].control_ratio == pytest.approx((1.25, 1.25, 1.25))
    assert "| 50 " in layout(rows).splitlines()[-1]


def test_a_pace_catches_up_within_limits() -> None:
    now_s = 0.0
    pace = Pace(1000, clock=lambda: now_s)

    # what several send at once comes one after the other
    assert [pace.delay_s(100) for _ in range(3)] == pytest.approx([0.0, 0.1, 0.2])
    now_s = 0.32
    assert pace.delay_s(10) == 0.0
    # late by 20 ms, of which these ten bytes make up for 10
    assert pace.delay_s(10) == 0.0
    assert pace.delay_s(10) == pytest.approx(0.0)
    assert pace.delay_s(10) == pytest.approx(0.01)
    now_s = 100.0
    sent_at_once = sum(pace.delay_s(1) == 0.0 for _ in range(1000))
    assert sent_at_once == pytest.approx(1000 * MOST_LATE_S, abs=1)


def test_only_steps_of_the_whole_batch_are_timed(tmp_path: Path) -> None:
    loop = FakeLoop(
        [a_step(None)],
        [a_step(None, None)],
        # one more ends with its hand-off
        [a_step(None, None, FinishReason.LENGTH)],
        [a_step(None, FinishReason.LENGTH)],
        [],
    )
    file = tmp_path / "times"
    counts: list[int] = []
    with file.open("wb") as times:
        timed = TimedLoop(loop, 2, times)  # type: ignore[arg-type] # a stand-in
        for _ in range(5):
            timed.turn()
            counts.append(len(read_times(file)))

    # written by when the batch has ended
    assert counts == [0, 0, 0, 2, 2]
    earlier, later = read_times(file)
    assert earlier.at_s < later.at_s
    # a processor's time passes no faster than all time, but for what is between two looks
    assert 0 <= later.own_s - earlier.own_s <= later.at_s - earlier.at_s + 1e-3


def test_the_hand_offs_of_a_batch_end_at_one_time() -> None:
    def end(source: int, num_pages: int) -> EndCame:
        return EndCame(an_end(source, num_pages), source)

    inner = FakePort(
        [end(1, 4), end(2, 32)],
        [],
        [end(3, 32), SourceLost(handoff=9, source=9), end(4, 4)],
        # the next batch
        [end(5, 4)],
        [end(6, 4)],
    )
    port = MeetingPort(inner, num_handoffs=2, num_pages=4)  # type: ignore[arg-type] # a stand-in

    sources = [[event.source for event in port.events()] for _ in range(5)]  # type: ignore[union-attr]
    assert sources == [[2], [], [3, 9, 1, 4], [], [5, 6]]


@pytest.mark.parametrize("name", ["kimi-k2.6-nano", "glm-5.2-nano"])
def test_long_prompts_have_the_promised_length_and_share_no_page(name: str) -> None:
    with Subject.load(name, threads=1, max_batch=1) as subject:
        text = subject.text
    prompts = long_prompts(text, 3, num_tokens=700)

    assert all(700 <= len(prompt.token_ids) <= 700 + 2 * MOST_TOKENS for prompt in prompts)
    assert len({prompt.token_ids[:PAGE_TOKENS] for prompt in prompts}) == 3
    rendered = text.render(prompts[0].messages, (), prompts[0].options)
    assert text.encode(rendered) == list(prompts[0].token_ids)


def test_a_page_of_zeros_is_as_large_as_the_models_rows_are() -> None:
    # the checkpoint's own words: a latent and a rotary part per token and layer, two bytes each
    config = json.loads((KIMI_NANO / "config.json").read_text())["text_config"]
    row = config["kv_lora_rank"] + config["qk_rope_head_dim"]

    assert zero_page(KIMI_NANO, "bf16").num_bytes == 2 * 64 * row * config["num_hidden_layers"]


def test_a_page_of_the_real_models_size_is_as_large_as_its_rows_are() -> None:
    # Kimi K2.6 has 61 layers with a latent of 512 and 64 rotary values
    with Subject.load("kimi-k2.6-pages", threads=1, max_batch=1) as subject:
        assert zero_page(subject.directory, "bf16").num_bytes == 2 * 64 * 576 * 61


@pytest.mark.cluster
@pytest.mark.parametrize("lends", [True, False])
def test_a_decode_node_takes_pages_while_it_steps(lends: bool) -> None:
    batch = Batch(num_sequences=2, num_tokens=240)

    with Subject.load("kimi-k2.6-nano", threads=1, max_batch=8) as subject:
        without, with_pushes = measure(subject, batch, megabytes_per_s=[50], rounds=1, lends=lends)

    assert (without.asked_per_s, without.reached_per_s.median) == (0.0, 0.0)
    # 50 MB/s are little, but a busy machine may be late
    assert 0 < with_pushes.reached_per_s.median < 100e6
    assert 0 < without.median_s.median <= without.p90_s.median
    assert with_pushes.median_ratio is not None
    assert with_pushes.own_ratio is not None and with_pushes.control_ratio is not None
