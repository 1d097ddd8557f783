"""What limits cost a request: `python -m tenantry_recipes.bench.tenancy.limits [--store URL]`.

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

import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tenantry_recipes.bench.spread import Spread
from tenantry_recipes.bench.table import number, spread, table
from tenantry_runtime.core import TenantId
from tenantry_runtime.tenancy import Limiter, Plan, Principal, Quota, Request, open_store
from tenantry_runtime.tenancy.limits import open_limiter

from .rounds import Options, alone, in_turns, paced, run

MODEL = "@cf/moonshotai/kimi-k2.6"
PROMPT_TOKENS = 100
ANSWER_TOKENS = 50
NUM_TENANTS = 8
"""That ask in turn."""
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
class Contender:
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
    run(
        __doc__,
        arguments,
        measure,
        report,
        num_requests=5000,
        packages=PACKAGES,
        asked=lambda options: (
            f"{options.num_requests} requests of {NUM_TENANTS} tenants, {options.concurrency} at a time"
        ),
    )


async def measure(options: Options) -> list[Figures]:
    """Run all contenders in turns."""
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        contenders: dict[str, Contender] = {}
        for store, url in options.stores.items():
            limiter = await stack.enter_async_context(_limiter(folder / store, url))
            for name, plan in PLANS.items():
                if name == "none" and url is not None:
                    continue
                requests = [_request(number, plan) for number in range(NUM_TENANTS)]
                contenders[name if name == "none" else f"{name}, {store}"] = Contender(
                    limiter=limiter, requests=requests
                )
        rounds = await in_turns(contenders, options, partial(_round, options))
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


async def _round(options: Options, contender: Contender) -> Round:
    run = partial(_run, contender)
    pace = await paced(options, run)
    return Round(
        requests_per_s=pace.requests_per_s,
        processor_us=pace.processor_us,
        wait_us=await alone(options, run),
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
