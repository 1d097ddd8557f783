"""What pools of prefill and of decode members cost: `python -m tenantry_recipes.bench.pools`.

| part | what |
|---|---|
| handoff | seconds to the first and to the second token, which is decode's first, of one request on an idle system over HTTP: both members in one process, or in two |
| streams | tokens per second of many streams over HTTP: from a prefill and a decode node, from one node; and at the engine alone |
| pushes | a step of a decode node that takes pages at a rate from other nodes |

Nano models, each process with `--threads`; all of a part run side by side and are measured one after
the other, in turns. The client, and whoever pushes, share the processors with them.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from tenantry_recipes.bench.errors import BenchmarkError
from tenantry_recipes.bench.machine import describe_machine
from tenantry_recipes.nano.models import NANO_MODELS

from . import handoff_overhead, pushed_steps, real_pages, streams
from .layouts import Subject
from .pushed_steps import Batch


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What is measured."""

    rounds: int
    threads: int
    streams: int
    new_tokens: int
    """Of each stream."""
    batch: int
    steps: int
    rates: tuple[int, ...]
    """MB/s."""
    in_frames: bool
    """Whether pages are pushed as from another machine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """One part of one model."""

    title: str
    rows: Sequence[Any]
    """Dataclasses, each part its own."""
    table: str


def _handoff(subject: Subject, options: Options) -> Report:
    rows = handoff_overhead.measure(subject, options.rounds)
    return Report(
        title="one request at a time; more: than one pool took for the same prompt",
        rows=rows,
        table=handoff_overhead.layout(rows),
    )


def _streams(subject: Subject, options: Options) -> Report:
    rows = streams.measure(
        subject,
        num_streams=options.streams,
        num_tokens=options.new_tokens,
        rounds=options.rounds,
    )
    return Report(
        title=f"{options.streams} streams of {options.new_tokens} tokens",
        rows=rows,
        table=streams.layout(rows),
    )


def _pushes(subject: Subject, options: Options) -> Report:
    rows = pushed_steps.measure(
        subject,
        Batch(num_sequences=options.batch, num_tokens=options.steps),
        megabytes_per_s=options.rates,
        rounds=options.rounds,
        lends=not options.in_frames,
    )
    return Report(
        title=f"steps of {options.batch} sequences, {options.steps} in each measurement",
        rows=rows,
        table=pushed_steps.layout(rows),
    )


_PARTS: dict[str, Callable[[Subject, Options], Report]] = {
    "handoff": _handoff,
    "streams": _streams,
    "pushes": _pushes,
}


def main() -> None:
    arguments = _parser().parse_args()
    options = Options(
        rounds=arguments.rounds,
        threads=arguments.threads,
        streams=arguments.streams,
        new_tokens=arguments.new_tokens,
        batch=arguments.batch,
        steps=arguments.steps,
        rates=tuple(arguments.rates),
        in_frames=arguments.in_frames,
    )
    machine = describe_machine(options.threads, ("torch", "grpcio"))
    if not arguments.json:
        print(f"{machine}; load {os.getloadavg()[0]:.1f}; median (least to most)", flush=True)
    reports: list[dict[str, object]] = []
    for name in arguments.models:
        with Subject.load(
            name, threads=options.threads, max_batch=max(options.streams, options.batch)
        ) as subject:
            for part in arguments.only:
                try:
                    report = _PARTS[part](subject, options)
                except BenchmarkError as error:
                    raise SystemExit(f"{name}, {part}: {error}") from error
                reports.append({"model": name, "part": part, "rows": [*map(asdict, report.rows)]})
                if not arguments.json:
                    print(f"\n{name}, {part}: {report.title}\n\n{report.table}", flush=True)
    if arguments.json:
        whole = {"machine": asdict(machine), "options": asdict(options), "reports": reports}
        print(json.dumps(whole, indent=2))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--models",
        nargs="+",
        choices=[*NANO_MODELS, real_pages.NAME],
        default=list(NANO_MODELS),
        help=f"{real_pages.NAME}: random weights, and pages as large as the real model's",
    )
    parser.add_argument("--only", nargs="+", choices=_PARTS, default=list(_PARTS), help="parts")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--streams", type=int, default=64, help="at one time")
    parser.add_argument("--new-tokens", type=int, default=128, help="of each stream")
    parser.add_argument(
        "--batch", type=int, default=16, help="sequences that decode while pages come"
    )
    parser.add_argument("--steps", type=int, default=300, help="of each measurement with pushes")
    parser.add_argument("--rates", nargs="+", type=int, default=[50, 100, 200], help="MB/s")
    parser.add_argument(
        "--in-frames",
        action="store_true",
        help="push pages as from another machine, instead of having them read where they lie",
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")
    return parser


if __name__ == "__main__":
    main()
