"""The runtime next to llama.cpp's server and vLLM: `python -m tenantry_recipes.bench.peers --work DIR`.

All serve one random checkpoint of 58 million weights in BF16 (`checkpoint.py`), and a client on the
same machine streams answers from each over HTTP: a closed loop of so many requests at a time, distinct
prompts, greedy, no speculation. In each round the servers are measured one after the other; the others
run idle meanwhile. DIR takes the environments that the first run builds.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TypeAlias

import anyio

from tenantry_recipes.bench.contender import BenchPrompt, DtypeName, EngineSettings
from tenantry_recipes.bench.errors import BenchmarkError
from tenantry_recipes.bench.load import Load, closed_loop
from tenantry_recipes.bench.machine import describe_machine
from tenantry_recipes.bench.options import concurrencies
from tenantry_recipes.bench.prompts import distinct_prompts
from tenantry_recipes.bench.spread import Spread, ratios
from tenantry_recipes.bench.stream_client import StreamedAnswer
from tenantry_recipes.bench.table import megabytes, number, spread, table
from tenantry_runtime.cache.formats import SERVED_FORMATS, CacheName
from tenantry_runtime.text import load_text

from .agreement import Agreement, check_agreement
from .checkpoint import ensure_checkpoints
from .environments import ensure_gguf, ensure_llama, ensure_vllm
from .servers import Server, start_llama, start_ours, start_vllm

OURS, LLAMA, VLLM, VLLM_EAGER = "ours", "llama", "vllm", "vllm-eager"
ENGINES = (OURS, LLAMA, VLLM, VLLM_EAGER)

LEAST_REQUESTS = 3
REQUESTS_PER_CLIENT = 2
NUM_WARM_UP_TOKENS = 16
NUM_CHECKED = 16
"""Answers of each server that are compared before anything is measured."""
CHECK_CLIENTS = 4
"""At a time."""

Start: TypeAlias = AbstractAsyncContextManager[Server]


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What is measured."""

    concurrency: tuple[int, ...]
    num_tokens: int
    rounds: int
    threads: int
    """Of llama.cpp; vLLM takes one core for its engine and leaves the other to its HTTP server."""
    own_threads: int
    """Of this runtime, as are the following."""
    dtype: DtypeName
    cache: CacheName


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One server at one concurrency."""

    concurrency: int
    engine: str
    tokens_per_s: Spread
    first_text_s: Spread
    """Of the medians of each round."""
    ours_to_it: Spread | None
    """This runtime's tokens per second divided by its own."""
    agreement: Agreement | None
    """Of its answers with this runtime's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """What it took to have one server."""

    engine: str
    build_s: float | None
    start_s: float
    peak_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    rows: tuple[Row, ...]
    launches: tuple[Launch, ...]


async def measure(
    starts: Mapping[str, Start],
    builds_s: Mapping[str, float],
    prompts: Iterator[BenchPrompt],
    options: Options,
) -> Report:
    """Start all servers and compare them."""
    async with AsyncExitStack() as stack:
        servers = {
            engine: await stack.enter_async_context(start) for engine, start in starts.items()
        }
        await check_same_work(servers, [next(prompts) for _ in range(NUM_CHECKED)])
        rows = [
            row
            for concurrency in options.concurrency
            for row in await compare(servers, concurrency, prompts, options)
        ]
        launches = tuple(
            Launch(
                engine=engine,
                build_s=builds_s.get(engine),
                start_s=server.start_s,
                peak_bytes=server.peak_bytes(),
            )
            for engine, server in servers.items()
        )
    return Report(rows=tuple(rows), launches=launches)


async def check_same_work(servers: Mapping[str, Server], prompts: list[BenchPrompt]) -> None:
    """Raise `BenchmarkError` if a server's answers are of another length or another model."""
    loads: dict[str, Load] = {}
    for engine, server in servers.items():
        requests = [server.request(prompt, NUM_WARM_UP_TOKENS) for prompt in prompts]
        loads[engine] = await closed_loop(requests, CHECK_CLIENTS)
        check_lengths(engine, loads[engine], prompts, NUM_WARM_UP_TOKENS)
    if OURS in loads:
        for engine, load in loads.items():
            check_agreement(engine, loads[OURS].answers, load.answers)


async def compare(
    servers: Mapping[str, Server],
    concurrency: int,
    prompts: Iterator[BenchPrompt],
    options: Options,
) -> list[Row]:
    """Send all servers the same requests, round by round."""
    count = num_requests(concurrency)
    loads: dict[str, list[Load]] = {engine: [] for engine in servers}
    for at in range(1 + options.rounds):
        batch = [next(prompts) for _ in range(count)]
        num_tokens = options.num_tokens if at else NUM_WARM_UP_TOKENS
        for engine, server in servers.items():
            requests = [server.request(prompt, num_tokens) for prompt in batch]
            load = await closed_loop(requests, concurrency)
            check_lengths(engine, load, batch, num_tokens)
            if at:
                loads[engine].append(load)
    return [_row(engine, concurrency, loads) for engine in servers]


def num_requests(concurrency: int) -> int:
    """Return how many requests one measurement has."""
    return max(LEAST_REQUESTS, REQUESTS_PER_CLIENT * concurrency)


