"""What tenancy costs an edge: `python -m tenantry_recipes.bench.tenancy.edge [--store URL]`.

The edge's application in this process, with its own authentication, tokenizing and printing, before a
node that says a few tokens at once. The client is in this process too, so that figures are of both;
what matters is what one contender takes more than another. Rounds of all contenders take turns.

| contender | has |
|---|---|
| bare | tokens to check, no limits, no ledger |
| limits | besides, limits of requests, tokens, concurrent requests and neurons that nobody reaches |
| ledger | besides, a record of each request |
"""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import anyio
import httpx
from opentelemetry.trace import NoOpTracer
from starlette.applications import Starlette

from tenantry_recipes.bench.errors import BenchmarkError
from tenantry_recipes.bench.spread import Spread
from tenantry_recipes.bench.table import number, spread, table
from tenantry_runtime.catalog import load_catalog
from tenantry_runtime.core import FinishReason, Phase, TenantId
from tenantry_runtime.edge.app import build_app
from tenantry_runtime.edge.config import Limits
from tenantry_runtime.edge.nodes import Nodes
from tenantry_runtime.edge.offer import Offers, load_offers
from tenantry_runtime.edge.open_requests import OpenRequests
from tenantry_runtime.edge.services import Services
from tenantry_runtime.pool.bell import Bell
from tenantry_runtime.pool.interface import RunningSequence
from tenantry_runtime.pool.messages import (
    Deliver,
    MemberDescription,
    NodeDescription,
    SequenceTokens,
    ServedElsewhere,
    Submit,
)
from tenantry_runtime.pool.page_map import PageMaps
from tenantry_runtime.tenancy import Authenticator, Ledger, NoLedger, Store, open_store
from tenantry_runtime.tenancy.ledger import open_ledger
from tenantry_runtime.tenancy.limits import open_limiter

from .rounds import Options, Pace, in_turns, paced, run

MODEL = "@cf/moonshotai/kimi-k2.6"
NUM_STEPS = 4
TOKEN_ID = 100
MANY = 1_000_000_000
"""A limit that nobody reaches."""

LIMITS = {
    ("daily_neurons",): float(MANY),
    ("quota", "requests_per_minute"): MANY,
    ("quota", "tokens_per_minute"): MANY,
    ("quota", "concurrent_requests"): MANY,
}
PHASES: tuple[Phase, ...] = ("prefill", "decode")
PACKAGES = ("starlette", "httpx", "sqlalchemy", "aiosqlite", "asyncpg")


@dataclass(frozen=True, slots=True, kw_only=True)
class Contender:
    app: Starlette
    account: str
    token: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """Of one contender."""

    name: str
    requests_per_s: Spread
    processor_us: Spread


def main(arguments: Sequence[str] | None = None) -> None:
    run(
        __doc__,
        arguments,
        measure,
        report,
        num_requests=1000,
        packages=PACKAGES,
        asked=lambda options: f"{options.num_requests} requests, {options.concurrency} at a time",
    )


async def measure(options: Options) -> list[Figures]:
    """Run all contenders in turns."""
    offers = await load_offers(load_catalog(None))
    async with AsyncExitStack() as stack:
        contenders: dict[str, Contender] = {}
        for name, url in options.stores.items():
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            contenders |= await _contenders(stack, folder, url, name, offers, options)
        rounds = await in_turns(contenders, options, partial(_round, options))
    return [
        Figures(
            name=name,
            requests_per_s=Spread.of([each.requests_per_s for each in of_one]),
            processor_us=Spread.of([each.processor_us for each in of_one]),
        )
        for name, of_one in rounds.items()
    ]


def report(figures: Sequence[Figures]) -> str:
    """Lay the figures out; `more` is than the bare edge at the same store takes."""
    rows = []
    bare = 0.0
    for each in figures:
        if each.name.startswith("bare"):
            bare = each.processor_us.median
        more = number(each.processor_us.median - bare)
        rows.append((each.name, spread(each.requests_per_s), spread(each.processor_us), more))
    return table(("edge", "requests/s", "processor us", "more us"), rows)


