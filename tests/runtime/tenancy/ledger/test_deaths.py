"""An edge that is killed, at any point: what its clients saw is what is recorded."""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from support.ledger_child import CACHED, NUM_REQUESTS, NUM_STEPS, Script, Seen, generated, run_child
from support.ledgers import (
    PRICES,
    TENANT,
    assert_sums_agree,
    daily_rows,
    usage_rows,
)
from tenantry_runtime.tenancy import open_store
from tenantry_runtime.tenancy.database import Database
from tenantry_runtime.tenancy.ledger import open_ledger

KILLED = -signal.SIGKILL

POINTS = {
    "bound": 3,
    "opened": 3,
    "served": 3,
    "delivered": 8,
    "closing": 2,
    "closed": 2,
    "synced": 1,
    "commit": 1,
    "recorded": 1,
    "dropped": 1,
}
"""Where the process dies, and at which time that it comes there."""

OF_THE_DATABASE = ("closed", "synced", "commit", "recorded")
"""Those where the database makes a difference: the others are tried with one alone."""

CASES = [
    *(("sqlite", point) for point in POINTS),
    *(pytest.param("postgresql", point, marks=pytest.mark.postgresql) for point in OF_THE_DATABASE),
]


@asynccontextmanager
async def a_database(state_dir: Path, url: str | None) -> AsyncIterator[Database]:
    async with open_store(state_dir, url=url) as store:
        await store.create_account(TENANT)
        yield store.database


async def reconcile(database: Database, state_dir: Path) -> None:
    async with open_ledger(database, state_dir / "journal", max_open=1):
        pass


async def check(database: Database, seen: dict[str, Seen]) -> None:
    rows = await usage_rows(database)
    for name, client in seen.items():
        row = rows[name]
        number = int(name.partition("-")[2])
        if client.is_whole:
            assert (row["output_tokens"], row["outcome"]) == (generated(number), "stop")
            assert (row["input_tokens"], row["cached_tokens"]) == (100, CACHED)
        else:
            assert client.delivered <= row["output_tokens"] <= generated(number)
    for row in rows.values():
        # nothing of a prompt without something of its answer, and the cost of exactly that
        is_free = row["output_tokens"] == 0
        assert (row["input_tokens"], row["cached_tokens"]) == ((0, 0) if is_free else (100, CACHED))
        tokens = (
            row["input_tokens"] - row["cached_tokens"],
            row["cached_tokens"],
            row["output_tokens"],
        )
        assert row["cost"] == sum(
            count * price for count, price in zip(tokens, PRICES, strict=True)
        )
    assert_sums_agree([*rows.values()], await daily_rows(database))


@pytest.mark.asyncio
@pytest.mark.parametrize(("database_url", "point"), CASES, indirect=["database_url"])
async def test_a_kill_loses_and_doubles_nothing(
    tmp_path: Path, database_url: str | None, point: str
) -> None:
    async with a_database(tmp_path, database_url) as database:
        script = Script(
            state_dir=str(tmp_path),
            url=database_url,
            point=point,
            times=POINTS[point],
            num_requests=5 * NUM_REQUESTS if point == "dropped" else NUM_REQUESTS,
            max_segment_bytes=1000 if point == "dropped" else None,
        )
        code, seen = run_child(script)
        assert code == KILLED

        await reconcile(database, tmp_path)

        await check(database, seen)
        assert [path.name for path in (tmp_path / "journal").iterdir()] == ["lock"]


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("database_url", "point"),
    [
        *(("sqlite", point) for point in ("read", "commit", "reconciled")),
        pytest.param("postgresql", "commit", marks=pytest.mark.postgresql),
    ],
    indirect=["database_url"],
)
async def test_who_is_killed_while_it_reconciles_is_followed_by_another(
    tmp_path: Path, database_url: str | None, point: str
) -> None:
    async with a_database(tmp_path, database_url) as database:
        state_dir = str(tmp_path)
        code, seen = run_child(Script(state_dir=state_dir, url=database_url, point="synced"))
        assert code == KILLED
        code, none = run_child(
            Script(state_dir=state_dir, url=database_url, point=point, prefix="s")
        )
        assert (code, none) == (KILLED, {})

        await reconcile(database, tmp_path)

        await check(database, seen)
        assert len(await usage_rows(database)) == NUM_REQUESTS


@pytest.mark.asyncio
async def test_what_was_open_is_billed_as_delivered(tmp_path: Path) -> None:
    async with a_database(tmp_path, None) as database:
        # the first request's last delivery
        times = (NUM_STEPS - 2 - 1) * NUM_REQUESTS + 1
        code, seen = run_child(Script(state_dir=str(tmp_path), point="delivered", times=times))
        assert code == KILLED

        await reconcile(database, tmp_path)

        rows = await usage_rows(database)
        assert {row["outcome"] for row in rows.values()} == {"edge_lost"}
        assert {row["revision"] for row in rows.values()} == {"f" * 64}
        # stored, and killed before it was sent; the others are where their clients are
        assert rows["r-0"]["output_tokens"] == 3 == seen["r-0"].delivered + 1
        for number in range(1, NUM_REQUESTS):
            name = f"r-{number}"
            assert rows[name]["output_tokens"] == seen[name].delivered == 2 * (number + 1)
            assert rows[name]["reasoning_tokens"] == 2