def check_lengths(engine: str, load: Load, batch: list[BenchPrompt], num_tokens: int) -> None:
    """Raise `BenchmarkError` unless every answer has as many tokens as the others' have."""
    expected = [(len(prompt.token_ids), num_tokens) for prompt in batch]
    found = [(answer.prompt_tokens, answer.completion_tokens) for answer in load.answers]
    if found != expected:
        raise BenchmarkError(
            f"{engine}: prompts and answers have {found} tokens, expected {expected}"
        )


def _row(engine: str, concurrency: int, loads: Mapping[str, list[Load]]) -> Row:
    own = loads[engine]
    ours = loads.get(OURS) if engine != OURS else None
    return Row(
        concurrency=concurrency,
        engine=engine,
        tokens_per_s=Spread.of(load.tokens_per_s for load in own),
        first_text_s=Spread.of(load.first_text_s for load in own),
        ours_to_it=None
        if ours is None
        else ratios([load.tokens_per_s for load in ours], [load.tokens_per_s for load in own]),
        agreement=None if ours is None else Agreement.of(_answers(ours), _answers(own)),
    )


def _answers(loads: list[Load]) -> list[StreamedAnswer]:
    return [answer for load in loads for answer in load.answers]


def layout(report: Report) -> str:
    """Write a report for people."""
    rows = [
        (
            f"{row.concurrency} {row.engine}",
            spread(row.tokens_per_s),
            "" if row.ours_to_it is None else spread(row.ours_to_it),
            f"{number(row.first_text_s.median * 1e3)} ms",
            _shown_agreement(row.agreement),
        )
        for row in report.rows
    ]
    header = ("clients, server", "tokens/s", "ours is so many times", "first text", "agrees")
    lines = [table(header, rows), ""]
    for launch in report.launches:
        built = "" if launch.build_s is None else f"built in {number(launch.build_s)} s, "
        lines.append(
            f"{launch.engine}: {built}ready {number(launch.start_s)} s after its start, "
            f"peak memory {megabytes(launch.peak_bytes)}"
        )
    return "\n".join(lines)


def _shown_agreement(agreement: Agreement | None) -> str:
    if agreement is None:
        return ""
    return f"{agreement.same_start:.0%} begin alike, {agreement.num_tokens:.1f} tokens"


def prepare(
    engines: tuple[str, ...], work: Path, options: Options
) -> tuple[dict[str, Start], dict[str, float], Path]:
    """Build what is missing; return how to start each, how long it took to build, and our checkpoint."""
    checkpoints = ensure_checkpoints(work / "checkpoint")
    max_batch = max(options.concurrency)
    starts: dict[str, Start] = {}
    builds_s: dict[str, float] = {}
    for engine in engines:
        log = work / "logs" / f"{engine}.log"
        if engine == OURS:
            settings = EngineSettings(
                directory=checkpoints.ours,
                dtype=options.dtype,
                cache=options.cache,
                threads=options.own_threads,
                max_batch=max_batch,
            )
            starts[engine] = start_ours(settings, work / "state")
        elif engine == LLAMA:
            built = ensure_llama(work, options.threads)
            model = ensure_gguf(work, checkpoints.released)
            starts[engine] = start_llama(
                built.program, model, threads=options.threads, max_batch=max_batch, log=log
            )
            builds_s[engine] = built.took_s
        else:
            built = ensure_vllm(work)
            starts[engine] = start_vllm(
                built.program,
                checkpoints.released,
                is_eager=engine == VLLM_EAGER,
                max_batch=max_batch,
                log=log,
            )
            builds_s[engine] = built.took_s
    return starts, builds_s, checkpoints.ours


def main() -> None:
    arguments = _parser().parse_args()
    options = Options(
        concurrency=arguments.concurrency,
        num_tokens=arguments.new_tokens,
        rounds=arguments.rounds,
        threads=arguments.threads,
        own_threads=arguments.own_threads or arguments.threads,
        dtype=arguments.dtype,
        cache=arguments.cache,
    )
    machine = describe_machine(options.threads, ("torch",))
    try:
        starts, builds_s, directory = prepare(
            tuple(arguments.engines), arguments.work.absolute(), options
        )
        if arguments.prepare_only:
            return
        measured = sum(map(num_requests, options.concurrency)) * (options.rounds + 1)
        prompts = iter(distinct_prompts(load_text(directory), NUM_CHECKED + measured))
        report = anyio.run(measure, starts, builds_s, prompts, options)
    except BenchmarkError as error:
        raise SystemExit(str(error)) from error
    if arguments.json:
        whole = {"machine": asdict(machine), "options": asdict(options), **asdict(report)}
        print(json.dumps(whole, indent=2))
    else:
        print(f"{machine}; this runtime {options.own_threads} of them in {options.dtype}")
        print(f"{options.num_tokens} new tokens, median (least to most)\n")
        print(layout(report))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--work", type=Path, required=True, help="for environments and logs")
    parser.add_argument("--engines", nargs="+", choices=ENGINES, default=[OURS, LLAMA, VLLM])
    parser.add_argument("--concurrency", type=concurrencies, default=(1, 8, 32))
    parser.add_argument("--new-tokens", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--own-threads", type=int, help="of this runtime, if not as many")
    parser.add_argument("--dtype", choices=("bfloat16", "float32"), default="bfloat16")
    parser.add_argument(
        "--cache",
        choices=tuple(SERVED_FORMATS),
        default="bf16",
        help="format, of this runtime",
    )
    parser.add_argument("--prepare-only", action="store_true", help="build, and measure nothing")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    return parser


if __name__ == "__main__":
    main()
