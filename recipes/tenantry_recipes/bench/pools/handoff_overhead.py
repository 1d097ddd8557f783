"""What it costs one request that its prompt is read elsewhere than its answer is written."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from tenantry_recipes.bench.contender import BenchPrompt, Contender
from tenantry_recipes.bench.prompts import distinct_prompts, long_prompts
from tenantry_recipes.bench.spread import Spread
from tenantry_recipes.bench.table import spread, table

from .layouts import Layout, Subject, running
from .turns import in_turns

ONE_POOL = "one process, one pool"
LONG_TOKENS = 1450
"""Prompts have up to 150 more."""
REQUESTS_PER_ROUND = 4
"""Of each length."""
NUM_WARM_UP = 2

_NUM_TOKENS = 2
"""The first is prefill's, the second the first that decode makes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One layout and one length of prompts."""

    layout: str
    prompt_tokens: float
    """The median."""
    first_s: Spread
    second_s: Spread
    first_more_s: Spread | None
    """Than one process with one pool took for the same prompt."""
    second_more_s: Spread | None


def measure(subject: Subject, rounds: int) -> tuple[Row, ...]:
    """Ask every layout the same prompts, one at a time."""
    num_prompts = rounds * REQUESTS_PER_ROUND + NUM_WARM_UP
    lengths = (
        distinct_prompts(subject.text, num_prompts),
        # of another seed, lest they begin like the short ones
        long_prompts(subject.text, num_prompts, num_tokens=LONG_TOKENS, seed=1),
    )
    with running(subject, _layouts(subject)) as contenders:
        return tuple(row for prompts in lengths for row in compare(contenders, prompts))


def compare(contenders: Mapping[str, Contender], prompts: Sequence[BenchPrompt]) -> list[Row]:
    """Time both tokens of each prompt at each contender; the first few prompts warm up."""
    warm_up, measured = prompts[:NUM_WARM_UP], prompts[NUM_WARM_UP:]
    for prompt in warm_up:
        for contender in contenders.values():
            contender.generate([prompt], _NUM_TOKENS)
    times: dict[str, list[tuple[float, ...]]] = {name: [] for name in contenders}
    for turn, prompt in enumerate(measured):
        for name in in_turns(contenders, turn):
            times[name] += contenders[name].generate([prompt], _NUM_TOKENS).token_s
    lengths = Spread.of(len(prompt.token_ids) for prompt in measured)
    return [_row(name, lengths.median, times[name], times[ONE_POOL]) for name in contenders]


def layout(rows: Sequence[Row]) -> str:
    """Write the figures for people."""
    header = ("prompt, layout", "first ms", "more ms", "second ms", "more ms")
    return table(
        header,
        [
            (
                f"{row.prompt_tokens:.0f}, {row.layout}",
                _milliseconds(row.first_s),
                _milliseconds(row.first_more_s),
                _milliseconds(row.second_s),
                _milliseconds(row.second_more_s),
            )
            for row in rows
        ],
    )


def _layouts(subject: Subject) -> Iterator[tuple[str, Layout]]:
    yield ONE_POOL, subject.one_pool()
    yield "one process, bf16 to fp8", subject.two_pools()
    yield "two processes", subject.two_nodes()
    yield "two processes, bf16 to fp8", subject.two_nodes(decode="fp8")


def _row(
    name: str,
    prompt_tokens: float,
    ours: Sequence[tuple[float, ...]],
    theirs: Sequence[tuple[float, ...]],
) -> Row:
    def more(token: int) -> Spread | None:
        if name == ONE_POOL:
            return None
        return Spread.of(our[token] - their[token] for our, their in zip(ours, theirs, strict=True))

    return Row(
        layout=name,
        prompt_tokens=prompt_tokens,
        first_s=Spread.of(times[0] for times in ours),
        second_s=Spread.of(times[1] for times in ours),
        first_more_s=more(0),
        second_more_s=more(1),
    )


def _milliseconds(seconds: Spread | None) -> str:
    return "" if seconds is None else spread(seconds.scaled(1e3))