async def _contenders(
    stack: AsyncExitStack,
    folder: Path,
    url: str | None,
    name: str,
    offers: Offers,
    options: Options,
) -> dict[str, Contender]:
    """Make three edges at one store, in a folder that is there."""
    contenders = {}
    for kind in ("bare", "limits", "ledger"):
        store = await stack.enter_async_context(open_store(folder, url=url))
        account = TenantId(f"bench-{kind}")
        await store.accounts.create(account, changes={} if kind == "bare" else LIMITS)
        token = (await store.create_token(account, name="bench")).secret
        services = await stack.enter_async_context(
            _services(store, offers, folder, with_ledger=kind == "ledger", options=options)
        )
        contenders[f"{kind}, {name}"] = Contender(
            app=build_app(services), account=account, token=token
        )
    return contenders


@asynccontextmanager
async def _services(
    store: Store, offers: Offers, folder: Path, *, with_ledger: bool, options: Options
) -> AsyncIterator[Services]:
    async with AsyncExitStack() as stack:
        limiter = await stack.enter_async_context(open_limiter(store.database))
        ledger: Ledger = NoLedger()
        if with_ledger:
            ledger = await stack.enter_async_context(
                open_ledger(store.database, folder, max_open=options.concurrency)
            )
        yield Services(
            offers=offers,
            nodes=Nodes([_ReadyNode()]),
            store=store,
            authenticator=Authenticator(store),
            tracer=NoOpTracer(),
            open_requests=OpenRequests(options.concurrency),
            threads=anyio.CapacityLimiter(1),
            limits=Limits(),
            limiter=limiter,
            ledger=ledger,
        )


async def _round(options: Options, contender: Contender) -> Pace:
    path = f"/client/v4/accounts/{contender.account}/ai/run/{MODEL}"
    body = {"prompt": "What is 17 + 25?", "max_tokens": NUM_STEPS}

    async with httpx.AsyncClient(
        transport=httpx.ASGITransport(contender.app),
        base_url="http://edge",
        headers={"authorization": f"Bearer {contender.token}"},
        timeout=60,
    ) as client:

        async def ask(_number: int) -> None:
            response = await client.post(path, json=body)
            if response.status_code != 200:
                raise BenchmarkError(response.text)

        return await paced(options, ask)


class _Answer:
    """A `RunningSequence` that has all its tokens."""

    started = None
    target = None
    has_tokens = True
    error = None

    def __init__(self, submit: Submit) -> None:
        self._submit = submit
        self._num_said = 0

    def deliver(self, message: Deliver) -> None:
        raise AssertionError("one member has both phases")

    def __aiter__(self) -> _Answer:
        return self

    async def __anext__(self) -> SequenceTokens:
        self._num_said += 1
        is_last = self._num_said == self._submit.max_tokens
        return SequenceTokens(
            request_id=self._submit.request_id,
            token_ids=(TOKEN_ID,),
            finish=FinishReason.LENGTH if is_last else None,
        )


class _ReadyNode:
    """A `TokenSource` that computes nothing."""

    address = "bench"
    is_healthy = True
    description = NodeDescription(
        version=1,
        incarnation=1,
        members=tuple(
            MemberDescription(
                model=MODEL,
                phase=phase,
                weights_format="bf16",
                cache_format="bf16",
                page_tokens=64,
                num_pages=1 << 20,
                context_tokens=4096,
                revision="0" * 64,
            )
            for phase in PHASES
        ),
    )

    @asynccontextmanager
    async def generate(
        self, submit: Submit, bell: Bell | None = None
    ) -> AsyncIterator[RunningSequence]:
        yield _Answer(submit)

    async def pages(self) -> PageMaps:
        return PageMaps(pools=())

    def pass_on(self, served: ServedElsewhere) -> None:
        pass


if __name__ == "__main__":
    main()
