"""What the ledger costs a request: `python -m tenantry_recipes.bench.tenancy.ledger [--store URL]`.

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

import tempfile
import time
import uuid
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import anyio
import anyio.lowlevel

from tenantry_recipes.bench.spread import Spread
from tenantry_recipes.bench.table import number, spread, table
from tenantry_runtime.catalog import TokenPrices
from tenantry_runtime.core import RequestId, TenantId, Usage
from tenantry_runtime.tenancy import Ledger, NoLedger, Opening, open_store
from tenantry_runtime.tenancy.ledger import JOURNAL_DIRECTORY, open_ledger

from .rounds import Options, alone, in_turns, paced, run

TENANT = TenantId("bench")
PROMPT_TOKENS = 100
NUM_STEPS = 32
NUM_STORES = 200_000
PACKAGES = ("sqlalchemy", "aiosqlite", "asyncpg", "msgspec")


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
    run(
        __doc__,
        arguments,
        measure,
        report,
        num_requests=5000,
        packages=PACKAGES,
        asked=lambda options: (
            f"{options.num_requests} requests of {NUM_STEPS} events, {options.concurrency} at a time"
        ),
    )


async def measure(options: Options) -> list[Figures]:
    """Run all contenders in turns."""
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        ledgers: dict[str, Ledger] = {"none": NoLedger()}
        for name, url in options.stores.items():
            ledgers[name] = await stack.enter_async_context(_ledger(folder / name, url, options))
        rounds = await in_turns(ledgers, options, partial(_round, options))
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


async def _round(options: Options, ledger: Ledger) -> Round:
    async def request(_number: int) -> float:
        return await _request(ledger)

    pace = await paced(options, request)
    return Round(
        requests_per_s=pace.requests_per_s,
        processor_us=pace.processor_us,
        latency_us=await alone(options, request),
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
