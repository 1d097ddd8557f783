"""Limiters of several edges at one database, and the clock of all of them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import anyio
import sqlalchemy as sa

from tenantry_runtime.core import TenantId
from tenantry_runtime.errors import LimitExceeded
from tenantry_runtime.tenancy import Plan, Principal, Quota, Request, Store, open_store, schema
from tenantry_runtime.tenancy.limits import StoreLimiter, open_limiter

MODEL = "@cf/moonshotai/kimi-k2.6"

NOON_MS = 1_798_804_800_000
"""1 January 2027, 12:00:00 UTC."""


@dataclass(slots=True)
class Clock:
    """Stands still until it is told otherwise."""

    now_ms: int = NOON_MS

    def __call__(self) -> int:
        return self.now_ms

    def advance(self, seconds: float) -> None:
        self.now_ms += round(seconds * 1000)


def a_principal(
    tenant: str = "tenant",
    *,
    requests: int | None = None,
    tokens: int | None = None,
    concurrent: int | None = None,
    neurons: float | None = None,
) -> Principal:
    quota = Quota(
        requests_per_minute=requests, tokens_per_minute=tokens, concurrent_requests=concurrent
    )
    return Principal(
        tenant=TenantId(tenant),
        token_id="tok_1",
        scopes=frozenset({"run"}),
        plan=Plan(quota=quota, daily_neurons=neurons),
    )


def a_request(
    principal: Principal, *, prompt: int = 1, answer: int | None = 1, model: str = MODEL
) -> Request:
    return Request(principal=principal, model=model, prompt_tokens=prompt, max_tokens=answer)


@dataclass(slots=True)
class Tally:
    """What became of requests that asked at the same time."""

    num_admitted: int = 0
    refusals: list[LimitExceeded] = field(default_factory=list)


async def ask_at_once(
    limiters: Sequence[StoreLimiter], request: Request, *, times: int, used: int = 0
) -> Tally:
    """Ask each limiter so many times; who is admitted ends when all are decided."""
    tally = Tally()
    num_left = times * len(limiters)
    all_decided = anyio.Event()

    def decided() -> None:
        nonlocal num_left
        num_left -= 1
        if not num_left:
            all_decided.set()

    async def ask(limiter: StoreLimiter) -> None:
        try:
            async with limiter.admit(request) as permit:
                tally.num_admitted += 1
                decided()
                await all_decided.wait()
                permit.use(used)
        except LimitExceeded as refused:
            tally.refusals.append(refused)
            decided()

    async with anyio.create_task_group() as tasks:
        for _ in range(times):
            for limiter in limiters:
                tasks.start_soon(ask, limiter)
    return tally


async def is_admitted(limiter: StoreLimiter, request: Request) -> bool:
    try:
        async with limiter.admit(request):
            return True
    except LimitExceeded:
        return False


async def written_down(limiter: StoreLimiter) -> None:
    """Wait until the store has what has ended: it goes into the next transaction at the latest."""
    async with limiter.admit(a_request(a_principal("somebody else", requests=1_000_000))):
        pass


@asynccontextmanager
async def a_store(folder: Path, url: str | None, clock: Clock) -> AsyncIterator[Store]:
    async with open_store(folder, url=url, now_ms=clock) as store:
        yield store


@asynccontextmanager
async def edges(
    folder: Path, url: str | None, clock: Clock, num: int = 1, *, timeout_s: float = 30.0
) -> AsyncIterator[list[StoreLimiter]]:
    """Run so many limiters, each with a database of its own, as processes have it."""
    async with AsyncExitStack() as stack:
        limiters = []
        for _ in range(num):
            store = await stack.enter_async_context(a_store(folder, url, clock))
            limiters.append(
                await stack.enter_async_context(open_limiter(store.database, timeout_s=timeout_s))
            )
        yield limiters


async def open_rows(store: Store) -> list[int]:
    """Return what edges say that they have open."""
    rows = schema.open_requests
    async with store.database.connect() as connection:
        found = await connection.scalars(
            sa.select(rows.c.num_open).where(rows.c.num_open != 0).order_by(rows.c.num_open)
        )
        return [*found]


async def num_edges(store: Store) -> int:
    async with store.database.connect() as connection:
        found = await connection.scalar(sa.select(sa.func.count()).select_from(schema.edges))
        return int(found or 0)
