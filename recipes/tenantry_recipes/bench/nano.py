"""Tokens per second of the nano models next to transformers: `python -m tenantry_recipes.bench.nano`.

| contender | what |
|---|---|
| engine | this runtime's step loop |
| HTTP | the same, served by node and edge, asked by a client that shares the processors |
| transformers | `generate`: one left-padded static batch, cache on |

All run one BF16 export of the checkpoint, each in a process of its own, and answer the same prompts,
one after the other in each round, greedily, with exactly as many tokens. Ratios are taken within a
round. Before any timing, the export must give the checkpoint's greedy tokens in the engine, and the
engine those of transformers in float32.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path

from tenantry_recipes.nano.models import NANO_MODELS, checkpoint_directory
from tenantry_runtime.cache.formats import SERVED_FORMATS, CacheName
from tenantry_runtime.models.loader import load_config
from tenantry_runtime.text import TextModel, load_text

from .child import ChildContender
from .contender import (
    BenchPrompt,
    Contender,
    DtypeName,
    EngineSettings,
    HttpSettings,
    Run,
    Settings,
    TransformersSettings,
)
from .errors import BenchmarkError
from .export import export_checkpoint
from .machine import describe_machine, read_bandwidth
from .options import concurrencies
from .prompts import distinct_prompts, long_prompts, take
from .spread import Spread, ratios
from .table import megabytes, number, spread, table
from .weights import WeightCounts

ENGINE, HTTP, TRANSFORMERS = "engine", "HTTP", "transformers"
NUM_CHECKED_PROMPTS = 3
"""Of different lengths, so that the padding is checked too."""
NUM_CHECKED_TOKENS = 12
NUM_WARM_UP_TOKENS = 8
_BYTES = {"float32": 4, "bfloat16": 2}


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What is measured."""

    concurrency: tuple[int, ...]
    num_tokens: int
    rounds: int
    threads: int
    dtype: DtypeName
    cache: CacheName
    """Of the engine."""
    attention: str | None
    experts: str | None
    has_http: bool
    prompt_tokens: int | None = None
    """Of each prompt, at least; None for `LEAST_TOKENS` to `MOST_TOKENS` of `prompts`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One contender at one concurrency."""

    concurrency: int
    contender: str
    tokens_per_s: Spread
    prefill_tokens_per_s: Spread
    decode_tokens_per_s: Spread
    step_s: Spread
    ratio: Spread | None
    """Of tokens per second, to transformers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Roof:
    """How near a decode step of the engine comes to reading its weights once."""

    concurrency: int
    weight_bytes: float
    bytes_per_s: float
    """Measured over as much memory."""
    step_s: float

    @property
    def least_s(self) -> float:
        return self.weight_bytes / self.bytes_per_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """One model."""

    model: str
    rows: tuple[Row, ...]
    roofs: tuple[Roof, ...]
    peak_bytes: dict[str, int]
    """By contender."""


def measure(name: str, directory: Path, options: Options) -> Report:
    """Measure one model; raise `BenchmarkError` where the contenders do not compute the same."""
    text = load_text(directory)
    checked = distinct_prompts(text, NUM_CHECKED_PROMPTS)
    prompts = iter(_prompts(text, options))
    with tempfile.TemporaryDirectory(prefix="tenantry-bench-") as folder:
        export = Path(folder) / "export"
        export_checkpoint(directory, export)
        counts = WeightCounts.of(export, load_config(directory).moe)
        check_export(directory, export, checked, options.threads)
        settings = _settings(directory, export, text, options)
        with ExitStack() as stack:
            contenders = {
                side: stack.enter_context(ChildContender(each)) for side, each in settings.items()
            }
            rows = tuple(
                row
                for concurrency in options.concurrency
                for row in compare(contenders, concurrency, prompts, options)
            )
            peak = {side: contender.peak_bytes() for side, contender in contenders.items()}
    roofs = tuple(_roof(row, counts, options) for row in rows if row.contender == ENGINE)
    return Report(model=name, rows=rows, roofs=roofs, peak_bytes=peak)


def check_export(
    directory: Path, export: Path, prompts: Sequence[BenchPrompt], threads: int
) -> None:
    """Raise `BenchmarkError` unless checkpoint, export and transformers' reading of it agree."""

    def engine(directory: Path, dtype: DtypeName, cache: CacheName) -> ChildContender:
        return ChildContender(
            EngineSettings(directory=directory, dtype=dtype, cache=cache, threads=threads)
        )

    # in BF16, to which both are rounded: what a checkpoint's formats hold beyond it is not exported
    with (
        engine(directory, "bfloat16", "bf16") as original,
        engine(export, "bfloat16", "bf16") as exported,
    ):
        check_same_tokens(original, exported, prompts)
    theirs = TransformersSettings(directory=export, dtype="float32", threads=threads)
    with engine(export, "float32", "float32") as exported, ChildContender(theirs) as reference:
        check_same_tokens(exported, reference, prompts)


