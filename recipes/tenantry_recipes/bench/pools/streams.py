"""Tokens per second of many streams: through edge and pools, through edge and node, and at the engine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tenantry_recipes.bench.child import ChildContender
from tenantry_recipes.bench.contender import BenchPrompt, Contender, EngineSettings, Run
from tenantry_recipes.bench.prompts import distinct_prompts, take
from tenantry_recipes.bench.spread import Spread, ratios
from tenantry_recipes.bench.table import number, spread, table

from .layouts import Subject, running
from .turns import in_turns

ENGINE = "engine alone"
NUM_WARM_UP_TOKENS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One contender."""

    contender: str
    tokens_per_s: Spread
    decode_tokens_per_s: Spread
    step_s: Spread
    ratio: Spread | None
    """Of tokens per second, to the engine alone."""


def measure(subject: Subject, *, num_streams: int, num_tokens: int, rounds: int) -> tuple[Row, ...]:
    """Let all answer the same prompts, round by round."""
    prompts = iter(distinct_prompts(subject.text, num_streams * (1 + rounds)))
    layouts = {
        "edge, prefill and decode node": subject.two_nodes(),
        "edge and one node": subject.one_pool(),
    }
    settings = EngineSettings(
        directory=subject.directory,
        dtype="float32",
        threads=subject.threads,
        max_batch=subject.max_batch,
    )
    with (
        running(subject, layouts.items()) as served,
        ChildContender(settings) as engine,
    ):
        contenders: dict[str, Contender] = {**served, ENGINE: engine}
        _batch(contenders, take(prompts, num_streams), NUM_WARM_UP_TOKENS, 0)
        batches = [
            _batch(contenders, take(prompts, num_streams), num_tokens, turn)
            for turn in range(rounds)
        ]
    return rows_of(batches)


def rows_of(batches: Sequence[Mapping[str, Run]]) -> tuple[Row, ...]:
    """Make one row per contender; each batch has a run of all."""
    runs = {name: [batch[name] for batch in batches] for name in batches[0]}
    alone = [run.tokens_per_s for run in runs[ENGINE]]
    return tuple(
        Row(
            contender=name,
            tokens_per_s=Spread.of(run.tokens_per_s for run in of_one),
            decode_tokens_per_s=Spread.of(run.decode_tokens_per_s for run in of_one),
            step_s=Spread.of(run.step_s for run in of_one),
            ratio=None if name == ENGINE else ratios([run.tokens_per_s for run in of_one], alone),
        )
        for name, of_one in runs.items()
    )


def layout(rows: Sequence[Row]) -> str:
    """Write the figures for people."""
    header = ("contender", "tokens/s", "times engine", "decode/s", "step ms")
    return table(
        header,
        [
            (
                row.contender,
                spread(row.tokens_per_s),
                "" if row.ratio is None else spread(row.ratio),
                number(row.decode_tokens_per_s.median),
                number(1e3 * row.step_s.median),
            )
            for row in rows
        ],
    )


def _batch(
    contenders: Mapping[str, Contender],
    prompts: Sequence[BenchPrompt],
    num_tokens: int,
    turn: int,
) -> dict[str, Run]:
    runs = {
        name: contenders[name].generate(prompts, num_tokens) for name in in_turns(contenders, turn)
    }
    return {name: runs[name] for name in contenders}
