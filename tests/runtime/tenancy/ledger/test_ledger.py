"""The ledger in one process: when a record is safe, and what happens where it cannot be."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
import pytest_asyncio

from support.ledgers import (
    NOON_MS,
    TENANT,
    Clock,
    a_usage,
    an_opening,
    assert_sums_agree,
    daily_rows,
    usage_rows,
)
from tenantry_runtime.errors import (
    CapacityExceeded,
    ConfigurationError,
    LedgerUnavailable,
    StoreUnavailable,
)
from tenantry_runtime.tenancy import Interruption, Store, open_store
from tenantry_runtime.tenancy.database import Database
from tenantry_runtime.tenancy.ledger import JournaledLedger, ledger as ledger_module, open_ledger
from tenantry_runtime.tenancy.ledger.journal import SegmentFile, segments_of


@pytest_asyncio.fixture
async def local(tmp_path: Path) -> AsyncIterator[Store]:
    """SQLite alone: for what has nothing to do with the database."""
    async with open_store(tmp_path, now_ms=Clock()) as store:
        await store.create_account(TENANT)
        yield store


@asynccontextmanager
async def a_ledger(store: Store, folder: Path, **options: Any) -> AsyncIterator[JournaledLedger]:
    async with open_ledger(
        store.database, folder / "journal", **{"max_open": 100, **options}
    ) as ledger:
        yield ledger


def journals_in(folder: Path) -> list[Path]:
    return [path for path in (folder / "journal").iterdir() if path.is_dir()]


async def until(is_true: Callable[[], bool]) -> None:
    """Wait for what the ledger's own tasks do."""
    with anyio.fail_after(10):
        while not is_true():
            await anyio.lowlevel.checkpoint()


