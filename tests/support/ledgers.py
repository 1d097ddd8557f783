"""Requests for a ledger, and what its tables say."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import sqlalchemy as sa

from tenantry_runtime.catalog import TokenPrices
from tenantry_runtime.core import RequestId, TenantId, Usage
from tenantry_runtime.tenancy import Opening, schema
from tenantry_runtime.tenancy.database import Database
from tenantry_runtime.tenancy.ledger import UsageRecord
from tenantry_runtime.tenancy.ledger.record import RequestFacts, make_record

TENANT = TenantId("alice")
MODEL = "@cf/moonshotai/kimi-k2.6"
PRICES = TokenPrices(input=7, cached=3, output=11)

NOON_MS = 1_800_014_400_000
"""2027-01-15, 12:00 UTC."""


def some_facts(request_id: str = "r-1", *, tenant: str = TENANT) -> RequestFacts:
    return RequestFacts(
        request_id=request_id,
        account_id=tenant,
        token_id="tok_1",
        model=MODEL,
        worker="",
        worker_version="",
        trace_id="",
        started_ms=NOON_MS - 1000,
        input_tokens=100,
        prices=PRICES,
    )


def a_record(
    request_id: str = "r-1", *, output: int = 9, ended_ms: int = NOON_MS, tenant: str = TENANT
) -> UsageRecord:
    usage = Usage(prompt_tokens=100, completion_tokens=output, cached_tokens=64)
    return make_record(
        some_facts(request_id, tenant=tenant), usage, ended_ms=ended_ms, outcome="stop"
    )


def an_opening(request_id: str = "r-1", *, prompt_tokens: int = 100) -> Opening:
    return Opening(
        request_id=RequestId(request_id),
        tenant=TENANT,
        token_id="tok_1",
        model=MODEL,
        prompt_tokens=prompt_tokens,
        prices=PRICES,
    )


def a_usage(output: int, *, cached: int = 64, reasoning: int = 0, prompt: int = 100) -> Usage:
    return Usage(
        prompt_tokens=prompt,
        completion_tokens=output,
        cached_tokens=cached,
        reasoning_tokens=reasoning,
    )


# Any: columns of several types
async def usage_rows(database: Database) -> dict[str, dict[str, Any]]:
    """Return all usage records, by request."""
    async with database.connect() as connection:
        rows = (await connection.execute(sa.select(schema.usage))).mappings().all()
    return {row["request_id"]: dict(row) for row in rows}


async def daily_rows(database: Database) -> list[dict[str, Any]]:
    async with database.connect() as connection:
        rows = await connection.execute(sa.select(schema.daily_usage))
        return [dict(row) for row in rows.mappings()]


SUMMED = ("input_tokens", "cached_tokens", "output_tokens", "reasoning_tokens", "cost")


def assert_sums_agree(usage: Sequence[dict[str, Any]], daily: Sequence[dict[str, Any]]) -> None:
    """The days' sums are those of the records."""
    assert sum(day["requests"] for day in daily) == len(usage)
    for name in SUMMED:
        assert sum(day[name] for day in daily) == sum(row[name] for row in usage), name


class Clock:
    """Unix time in milliseconds, as a test sets it."""

    def __init__(self, now_ms: int = NOON_MS) -> None:
        self.now_ms = now_ms

    def __call__(self) -> int:
        return self.now_ms


def dies_at(point: str, die: Callable[[], None], *, times: int = 1) -> Callable[[str], None]:
    """Make a `Reached` that dies when a point is passed so many times."""
    left = times

    def reached(passed: str) -> None:
        nonlocal left
        if passed == point:
            left -= 1
            if not left:
                die()

    return reached
