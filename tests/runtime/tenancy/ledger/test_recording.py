from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import anyio
import msgspec
import pytest

from support.ledgers import (
    NOON_MS,
    TENANT,
    a_record,
    assert_sums_agree,
    daily_rows,
    usage_rows,
)
from tenantry_runtime.core import TenantId
from tenantry_runtime.tenancy import Store, open_store
from tenantry_runtime.tenancy.ledger.recording import day_of, record_usage
from tenantry_runtime.tenancy.ledger.settling import MAX_PER_TRANSACTION, REJECTED_FILE, settle

DAY_MS = 86_400_000


@pytest.mark.asyncio
async def test_a_record_is_there_once_however_often_it_is_recorded(store: Store) -> None:
    await store.create_account(TENANT)
    first, second = a_record("r-1"), a_record("r-2", output=5)

    assert await record_usage(store.database, [first]) == 1
    # alone, beside another, and twice at once
    assert await record_usage(store.database, [first]) == 0
    assert await record_usage(store.database, [first, second, second, first]) == 1

    rows = await usage_rows(store.database)
    assert {name: row["output_tokens"] for name, row in rows.items()} == {"r-1": 9, "r-2": 5}
    [day] = await daily_rows(store.database)
    assert (day["requests"], day["output_tokens"], day["input_tokens"]) == (2, 14, 200)
    assert_sums_agree([*rows.values()], [day])


@pytest.mark.asyncio
async def test_each_day_and_tenant_has_its_own_sum(store: Store) -> None:
    bob = TenantId("bob")
    for account in (TENANT, bob):
        await store.create_account(account)
    records = [
        a_record("r-1", output=1),
        a_record("r-2", output=2, ended_ms=NOON_MS + DAY_MS),
        a_record("r-3", output=3, tenant=bob),
        a_record("r-4", output=4),
    ]

    await record_usage(store.database, records)

    sums = {
        (day["account_id"], day["day"]): day["output_tokens"]
        for day in await daily_rows(store.database)
    }
    assert sums == {
        ("alice", "2027-01-15"): 5,
        ("alice", "2027-01-16"): 2,
        ("bob", "2027-01-15"): 3,
    }


@pytest.mark.asyncio
async def test_who_record_the_same_at_one_time_record_it_once(store: Store) -> None:
    await store.create_account(TENANT)
    records = [a_record(f"r-{number}") for number in range(40)]
    num_new: list[int] = []

    async def record() -> None:
        num_new.append(await record_usage(store.database, records))

    async with anyio.create_task_group() as tasks:
        for _ in range(4):
            tasks.start_soon(record)

    assert sum(num_new) == 40
    rows = await usage_rows(store.database)
    assert_sums_agree([*rows.values()], await daily_rows(store.database))


@pytest.mark.asyncio
async def test_more_records_than_one_transaction_has_are_all_recorded(
    store: Store, tmp_path: Path
) -> None:
    await store.create_account(TENANT)
    records = [a_record(f"r-{number}") for number in range(2 * MAX_PER_TRANSACTION + 1)]

    assert await settle(store.database, records, journals=tmp_path) == len(records)

    assert len(await usage_rows(store.database)) == len(records)


@pytest.mark.asyncio
async def test_what_the_database_never_takes_is_set_aside_and_holds_up_nothing(
    store: Store, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    await store.create_account(TENANT)
    orphan = a_record("r-2", tenant="nobody")

    num_new = await settle(
        store.database, [a_record("r-1"), orphan, a_record("r-3")], journals=tmp_path
    )

    assert num_new == 2
    assert set(await usage_rows(store.database)) == {"r-1", "r-3"}
    [line] = (tmp_path / REJECTED_FILE).read_text().splitlines()
    assert json.loads(line)["record"]["request_id"] == "r-2"
    assert "foreign key" in json.loads(line)["problem"].lower()
    assert "r-2" in caplog.text


@pytest.mark.asyncio
@pytest.mark.postgresql
async def test_what_does_not_fit_its_column_is_set_aside(
    postgresql_url: str, tmp_path: Path
) -> None:
    async with open_store(tmp_path, url=postgresql_url) as store:
        await store.create_account(TENANT)
        too_long = msgspec.structs.replace(a_record("r-1"), outcome="x" * 100)

        assert await settle(store.database, [too_long, a_record("r-2")], journals=tmp_path) == 1

        assert set(await usage_rows(store.database)) == {"r-2"}
    assert "too long" in (tmp_path / REJECTED_FILE).read_text()


def test_a_day_is_one_of_utc() -> None:
    midnight_ms = int(datetime(2027, 1, 16, tzinfo=UTC).timestamp() * 1000)

    assert [day_of(midnight_ms - 1), day_of(midnight_ms)] == ["2027-01-15", "2027-01-16"]