class Away:
    """A database that can be taken away."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.is_away = False
        self.num_attempts = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._database, name)

    def begin(self) -> Any:
        self.num_attempts += 1
        if self.is_away:
            raise StoreUnavailable("away")
        return self._database.begin()


@pytest.mark.asyncio
async def test_a_record_is_in_the_database_when_the_block_is_left(
    store: Store, tmp_path: Path
) -> None:
    await store.create_account(TENANT)
    async with a_ledger(store, tmp_path) as ledger:
        async with ledger.open(an_opening("r-1")) as entry:
            entry.served_by(revision="f" * 64, formats="decode=bf16/bf16")
            entry.delivered(a_usage(3))
            entry.complete(a_usage(9, reasoning=4), "stop")
            assert await usage_rows(store.database) == {}
        [row] = (await usage_rows(store.database)).values()

    assert row["outcome"] == "stop"
    assert (row["account_id"], row["token_id"]) == ("alice", "tok_1")
    assert (row["input_tokens"], row["cached_tokens"]) == (100, 64)
    assert (row["output_tokens"], row["reasoning_tokens"]) == (9, 4)
    assert row["cost"] == 36 * 7 + 64 * 3 + 9 * 11
    assert (row["revision"], row["formats"]) == ("f" * 64, "decode=bf16/bf16")
    assert_sums_agree([row], await daily_rows(store.database))


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("why", "billed"),
    [
        (Interruption.CLIENT_GONE, (100, 5)),
        (Interruption.TIMEOUT, (100, 3)),
        (Interruption.FAILED, (100, 3)),
        (Interruption.EDGE_CLOSING, (100, 3)),
    ],
)
async def test_a_broken_answer_is_billed_by_why_it_broke(
    local: Store, tmp_path: Path, why: Interruption, billed: tuple[int, int]
) -> None:
    async with a_ledger(local, tmp_path) as ledger:
        with pytest.raises(RuntimeError, match="broken"):
            async with ledger.open(an_opening()) as entry:
                entry.generated(a_usage(3))
                entry.delivered(a_usage(3))
                entry.generated(a_usage(5))
                entry.interrupted(why)
                raise RuntimeError("broken")
        [row] = (await usage_rows(local.database)).values()

    assert row["outcome"] == why
    assert (row["input_tokens"], row["output_tokens"]) == billed


@pytest.mark.asyncio
async def test_who_says_nothing_has_failed(local: Store, tmp_path: Path) -> None:
    async with a_ledger(local, tmp_path) as ledger:
        async with ledger.open(an_opening()):
            pass
        [row] = (await usage_rows(local.database)).values()

    assert (row["outcome"], row["input_tokens"], row["cost"]) == ("failed", 0, 0)


@pytest.mark.asyncio
async def test_what_was_refused_has_no_record(local: Store, tmp_path: Path) -> None:
    async with a_ledger(local, tmp_path) as ledger:
        async with ledger.open(an_opening()) as entry:
            entry.refused()
        assert ledger.statistics().num_unrecorded == 0

    assert await usage_rows(local.database) == {}
    assert not any((tmp_path / "journal").glob("*/*"))


@pytest.mark.asyncio
async def test_a_client_that_leaves_does_not_take_its_record_along(
    local: Store, tmp_path: Path
) -> None:
    async with a_ledger(local, tmp_path) as ledger:
        with anyio.CancelScope() as scope:
            async with ledger.open(an_opening()) as entry:
                entry.generated(a_usage(5))
                entry.interrupted(Interruption.CLIENT_GONE)
                scope.cancel()
                await anyio.sleep_forever()
        [row] = (await usage_rows(local.database)).values()

    assert scope.cancelled_caught
    assert (row["outcome"], row["output_tokens"]) == ("client_gone", 5)


@pytest.mark.asyncio
async def test_those_that_close_at_one_time_share_syncs_and_transactions(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await store.create_account(TENANT)
    num_syncs = 0
    sync = SegmentFile.sync

    def counted(segment: SegmentFile) -> None:
        nonlocal num_syncs
        num_syncs += 1
        sync(segment)

    monkeypatch.setattr(SegmentFile, "sync", counted)
    database = Away(store.database)
    async with open_ledger(database, tmp_path / "journal", max_open=100) as ledger:  # type: ignore[arg-type]  # a stand-in

        async def one(number: int) -> None:
            async with ledger.open(an_opening(f"r-{number}")) as entry:
                entry.complete(a_usage(number), "stop")

        async with anyio.create_task_group() as tasks:
            for number in range(100):
                tasks.start_soon(one, number)

    rows = await usage_rows(store.database)
    assert {row["output_tokens"] for row in rows.values()} == set(range(100))
    assert num_syncs <= 5
    assert database.num_attempts <= 5
    assert_sums_agree([*rows.values()], await daily_rows(store.database))


@pytest.mark.asyncio
async def test_nothing_is_left_behind_when_all_is_recorded(local: Store, tmp_path: Path) -> None:
    async with a_ledger(local, tmp_path) as ledger:
        async with ledger.open(an_opening()) as entry:
            entry.complete(a_usage(1), "stop")

    assert [path.name for path in (tmp_path / "journal").iterdir()] == ["lock"]


@pytest.mark.asyncio
async def test_a_journal_is_the_owners_alone(local: Store, tmp_path: Path) -> None:
    async with a_ledger(local, tmp_path):
        paths = [*(tmp_path / "journal").glob("*/*")]
        assert len(paths) == 3
        assert {path.stat().st_mode & 0o077 for path in paths} == {0}
        assert (tmp_path / "journal").stat().st_mode & 0o077 == 0


@pytest.mark.asyncio
async def test_a_database_that_is_away_holds_up_the_first_requests_for_a_moment_and_loses_nothing(
    local: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger_module, "RECORD_WAIT_S", 0.05)
    monkeypatch.setattr(ledger_module, "RETRY_S", 0.01)
    database = Away(local.database)
    async with open_ledger(database, tmp_path / "journal", max_open=10) as ledger:  # type: ignore[arg-type]  # a stand-in
        database.is_away = True
        for number in range(3):
            # terminal events go out: the journal is safe
            async with ledger.open(an_opening(f"r-{number}")) as entry:
                entry.complete(a_usage(number), "stop")
        assert ledger.statistics().is_database_away
        assert ledger.statistics().num_unrecorded == 3
        assert ledger.statistics().lag_s > 0
        assert await usage_rows(local.database) == {}

        database.is_away = False
        await until(lambda: not ledger.statistics().num_unrecorded)
        assert not ledger.statistics().is_database_away
        assert ledger.statistics().lag_s == 0

    assert set(await usage_rows(local.database)) == {"r-0", "r-1", "r-2"}


@pytest.mark.asyncio
async def test_what_cannot_be_recorded_is_not_sold(
    local: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger_module, "RECORD_WAIT_S", 0.01)
    monkeypatch.setattr(ledger_module, "FINISH_S", 0.01)
    database = Away(local.database)
    journals = tmp_path / "journal"
    async with open_ledger(database, journals, max_open=10, max_unrecorded=2) as ledger:  # type: ignore[arg-type]  # a stand-in
        database.is_away = True
        for number in range(2):
            async with ledger.open(an_opening(f"r-{number}")) as entry:
                entry.complete(a_usage(number), "stop")
        with pytest.raises(LedgerUnavailable):
            async with ledger.open(an_opening("r-2")):
                raise AssertionError

    # the next edge finds what this one could not record
    assert await usage_rows(local.database) == {}
    async with a_ledger(local, tmp_path):
        rows = await usage_rows(local.database)
    assert {name: row["output_tokens"] for name, row in rows.items()} == {"r-0": 0, "r-1": 1}


@pytest.mark.asyncio
async def test_more_requests_than_slots_are_refused_until_one_ends(
    local: Store, tmp_path: Path
) -> None:
    async with a_ledger(local, tmp_path, max_open=1) as ledger:
        async with ledger.open(an_opening("r-1")):
            with pytest.raises(CapacityExceeded):
                async with ledger.open(an_opening("r-2")):
                    raise AssertionError
        async with ledger.open(an_opening("r-3")):
            pass

        assert set(await usage_rows(local.database)) == {"r-1", "r-3"}


@pytest.mark.asyncio
async def test_full_segments_are_deleted_when_nobody_needs_them(
    local: Store, tmp_path: Path
) -> None:
    async with a_ledger(local, tmp_path, max_segment_bytes=2000) as ledger:
        [directory] = journals_in(tmp_path)

        async def some(count: int, prefix: str) -> None:
            for number in range(count):
                async with ledger.open(an_opening(f"{prefix}-{number}")) as entry:
                    entry.complete(a_usage(1), "stop")

        await some(30, "early")
        await until(lambda: len(segments_of(directory)) <= 2)

        async with ledger.open(an_opening("long")):
            oldest = segments_of(directory)[-1].name
            await some(30, "meanwhile")
            # from where the open one began, all are kept
            assert segments_of(directory)[0].name == oldest
            assert len(segments_of(directory)) > 3
        await some(2, "late")
        await until(lambda: len(segments_of(directory)) <= 2)
    assert len(await usage_rows(local.database)) == 63


@pytest.mark.asyncio
async def test_refusals_alone_do_not_fill_the_disk(local: Store, tmp_path: Path) -> None:
    async with a_ledger(local, tmp_path, max_segment_bytes=2000) as ledger:
        [directory] = journals_in(tmp_path)
        for number in range(60):
            async with ledger.open(an_opening(f"r-{number}")) as entry:
                entry.refused()
        # of some twelve thousand bytes that were written
        await until(lambda: sum(path.stat().st_size for path in segments_of(directory)) < 5000)


class Disk:
    """What `os` does to files, until it fails."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, call: str) -> None:
        self.is_broken = False
        original: Callable[..., Any] = getattr(os, call)

        def called(*arguments: Any) -> Any:
            if self.is_broken:
                raise OSError(28, "No space left on device")
            return original(*arguments)

        monkeypatch.setattr(f"tenantry_runtime.tenancy.ledger.journal.os.{call}", called)