def check_same_tokens(first: Contender, second: Contender, prompts: Sequence[BenchPrompt]) -> None:
    """Raise `BenchmarkError` unless both give the same greedy tokens."""
    answers = [side.generate(prompts, NUM_CHECKED_TOKENS).token_ids for side in (first, second)]
    if answers[0] != answers[1]:
        raise BenchmarkError(
            "no figures, for contenders answer differently:\n" + "\n".join(map(str, answers))
        )


def compare(
    contenders: Mapping[str, Contender],
    concurrency: int,
    prompts: Iterator[BenchPrompt],
    options: Options,
) -> list[Row]:
    """Let all contenders answer the same prompts, round by round."""
    warm_up = take(prompts, concurrency)
    for contender in contenders.values():
        contender.generate(warm_up, NUM_WARM_UP_TOKENS)
    runs: dict[str, list[Run]] = {name: [] for name in contenders}
    num_prompt_tokens: list[int] = []
    for _ in range(options.rounds):
        batch = take(prompts, concurrency)
        num_prompt_tokens.append(sum(len(prompt.token_ids) for prompt in batch))
        for name, contender in contenders.items():
            runs[name].append(contender.generate(batch, options.num_tokens))
    theirs = [run.tokens_per_s for run in runs[TRANSFORMERS]]
    return [
        Row(
            concurrency=concurrency,
            contender=name,
            tokens_per_s=Spread.of(run.tokens_per_s for run in of_one),
            prefill_tokens_per_s=Spread.of(
                tokens / run.prefill_s
                for tokens, run in zip(num_prompt_tokens, of_one, strict=True)
            ),
            decode_tokens_per_s=Spread.of(run.decode_tokens_per_s for run in of_one),
            step_s=Spread.of(run.step_s for run in of_one),
            ratio=None
            if name == TRANSFORMERS
            else ratios([run.tokens_per_s for run in of_one], theirs),
        )
        for name, of_one in runs.items()
    ]


def layout(report: Report) -> str:
    """Write a report for people."""
    rows = [
        (
            f"{row.concurrency} {row.contender}",
            spread(row.tokens_per_s),
            "" if row.ratio is None else spread(row.ratio),
            number(row.prefill_tokens_per_s.median),
            number(row.decode_tokens_per_s.median),
            f"{number(row.step_s.median * 1e3)} ms",
        )
        for row in report.rows
    ]
    header = ("requests", "tokens/s", "times transformers", "prefill/s", "decode/s", "step")
    lines = [f"{report.model}: median (least to most)", "", table(header, rows), ""]
    lines += [
        f"A step of {roof.concurrency} reads at least {megabytes(roof.weight_bytes)} of weights: "
        f"{number(roof.least_s * 1e3)} ms at the measured {number(roof.bytes_per_s / 1e9)} GB/s, "
        f"{number(100 * roof.least_s / roof.step_s)}% of the engine's step."
        for roof in report.roofs
    ]
    peaks = ", ".join(f"{name} {megabytes(peak)}" for name, peak in report.peak_bytes.items())
    return "\n".join([*lines, f"Peak memory: {peaks}."])


