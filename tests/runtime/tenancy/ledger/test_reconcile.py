"""What journals of dead edges say, whoever reads them and in whatever state they are."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import anyio
import pytest
import pytest_asyncio

from support.ledgers import (
    NOON_MS,
    TENANT,
    Clock,
    a_record,
    assert_sums_agree,
    daily_rows,
    some_facts,
    usage_rows,
)
from tenantry_runtime.tenancy import Store, open_store
from tenantry_runtime.tenancy.ledger.frames import Closed, End, read_segment
from tenantry_runtime.tenancy.ledger.journal import (
    Journal,
    abandoned_journals,
    create_journal,
    delete_journal,
    segments_of,
)
from tenantry_runtime.tenancy.ledger.reconcile import reconcile
from tenantry_runtime.tenancy.ledger.recording import record_usage


@pytest_asyncio.fixture
async def local(tmp_path: Path) -> AsyncIterator[Store]:
    """SQLite alone: for what has nothing to do with the database."""
    async with open_store(tmp_path, now_ms=Clock()) as store:
        await store.create_account(TENANT)
        yield store


@pytest.fixture
def journals(tmp_path: Path) -> Path:
    return tmp_path / "journal"


def a_journal(journals: Path) -> Journal:
    return create_journal(journals, num_slots=4)


def abandon(journal: Journal) -> Path:
    """Leave a journal as a process leaves it that is killed."""
    journal.close(delete=False)
    return journal.directory


def failing(*_: object) -> None:
    raise OSError("it failed")


def names_in(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


def make_remains(journals: Path) -> None:
    """Leave what processes leave that are killed when they begin or end."""
    (journals / "never-locked").mkdir(parents=True)
    (journals / "half-deleted").mkdir()
    (journals / "half-deleted" / "slots").touch()


def open_and_deliver(journal: Journal, request_id: str, output: int) -> None:
    ticket = journal.open(some_facts(request_id))
    assert ticket is not None
    journal.slots.set_cached(ticket.slot, 64)
    journal.slots.deliver(ticket.slot, output, 1)


def open_and_close(journal: Journal, request_id: str) -> None:
    ticket = journal.open(some_facts(request_id))
    assert ticket is not None
    journal.close_request(ticket, a_record(request_id))


@pytest.mark.asyncio
async def test_what_was_open_ends_when_it_is_found_out(local: Store, journals: Path) -> None:
    journal = a_journal(journals)
    open_and_deliver(journal, "r-1", 5)
    abandon(journal)

    assert await reconcile(journals, local.database) == 1

    [row] = (await usage_rows(local.database)).values()
    assert (row["outcome"], row["started_ms"], row["ended_ms"]) == (
        "edge_lost",
        NOON_MS - 1000,
        NOON_MS,
    )
    assert (row["input_tokens"], row["cached_tokens"]) == (100, 64)
    assert (row["output_tokens"], row["reasoning_tokens"]) == (5, 1)
    assert row["cost"] == 36 * 7 + 64 * 3 + 5 * 11


@pytest.mark.asyncio
async def test_the_journal_of_an_edge_that_lives_is_left_alone(
    local: Store, journals: Path
) -> None:
    journal = a_journal(journals)
    open_and_deliver(journal, "r-1", 5)

    assert await reconcile(journals, local.database) == 0

    assert await usage_rows(local.database) == {}
    assert segments_of(journal.directory)
    journal.close(delete=True)


@pytest.mark.asyncio
async def test_those_who_reconcile_at_one_time_do_so_once(store: Store, journals: Path) -> None:
    await store.create_account(TENANT)
    for number in range(4):
        journal = a_journal(journals)
        for index in range(10):
            open_and_close(journal, f"r-{number}-{index}")
        abandon(journal)
    num_new: list[int] = []

    async def one() -> None:
        num_new.append(await reconcile(journals, store.database))

    async with anyio.create_task_group() as tasks:
        for _ in range(3):
            tasks.start_soon(one)

    assert sum(num_new) == 40
    rows = await usage_rows(store.database)
    assert len(rows) == 40
    assert_sums_agree([*rows.values()], await daily_rows(store.database))
    assert names_in(journals) == ["lock"]


def test_a_journal_that_is_taken_over_is_nobody_elses(journals: Path) -> None:
    directory = abandon(a_journal(journals))

    [(taken, lock_fd)] = abandoned_journals(journals)
    assert taken == directory
    assert abandoned_journals(journals) == []

    os.close(lock_fd)
    [(again, lock_fd)] = abandoned_journals(journals)
    assert again == directory
    os.close(lock_fd)


@pytest.mark.asyncio
async def test_what_is_recorded_already_stays_as_it_is(local: Store, journals: Path) -> None:
    await record_usage(local.database, [a_record("r-1", output=9)])
    journal = a_journal(journals)
    open_and_deliver(journal, "r-1", 5)
    abandon(journal)

    assert await reconcile(journals, local.database) == 0

    [row] = (await usage_rows(local.database)).values()
    assert (row["outcome"], row["output_tokens"]) == ("stop", 9)


@pytest.mark.asyncio
async def test_what_was_closed_is_recorded_as_it_was_closed(local: Store, journals: Path) -> None:
    journal = a_journal(journals)
    ticket = journal.open(some_facts("r-1"))
    assert ticket is not None
    journal.slots.deliver(ticket.slot, 5, 0)
    journal.close_request(ticket, a_record("r-1", output=9))
    refused = journal.open(some_facts("r-2"))
    assert refused is not None
    journal.close_request(refused, None)
    abandon(journal)

    assert await reconcile(journals, local.database) == 1

    [row] = (await usage_rows(local.database)).values()
    assert (row["request_id"], row["outcome"], row["output_tokens"]) == ("r-1", "stop", 9)


@pytest.mark.parametrize("can_be_cut", [True, False])
def test_a_frame_that_the_disk_takes_half_of_does_not_hide_the_next(
    journals: Path, monkeypatch: pytest.MonkeyPatch, can_be_cut: bool
) -> None:
    journal = a_journal(journals)
    open_and_close(journal, "r-1")
    with monkeypatch.context() as full:
        write = os.write
        full.setattr(os, "write", lambda fd, content: write(fd, content[: len(content) // 2]))
        if not can_be_cut:
            full.setattr(os, "ftruncate", failing)
        with pytest.raises(OSError, match="room" if can_be_cut else "failed"):
            journal.open(some_facts("r-2"))
    open_and_close(journal, "r-3")

    segments = [read_segment(path.read_bytes()) for path in segments_of(abandon(journal))]
    records = [
        frame.record.request_id
        for segment in segments
        for frame in segment.frames
        if isinstance(frame, Closed) and frame.record is not None
    ]
    assert records == ["r-1", "r-3"]
    assert [segment.end for segment in segments] == (
        [End.WHOLE] if can_be_cut else [End.TORN, End.WHOLE]
    )


@pytest.mark.asyncio
async def test_damage_is_reported_and_kept_and_what_can_be_read_is_recorded(
    local: Store, journals: Path, caplog: pytest.LogCaptureFixture
) -> None:
    journal = a_journal(journals)
    open_and_close(journal, "r-1")
    num_good_bytes = segments_of(journal.directory)[0].stat().st_size
    open_and_close(journal, "r-2")
    open_and_close(journal, "r-3")
    [segment] = segments_of(abandon(journal))
    content = bytearray(segment.read_bytes())
    content[num_good_bytes + 20] ^= 1
    segment.write_bytes(content)

    assert await reconcile(journals, local.database) == 1

    assert set(await usage_rows(local.database)) == {"r-1"}
    assert f"{num_good_bytes} of {len(content)} bytes" in caplog.text
    [kept] = [journals / name for name in names_in(journals) if name.endswith(".damaged")]
    assert kept.read_bytes() == content
    # and is no journal to anybody
    assert await reconcile(journals, local.database) == 0
    assert kept.exists()


@pytest.mark.asyncio
async def test_without_its_slots_a_journal_has_delivered_nothing(
    local: Store, journals: Path, caplog: pytest.LogCaptureFixture
) -> None:
    journal = a_journal(journals)
    open_and_deliver(journal, "r-1", 5)
    open_and_close(journal, "r-2")
    (abandon(journal) / "slots").unlink()

    assert await reconcile(journals, local.database) == 2

    rows = await usage_rows(local.database)
    assert {name: row["output_tokens"] for name, row in rows.items()} == {"r-1": 0, "r-2": 9}
    assert "slots" in caplog.text


@pytest.mark.asyncio
async def test_what_was_never_finished_or_only_half_deleted_is_cleared_away(
    local: Store, journals: Path
) -> None:
    make_remains(journals)
    empty = abandon(a_journal(journals))
    segments_of(empty)[0].write_bytes(b"TJO")

    assert await reconcile(journals, local.database) == 0

    assert names_in(journals) == ["lock"]


@pytest.mark.asyncio
async def test_a_journal_whose_lock_was_taken_away_keeps_its_requests_and_says_so(
    local: Store, journals: Path, caplog: pytest.LogCaptureFixture
) -> None:
    journal = a_journal(journals)
    open_and_close(journal, "r-1")
    directory = abandon(journal)
    (directory / "lock").unlink()

    assert await reconcile(journals, local.database) == 0
    assert segments_of(directory)
    assert f"{directory} has requests and no lock" in caplog.text

    # as the log says
    (directory / "lock").touch()
    assert await reconcile(journals, local.database) == 1


def test_who_looks_for_journals_takes_none_away_that_another_is_deleting(journals: Path) -> None:
    for _ in range(100):
        abandon(a_journal(journals))

    def delete_what_is_free() -> int:
        num_deleted = 0
        for directory, lock_fd in abandoned_journals(journals):
            try:
                delete_journal(directory)
            finally:
                os.close(lock_fd)
            num_deleted += 1
        return num_deleted

    with ThreadPoolExecutor(4) as threads:
        work = [threads.submit(delete_what_is_free) for _ in range(4)]

    assert sum(each.result() for each in work) == 100
    assert names_in(journals) == ["lock"]