@pytest.mark.asyncio
async def test_a_request_that_cannot_be_journaled_does_not_run(
    local: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with a_ledger(local, tmp_path, max_open=1) as ledger:
        disk = Disk(monkeypatch, "write")
        disk.is_broken = True
        for _ in range(2):
            with pytest.raises(LedgerUnavailable):
                async with ledger.open(an_opening("r-1")):
                    raise AssertionError
        disk.is_broken = False
        async with ledger.open(an_opening("r-2")) as entry:
            entry.complete(a_usage(1), "stop")

        assert set(await usage_rows(local.database)) == {"r-2"}


@pytest.mark.asyncio
@pytest.mark.parametrize("call", ["write", "fdatasync"])
async def test_a_record_that_the_journal_does_not_take_is_safe_in_the_database(
    local: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    async with a_ledger(local, tmp_path) as ledger:
        disk = Disk(monkeypatch, call)
        async with ledger.open(an_opening("r-1")) as entry:
            disk.is_broken = True
            entry.complete(a_usage(1), "stop")
        assert set(await usage_rows(local.database)) == {"r-1"}
        disk.is_broken = False

        async with ledger.open(an_opening("r-2")) as entry:
            entry.complete(a_usage(1), "stop")
        assert set(await usage_rows(local.database)) == {"r-1", "r-2"}


@pytest.mark.asyncio
async def test_a_record_that_is_nowhere_safe_ends_its_request_with_an_error(
    local: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger_module, "SYNC_WAIT_S", 0.05)
    monkeypatch.setattr(ledger_module, "RETRY_S", 0.01)
    database = Away(local.database)
    async with open_ledger(database, tmp_path / "journal", max_open=10) as ledger:  # type: ignore[arg-type]  # a stand-in
        disk = Disk(monkeypatch, "fdatasync")
        disk.is_broken = database.is_away = True
        with pytest.raises(LedgerUnavailable):
            async with ledger.open(an_opening("r-1")) as entry:
                entry.complete(a_usage(1), "stop")
        database.is_away = False


@pytest.mark.asyncio
async def test_a_directory_that_cannot_be_written_to_is_said_at_the_start(
    local: Store, tmp_path: Path
) -> None:
    in_the_way = tmp_path / "journal"
    in_the_way.touch()

    with pytest.raises(ConfigurationError, match="journal"):
        async with a_ledger(local, tmp_path):
            raise AssertionError


@pytest.mark.asyncio
async def test_times_are_those_of_start_and_end(tmp_path: Path) -> None:
    clock = Clock()
    async with open_store(tmp_path, now_ms=clock) as store:
        await store.create_account(TENANT)
        async with a_ledger(store, tmp_path) as ledger:
            async with ledger.open(an_opening()) as entry:
                clock.now_ms += 1500
                entry.complete(a_usage(1), "stop")
        [row] = (await usage_rows(store.database)).values()

    assert (row["started_ms"], row["ended_ms"]) == (NOON_MS, NOON_MS + 1500)