def _prompts(text: TextModel, options: Options) -> list[BenchPrompt]:
    """Make a prompt for each request: those of the warm-up and of all rounds differ."""
    num_prompts = sum(options.concurrency) * (1 + options.rounds)
    if options.prompt_tokens is None:
        return distinct_prompts(text, num_prompts)
    return long_prompts(text, num_prompts, num_tokens=options.prompt_tokens)


def _settings(
    directory: Path, export: Path, text: TextModel, options: Options
) -> dict[str, Settings]:
    engine = EngineSettings(
        directory=export,
        dtype=options.dtype,
        cache=options.cache,
        threads=options.threads,
        max_batch=max(options.concurrency),
    )
    settings: dict[str, Settings] = {ENGINE: engine}
    if options.has_http:
        first_control = min(text.tokenizer.controls.names)
        settings[HTTP] = HttpSettings(
            engine=engine, text_directory=directory, vocab_limit=first_control
        )
    settings[TRANSFORMERS] = TransformersSettings(
        directory=export,
        dtype=options.dtype,
        threads=options.threads,
        attention=options.attention,
        experts=options.experts,
    )
    return settings


def _roof(row: Row, counts: WeightCounts, options: Options) -> Roof:
    weight_bytes = counts.per_step(row.concurrency) * _BYTES[options.dtype]
    return Roof(
        concurrency=row.concurrency,
        weight_bytes=weight_bytes,
        bytes_per_s=read_bandwidth(weight_bytes, options.threads),
        step_s=row.step_s.median,
    )


def main() -> None:
    arguments = _parser().parse_args()
    options = Options(
        concurrency=arguments.concurrency,
        prompt_tokens=arguments.prompt_tokens,
        num_tokens=arguments.new_tokens,
        rounds=arguments.rounds,
        threads=arguments.threads,
        dtype=arguments.dtype,
        cache=arguments.cache,
        attention=arguments.attention,
        experts=arguments.experts,
        has_http=not arguments.no_http,
    )
    machine = describe_machine(options.threads, ("torch", "transformers"))
    if not arguments.json:
        print(f"{machine}; {options.dtype}, {options.num_tokens} new tokens", flush=True)
    reports: list[Report] = []
    for name in arguments.models:
        try:
            reports.append(measure(name, checkpoint_directory(name), options))
        except BenchmarkError as error:
            raise SystemExit(f"{name}: {error}") from error
        if not arguments.json:
            print(f"\n{layout(reports[-1])}", flush=True)
    if arguments.json:
        whole = {"machine": asdict(machine), "options": asdict(options)}
        print(json.dumps(whole | {"models": [asdict(report) for report in reports]}, indent=2))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", nargs="+", choices=NANO_MODELS, default=list(NANO_MODELS))
    parser.add_argument(
        "--concurrency", type=concurrencies, default=(1, 8, 32), help="such as 1,8,32"
    )
    parser.add_argument("--prompt-tokens", type=int, help="at least, such as 1500; some 125 else")
    parser.add_argument("--new-tokens", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--dtype", choices=("bfloat16", "float32"), default="float32")
    parser.add_argument(
        "--cache", choices=tuple(SERVED_FORMATS), default="bf16", help="format, of the engine"
    )
    parser.add_argument("--attention", choices=("sdpa", "eager"), help="of transformers")
    parser.add_argument(
        "--experts", choices=("eager", "batched_mm", "grouped_mm"), help="of transformers"
    )
    parser.add_argument("--no-http", action="store_true", help="leave out the row over HTTP")
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")
    return parser


if __name__ == "__main__":
    main()
