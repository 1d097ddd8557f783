"""What the ledger costs a request: `python -m tenantry_recipes.bench.tenancy_ledger [--store URL]`.

Requests are as the edge has them, without all else that an edge does: opened, told after each step
what is delivered, closed, and not over until the record is safe. Without a ledger the same loop
runs with the one that keeps nothing. Rounds of all contenders take turns.

| figure | of |
|---|---|
| delivered | one store into the journal's slot: once per event that is sent |
| processor | user and system time of the whole process per request, threads included |
| latency | from the request's end to its record being safe, one request at a time |
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
import uuid
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import anyio
import anyio.lowlevel

from tenantry_runtime.catalog import TokenPrices
from tenantry_runtime.core import RequestId, TenantId, Usage
from tenantry_runtime.tenancy import Ledger, NoLedger, Opening, open_store
from tenantry_runtime.tenancy.ledger import JOURNAL_DIRECTORY, open_ledger

from .machine import describe_machine
from .spread import Spread
from .table import number, spread, table

TENANT = TenantId("bench")
PROMPT_TOKENS = 100
NUM_STEPS = 32
NUM_STORES = 200_000
PACKAGES = ("sqlalchemy", "aiosqlite", "asyncpg", "msgspec")


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What is measured."""

    store: str | None
    """URL of a PostgreSQL database; None: SQLite alone."""
    num_requests: int
    """In each round of each contender."""
    num_rounds: int
    concurrency: int
    json: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    requests_per_s: float
    processor_us: float
    latency_us: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """Of one contender."""

    name: str
    requests_per_s: Spread
    processor_us: Spread
    latency_us: Spread
    delivered_ns: float


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--store", help="URL of a PostgreSQL database to measure too")
    parser.add_argument("--requests", type=int, default=5000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--concurrency", type=int, default=64)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args(arguments)
    options = Options(
        store=given.store,
        num_requests=given.requests,
        num_rounds=given.rounds,
        concurrency=given.concurrency,
        json=given.json,
    )
    figures = anyio.run(measure, options)
    if options.json:
        print(json.dumps([asdict(each) for each in figures]))
        return
    print(describe_machine(1, PACKAGES))
    print(
        f"{options.num_requests} requests of {NUM_STEPS} events, {options.concurrency} at a time\n"
    )
    print(report(figures))


async def measure(options: Options) -> list[Figures]:
    """Run all contenders in turns."""
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        ledgers: dict[str, Ledger] = {"none": NoLedger()}
        ledgers["SQLite"] = await stack.enter_async_context(
            _ledger(folder / "sqlite", None, options)
        )
        if options.store is not None:
            ledgers["PostgreSQL"] = await stack.enter_async_context(
                _ledger(folder / "postgresql", options.store, options)
            )
        # once unmeasured: statements are compiled, files made
        rounds: dict[str, list[Round]] = {name: [] for name in ledgers}
        for number in range(options.num_rounds + 1):
            for name, ledger in ledgers.items():
                measured = await _round(ledger, options)
                if number:
                    rounds[name].append(measured)
        return [
            _figures(name, rounds[name], await _delivered_ns(ledger))
            for name, ledger in ledgers.items()
        ]


def report(figures: Sequence[Figures]) -> str:
    """Lay the figures out."""
    bare = figures[0].processor_us.median
    header = ("ledger", "requests/s", "processor us", "more us", "latency us", "delivered ns")
    rows = [
        (
            each.name,
            spread(each.requests_per_s),
            spread(each.processor_us),
            number(each.processor_us.median - bare),
            spread(each.latency_us),
            number(each.delivered_ns),
        )
        for each in figures
    ]
    return table(header, rows)


@asynccontextmanager
async def _ledger(state_dir: Path, url: str | None, options: Options) -> AsyncIterator[Ledger]:
    async with open_store(state_dir, url=url) as store:
        await store.create_account(TENANT)
        async with open_ledger(
            store.database, state_dir / JOURNAL_DIRECTORY, max_open=options.concurrency
        ) as ledger:
            yield ledger


async def _round(ledger: Ledger, options: Options) -> Round:
    left = options.num_requests

    async def client() -> None:
        nonlocal left
        while left:
            left -= 1
            await _request(ledger)

    start_s, start_cpu_s = time.perf_counter(), time.process_time()
    async with anyio.create_task_group() as tasks:
        for _ in range(options.concurrency):
            tasks.start_soon(client)
    wall_s, cpu_s = time.perf_counter() - start_s, time.process_time() - start_cpu_s
    num_alone = min(200, options.num_requests)
    latency_s = sum([await _request(ledger) for _ in range(num_alone)]) / num_alone
    return Round(
        requests_per_s=options.num_requests / wall_s,
        processor_us=1e6 * cpu_s / options.num_requests,
        latency_us=1e6 * latency_s,
    )


async def _request(ledger: Ledger) -> float:
    """Run one request; return the seconds between its end and its record being safe."""
    async with ledger.open(_opening()) as entry:
        for step in range(1, NUM_STEPS + 1):
            usage = _usage(step)
            entry.generated(usage)
            entry.delivered(usage)
            await anyio.lowlevel.checkpoint()
        entry.complete(_usage(NUM_STEPS), "stop")
        end_s = time.perf_counter()
    return time.perf_counter() - end_s


async def _delivered_ns(ledger: Ledger) -> float:
    """Time the store alone."""
    usage = _usage(NUM_STEPS)
    async with ledger.open(_opening()) as entry:
        delivered = entry.delivered
        start_ns = time.perf_counter_ns()
        for _ in range(NUM_STORES):
            delivered(usage)
        took_ns = time.perf_counter_ns() - start_ns
        entry.complete(usage, "stop")
    return took_ns / NUM_STORES


def _opening() -> Opening:
    return Opening(
        request_id=RequestId(str(uuid.uuid4())),
        tenant=TENANT,
        token_id="tok_bench",
        model="@cf/moonshotai/kimi-k2.6",
        prompt_tokens=PROMPT_TOKENS,
        prices=TokenPrices(950_000, 160_000, 4_000_000),
    )


def _usage(output: int) -> Usage:
    return Usage(prompt_tokens=PROMPT_TOKENS, completion_tokens=output, cached_tokens=64)


def _figures(name: str, rounds: Sequence[Round], delivered_ns: float) -> Figures:
    return Figures(
        name=name,
        requests_per_s=Spread.of([each.requests_per_s for each in rounds]),
        processor_us=Spread.of([each.processor_us for each in rounds]),
        latency_us=Spread.of([each.latency_us for each in rounds]),
        delivered_ns=delivered_ns,
    )


if __name__ == "__main__":
    main()
