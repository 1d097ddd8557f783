"""What limits cost a request: `python -m tenantry_recipes.bench.tenancy_limits [--store URL]`.

Requests ask as the edge does, and nothing else happens: admitted, told what they used, over. Nobody is
refused. Rounds of all contenders take turns.

| contender | limits of the plan |
|---|---|
| none | none |
| rates | requests and tokens a minute |
| all | those, concurrent requests, and neurons of the day |

| figure | of |
|---|---|
| processor | user and system time of the whole process per request, threads included |
| wait | until it is admitted, one request at a time |
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import anyio

from tenantry_runtime.core import TenantId
from tenantry_runtime.tenancy import Limiter, Plan, Principal, Quota, Request, open_store
from tenantry_runtime.tenancy.limits import open_limiter

from .machine import describe_machine
from .spread import Spread
from .table import number, spread, table

MODEL = "@cf/moonshotai/kimi-k2.6"
PROMPT_TOKENS = 100
ANSWER_TOKENS = 50
NUM_ALONE = 200
PACKAGES = ("sqlalchemy", "aiosqlite", "asyncpg")

MANY = 1_000_000_000
"""A limit that nobody reaches."""

RATES = Quota(requests_per_minute=MANY, tokens_per_minute=MANY)
PLANS = {
    "none": Plan(),
    "rates": Plan(quota=RATES),
    "all": Plan(
        daily_neurons=MANY,
        quota=Quota(requests_per_minute=MANY, tokens_per_minute=MANY, concurrent_requests=MANY),
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What is measured."""

    store: str | None
    """URL of a PostgreSQL database; None: SQLite alone."""
    num_requests: int
    """In each round of each contender."""
    num_rounds: int
    concurrency: int
    tenants: int
    """That ask in turn."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Contender:
    name: str
    limiter: Limiter
    requests: Sequence[Request]
    """One of each tenant."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    requests_per_s: float
    processor_us: float
    wait_us: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """Of one contender."""

    name: str
    requests_per_s: Spread
    processor_us: Spread
    wait_us: Spread


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--store", help="URL of a PostgreSQL database to measure too")
    parser.add_argument("--requests", type=int, default=5000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--concurrency", type=int, default=64)
    parser.add_argument("--tenants", type=int, default=8)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args(arguments)
    options = Options(
        store=given.store,
        num_requests=given.requests,
        num_rounds=given.rounds,
        concurrency=given.concurrency,
        tenants=given.tenants,
    )
    figures = anyio.run(measure, options)
    if given.json:
        print(json.dumps([asdict(each) for each in figures]))
        return
    print(describe_machine(1, PACKAGES))
    print(
        f"{options.num_requests} requests of {options.tenants} tenants, "
        f"{options.concurrency} at a time\n"
    )
    print(report(figures))


async def measure(options: Options) -> list[Figures]:
    """Run all contenders in turns."""
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        urls = (
            {"SQLite": None}
            if options.store is None
            else {"SQLite": None, "PostgreSQL": options.store}
        )
        contenders: list[Contender] = []
        for store, url in urls.items():
            limiter = await stack.enter_async_context(_limiter(folder / store, url))
            contenders += [
                Contender(
                    name=plan if plan == "none" else f"{plan}, {store}",
                    limiter=limiter,
                    requests=[_request(number, PLANS[plan]) for number in range(options.tenants)],
                )
                for plan in PLANS
                if plan != "none" or url is None
            ]
        rounds: dict[str, list[Round]] = {each.name: [] for each in contenders}
        # once unmeasured: statements are compiled, rows made
        for round_number in range(options.num_rounds + 1):
            for each in contenders:
                measured = await _round(each, options)
                if round_number:
                    rounds[each.name].append(measured)
        return [_figures(name, of_one) for name, of_one in rounds.items()]


def report(figures: Sequence[Figures]) -> str:
    """Lay the figures out."""
    bare = figures[0].processor_us.median
    header = ("limits", "requests/s", "processor us", "more us", "wait us")
    rows = [
        (
            each.name,
            spread(each.requests_per_s),
            spread(each.processor_us),
            number(each.processor_us.median - bare),
            spread(each.wait_us),
        )
        for each in figures
    ]
    return table(header, rows)


@asynccontextmanager
async def _limiter(state_dir: Path, url: str | None) -> AsyncIterator[Limiter]:
    async with open_store(state_dir, url=url) as store, open_limiter(store.database) as limiter:
        yield limiter


def _request(tenant: int, plan: Plan) -> Request:
    principal = Principal(
        tenant=TenantId(f"bench-{tenant}"),
        token_id="tok_bench",
        scopes=frozenset({"run"}),
        plan=plan,
    )
    return Request(
        principal=principal,
        model=MODEL,
        prompt_tokens=PROMPT_TOKENS,
        max_tokens=2 * ANSWER_TOKENS,
    )


async def _round(contender: Contender, options: Options) -> Round:
    left = options.num_requests

    async def client() -> None:
        nonlocal left
        while left:
            left -= 1
            await _run(contender, left)

    start_s, start_cpu_s = time.perf_counter(), time.process_time()
    async with anyio.create_task_group() as tasks:
        for _ in range(options.concurrency):
            tasks.start_soon(client)
    wall_s, cpu_s = time.perf_counter() - start_s, time.process_time() - start_cpu_s
    num_alone = min(NUM_ALONE, options.num_requests)
    wait_s = sum([await _run(contender, number) for number in range(num_alone)]) / num_alone
    return Round(
        requests_per_s=options.num_requests / wall_s,
        processor_us=1e6 * cpu_s / options.num_requests,
        wait_us=1e6 * wait_s,
    )


async def _run(contender: Contender, number: int) -> float:
    """Run one request; return the seconds until it was admitted."""
    request = contender.requests[number % len(contender.requests)]
    contender.limiter.precheck(request.principal, request.model)
    start_s = time.perf_counter()
    async with contender.limiter.admit(request) as permit:
        wait_s = time.perf_counter() - start_s
        permit.use(PROMPT_TOKENS + ANSWER_TOKENS)
    contender.limiter.headers(request.principal, request.model)
    return wait_s


def _figures(name: str, rounds: Sequence[Round]) -> Figures:
    return Figures(
        name=name,
        requests_per_s=Spread.of([each.requests_per_s for each in rounds]),
        processor_us=Spread.of([each.processor_us for each in rounds]),
        wait_us=Spread.of([each.wait_us for each in rounds]),
    )


if __name__ == "__main__":
    main()
