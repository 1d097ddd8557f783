from __future__ import annotations

from datetime import date

import pytest

from support.ledgers import NOON_MS, TENANT, a_record
from tenantry_runtime.core import TenantId
from tenantry_runtime.tenancy import Store
from tenantry_runtime.tenancy.ledger.recording import record_usage
from tenantry_runtime.tenancy.ledger.report import By, Period, usage_records, usage_sums

DAY_MS = 86_400_000
BOB = TenantId("bob")

FIRST, SECOND = date(2027, 1, 15), date(2027, 1, 16)

# 36 uncached and 64 cached tokens of each prompt, at 7 and 3
PROMPT = 36 * 7 + 64 * 3


async def some_usage(store: Store) -> None:
    for account in (TENANT, BOB):
        await store.accounts.create(account)
    records = [
        a_record("r-1", output=1),
        a_record("r-2", output=2, ended_ms=NOON_MS + DAY_MS // 2 - 1),
        a_record("r-3", output=4, ended_ms=NOON_MS + DAY_MS // 2),
        a_record("r-4", output=8, ended_ms=NOON_MS + DAY_MS, tenant=BOB),
    ]
    await record_usage(store.database, records)


@pytest.mark.asyncio
async def test_usage_is_summed_by_day_and_by_tenant(store: Store) -> None:
    await some_usage(store)

    days = await usage_sums(store.database, By.DAY)
    tenants = await usage_sums(store.database, By.TENANT)
    [model] = await usage_sums(store.database, By.MODEL)
    [worker] = await usage_sums(store.database, By.WORKER)

    assert [(day.key, day.requests, day.output_tokens) for day in days] == [
        ("2027-01-15", 2, 3),
        ("2027-01-16", 2, 12),
    ]
    # the dearest first
    assert [(each.key, each.cost) for each in tenants] == [
        ("alice", 3 * PROMPT + 7 * 11),
        ("bob", PROMPT + 8 * 11),
    ]
    assert model.input_tokens == worker.input_tokens == 400
    assert (model.cached_tokens, worker.key) == (256, "")
    assert model.neurons == (4 * PROMPT + 15 * 11) / 11_000_000


@pytest.mark.asyncio
async def test_a_period_has_its_first_and_its_last_day(store: Store) -> None:
    await some_usage(store)

    async def outputs(**bounds: date) -> tuple[int, int]:
        period = Period(**bounds)
        sums = await usage_sums(store.database, By.TENANT, period=period)
        records = await usage_records(store.database, period=period, limit=10)
        return sum(each.output_tokens for each in sums), sum(each.output_tokens for each in records)

    assert await outputs() == (15, 15)
    assert await outputs(last=FIRST) == (3, 3)
    assert await outputs(first=SECOND) == (12, 12)
    assert await outputs(first=FIRST, last=FIRST) == (3, 3)


@pytest.mark.asyncio
async def test_records_come_latest_first(store: Store) -> None:
    await some_usage(store)

    latest = await usage_records(store.database, limit=2)
    alices = await usage_records(store.database, tenant=TENANT, limit=10)

    assert [record.request_id for record in latest] == ["r-4", "r-3"]
    assert latest[0] == a_record("r-4", output=8, ended_ms=NOON_MS + DAY_MS, tenant=BOB)
    assert [record.request_id for record in alices] == ["r-3", "r-2", "r-1"]
