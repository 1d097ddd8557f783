from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest

from tenantry_recipes.bench.contender import BenchPrompt, Run
from tenantry_recipes.bench.errors import BenchmarkError
from tenantry_recipes.bench.nano import (
    ENGINE,
    NUM_CHECKED_TOKENS,
    NUM_WARM_UP_TOKENS,
    TRANSFORMERS,
    Options,
    Report,
    Roof,
    check_same_tokens,
    compare,
    layout,
)
from tenantry_runtime.core import RenderOptions

OPTIONS = Options(
    concurrency=(2,),
    num_tokens=4,
    rounds=3,
    threads=1,
    dtype="bfloat16",
    cache="bf16",
    attention=None,
    experts=None,
    has_http=False,
)


def a_prompt(number: int) -> BenchPrompt:
    return BenchPrompt(token_ids=(number,) * 10, messages=(), options=RenderOptions())


@dataclass(eq=False)
class FakeContender:
    """Takes one second per prompt, then `step_s` per token of all."""

    name: str
    diary: list[tuple[str, tuple[BenchPrompt, ...], int]]
    step_s: Sequence[float]
    """By round, the warm-up first."""
    answer: int = 5
    rounds: int = field(default=0, init=False)

    def generate(self, prompts: Sequence[BenchPrompt], num_tokens: int) -> Run:
        self.diary.append((self.name, tuple(prompts), num_tokens))
        step_s = self.step_s[self.rounds]
        self.rounds += 1
        first_s = float(len(prompts))
        times = tuple(first_s + step_s * at for at in range(num_tokens))
        return Run(
            token_s=(times,) * len(prompts),
            token_ids=((self.answer,) * num_tokens,) * len(prompts),
        )

    def peak_bytes(self) -> int:
        return 0

    def close(self) -> None: ...


def test_contenders_answer_the_same_prompts_in_turn_and_none_twice() -> None:
    diary: list[tuple[str, tuple[BenchPrompt, ...], int]] = []
    steps = [1.0] * 4
    contenders = {name: FakeContender(name, diary, steps) for name in (ENGINE, TRANSFORMERS)}
    compare(contenders, 2, map(a_prompt, range(100)), OPTIONS)

    assert [name for name, _, _ in diary] == [ENGINE, TRANSFORMERS] * 4
    assert [number for _, _, number in diary] == [NUM_WARM_UP_TOKENS] * 2 + [4] * 6
    batches = [prompts for _, prompts, _ in diary]
    assert batches[::2] == batches[1::2]
    asked = [prompt for batch in batches[::2] for prompt in batch]
    assert len(set(asked)) == len(asked) == 2 * 4


def test_ratios_compare_within_a_round() -> None:
    diary: list[tuple[str, tuple[BenchPrompt, ...], int]] = []
    # prompts take 2 s, three steps follow: 4 s, 8 s, 5 s next to 8 s, 16 s, 5 s
    ours = FakeContender(ENGINE, diary, [1.0, 2 / 3, 2.0, 1.0])
    theirs = FakeContender(TRANSFORMERS, diary, [1.0, 2.0, 14 / 3, 1.0])
    rows = compare({ENGINE: ours, TRANSFORMERS: theirs}, 2, map(a_prompt, range(100)), OPTIONS)

    assert [row.contender for row in rows] == [ENGINE, TRANSFORMERS]
    assert rows[0].ratio == pytest.approx((1.0, 2.0, 2.0))
    assert rows[1].ratio is None
    assert rows[0].tokens_per_s == pytest.approx((8 / 8, 8 / 5, 8 / 4))
    assert rows[0].prefill_tokens_per_s == pytest.approx((10, 10, 10))
    assert rows[0].step_s == pytest.approx((2 / 3, 1.0, 2.0))


def test_no_figures_where_contenders_answer_differently() -> None:
    diary: list[tuple[str, tuple[BenchPrompt, ...], int]] = []
    first, same, other = (
        FakeContender("", diary, [1.0] * 2, answer=answer) for answer in (5, 5, 6)
    )

    check_same_tokens(first, same, [a_prompt(1)])
    with pytest.raises(BenchmarkError, match="answer differently"):
        check_same_tokens(first, other, [a_prompt(1)])
    assert {number for _, _, number in diary} == {NUM_CHECKED_TOKENS}


def test_a_report_names_ratio_step_roof_and_memory() -> None:
    diary: list[tuple[str, tuple[BenchPrompt, ...], int]] = []
    contenders = {
        ENGINE: FakeContender(ENGINE, diary, [0.002] * 4),
        TRANSFORMERS: FakeContender(TRANSFORMERS, diary, [0.004] * 4),
    }
    rows = compare(contenders, 2, map(a_prompt, range(100)), OPTIONS)
    report = Report(
        model="some-model",
        rows=tuple(rows),
        roofs=(Roof(concurrency=2, weight_bytes=10e6, bytes_per_s=50e9, step_s=0.002),),
        peak_bytes={ENGINE: 250_000_000, TRANSFORMERS: 500_000_000},
    )
    lines = layout(report).splitlines()

    assert lines[0].startswith("some-model")
    (engine_line,) = (line for line in lines if line.startswith("| 2 engine"))
    assert engine_line.endswith("2.00 ms |")
    # 10 MB at 50 GB/s are 0.2 ms, a tenth of the step
    assert any("reads at least 10.0 MB" in line and "10.0% of" in line for line in lines)
    assert lines[-1] == "Peak memory: engine 250 MB, transformers 500 MB."
