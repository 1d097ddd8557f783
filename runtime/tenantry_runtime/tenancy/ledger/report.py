"""What has been used: sums from `daily_usage`, or records one by one."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from enum import StrEnum
from typing import Any

import sqlalchemy as sa

from tenantry_runtime.catalog import neurons
from tenantry_runtime.tenancy import schema
from tenantry_runtime.tenancy.database import Database

from .record import UsageRecord

_PICO = 10**12


class By(StrEnum):
    """What sums are of."""

    DAY = "day"
    """In UTC, of the end of a request."""
    MODEL = "model"
    WORKER = "worker"
    """Empty for requests of no worker."""
    TENANT = "tenant"


@dataclass(frozen=True, slots=True, kw_only=True)
class Period:
    """Days in UTC, the first and the last included. None: no bound."""

    first: date | None = None
    last: date | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageSum:
    """Of all requests that have one thing in common."""

    key: str
    requests: int
    input_tokens: int
    """Cached ones too."""
    cached_tokens: int
    output_tokens: int
    """Reasoning too."""
    reasoning_tokens: int
    cost: int
    """In pico-USD."""

    @property
    def neurons(self) -> float:
        return neurons(self.cost)

    @property
    def usd(self) -> float:
        return self.cost / _PICO


SUMMED = (
    "requests",
    "input_tokens",
    "cached_tokens",
    "output_tokens",
    "reasoning_tokens",
    "cost",
)


async def usage_sums(
    database: Database, by: By, *, tenant: str | None = None, period: Period | None = None
) -> list[UsageSum]:
    """Sum up what was used: by day in their order, by anything else the dearest first."""
    daily = schema.daily_usage.c
    period = period or Period()
    key = daily.account_id if by is By.TENANT else daily[by.value]
    sums = [sa.func.sum(daily[name]).label(name) for name in SUMMED]
    wanted = sa.select(key.label("key"), *sums).group_by(key)
    if tenant is not None:
        wanted = wanted.where(daily.account_id == tenant)
    # as text, days are ordered as they are
    if period.first is not None:
        wanted = wanted.where(daily.day >= period.first.isoformat())
    if period.last is not None:
        wanted = wanted.where(daily.day <= period.last.isoformat())
    async with database.connect() as connection:
        rows = (await connection.execute(wanted)).mappings().all()
    # sums of PostgreSQL's are of no bounded width
    found = [UsageSum(key=row["key"], **{name: int(row[name]) for name in SUMMED}) for row in rows]
    return sorted(found, key=lambda each: each.key if by is By.DAY else (-each.cost, each.key))


async def usage_records(
    database: Database, *, tenant: str | None = None, period: Period | None = None, limit: int
) -> list[UsageRecord]:
    """Return the latest records of a period, the latest first."""
    usage = schema.usage
    period = period or Period()
    wanted = sa.select(usage).order_by(usage.c.ended_ms.desc(), usage.c.request_id).limit(limit)
    if tenant is not None:
        wanted = wanted.where(usage.c.account_id == tenant)
    if period.first is not None:
        wanted = wanted.where(usage.c.ended_ms >= _midnight_ms(period.first))
    if period.last is not None:
        wanted = wanted.where(usage.c.ended_ms < _midnight_ms(period.last + timedelta(days=1)))
    async with database.connect() as connection:
        rows = (await connection.execute(wanted)).mappings().all()
    return [_record(dict(row)) for row in rows]


# Any: columns of several types
def _record(row: dict[str, Any]) -> UsageRecord:
    return UsageRecord(**row)


def _midnight_ms(day: date) -> int:
    return int(datetime(day.year, day.month, day.day, tzinfo=UTC).timestamp()) * 1000
