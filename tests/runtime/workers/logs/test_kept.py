"""Logs that are kept: found again, by their own worker alone, and never more than agreed."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import msgspec
import pytest

from support.worker_routes import ACCOUNT, a_record, a_version
from tenantry_runtime.core import TenantId
from tenantry_runtime.workers.interface import LogLine
from tenantry_runtime.workers.logs import KeptLogs, LogLimits, LogPage, open_logs
from tenantry_runtime.workers.outcome import Outcome

pytestmark = pytest.mark.asyncio

NOW_S = 1_800_000_000.0
NOW_MS = int(NOW_S * 1000)


class Clock:
    def __init__(self) -> None:
        self.now_s = NOW_S

    def __call__(self) -> float:
        return self.now_s


def said(text: str, at: int = 0, **fields: Any) -> Any:
    lines = [LogLine(level="log", text=text, time_ms=NOW_MS)]
    return a_record(logs=lines, started_ms=NOW_MS + at, **fields)


def texts(page: LogPage) -> list[str]:
    return [msgspec.json.decode(record)["logs"][0]["message"][0] for record in page.records]


async def test_the_newest_are_found_oldest_first(tmp_path: Path) -> None:
    async with open_logs(tmp_path, clock=Clock()) as logs:
        for at in range(5):
            logs.keep(said(str(at), at))
        page = await logs.read(ACCOUNT, "hello", limit=3)
        everything = await logs.read(ACCOUNT, "hello")
    assert (texts(page), page.is_whole) == (["2", "3", "4"], False)
    assert (texts(everything), everything.is_whole) == (["0", "1", "2", "3", "4"], True)


async def test_they_outlive_the_edge(tmp_path: Path) -> None:
    async with open_logs(tmp_path, clock=Clock()) as logs:
        logs.keep(said("before"))
    async with open_logs(tmp_path, clock=Clock()) as logs:
        assert texts(await logs.read(ACCOUNT, "hello")) == ["before"]


async def test_they_are_of_their_own_worker_and_account(tmp_path: Path) -> None:
    async with open_logs(tmp_path, clock=Clock()) as logs:
        logs.keep(said("mine"))
        logs.keep(said("anothers", version=a_version("other")))
        logs.keep(said("a strangers", version=a_version(tenant=TenantId("evil"))))
        assert texts(await logs.read(ACCOUNT, "hello")) == ["mine"]


async def test_they_are_found_by_outcome_text_and_time(tmp_path: Path) -> None:
    async with open_logs(tmp_path, clock=Clock()) as logs:
        logs.keep(said("early needle", -1000))
        logs.keep(said("needle", 0))
        logs.keep(said("failed", 1, outcome=Outcome.CRASHED))
        by_text = await logs.read(ACCOUNT, "hello", search="needle", since_ms=NOW_MS)
        by_outcome = await logs.read(ACCOUNT, "hello", outcomes=frozenset({"unknown"}))
    assert texts(by_text) == ["needle"]
    assert texts(by_outcome) == ["failed"]


async def test_of_many_a_second_some_are_kept_and_the_others_counted(tmp_path: Path) -> None:
    clock = Clock()
    limits = LogLimits(records_per_s=20, plain_records_per_s=5)
    async with open_logs(tmp_path, limits, clock=clock) as logs:
        for _ in range(100):
            logs.keep(a_record(started_ms=NOW_MS))
        for at in range(50):
            logs.keep(said(str(at)))
        page = await logs.read(ACCOUNT, "hello")
        assert (len(page.records), page.dropped) == (20, 130)
        clock.now_s += 1
        logs.keep(said("later", 1000))
        assert texts(await logs.read(ACCOUNT, "hello", limit=1)) == ["later"]


async def test_a_workers_files_stay_within_their_bound(tmp_path: Path) -> None:
    clock = Clock()
    limits = LogLimits(file_bytes=20_000)
    async with open_logs(tmp_path, limits, clock=clock) as logs:
        for at in range(100):
            logs.keep(said("x" * 2000, at))
            await logs.flush()
        page = await logs.read(ACCOUNT, "hello")
    sizes = [file.stat().st_size for file in (tmp_path / ACCOUNT).iterdir()]
    assert len(sizes) == 2
    assert all(size <= 20_000 for size in sizes)
    newest = msgspec.json.decode(page.records[-1])["eventTimestamp"]
    assert newest == NOW_MS + 99
    assert len(page.records) >= 8


async def test_what_waits_to_be_written_is_bounded(tmp_path: Path) -> None:
    logs = KeptLogs(tmp_path, LogLimits(file_bytes=20_000), clock=Clock())
    for _ in range(100):
        logs.keep(said("x" * 2000))
    page = await logs.read(ACCOUNT, "hello")
    assert len(page.records) + page.dropped == 100
    assert len(page.records) < 10


async def test_what_is_too_old_is_neither_shown_nor_kept(tmp_path: Path) -> None:
    clock = Clock()
    logs = KeptLogs(tmp_path, LogLimits(max_age_s=3600), clock=clock)
    logs.keep(said("old"))
    await logs.flush()
    file = tmp_path / ACCOUNT / "hello.jsonl"
    os.utime(file, (NOW_S, NOW_S))
    clock.now_s += 3601
    assert (await logs.read(ACCOUNT, "hello")).records == ()
    await logs.sweep()
    assert not file.exists()


async def test_everything_together_is_bounded_and_the_longest_untouched_goes(
    tmp_path: Path,
) -> None:
    logs = KeptLogs(tmp_path, LogLimits(total_bytes=4000), clock=Clock())
    for at, worker in enumerate(("first", "second", "third")):
        logs.keep(said("x" * 1500, version=a_version(worker)))
        await logs.flush()
        os.utime(tmp_path / ACCOUNT / f"{worker}.jsonl", (NOW_S + at, NOW_S + at))
    await logs.sweep()
    assert (await logs.read(ACCOUNT, "first")).records == ()
    assert len((await logs.read(ACCOUNT, "third")).records) == 1


async def test_a_line_that_was_cut_is_passed_over(tmp_path: Path) -> None:
    async with open_logs(tmp_path, clock=Clock()) as logs:
        logs.keep(said("whole"))
        await logs.flush()
        with (tmp_path / ACCOUNT / "hello.jsonl").open("ab") as file:
            file.write(b'{"outcome":"ok","eventTi')
        assert texts(await logs.read(ACCOUNT, "hello")) == ["whole"]


async def test_a_worker_is_forgotten_when_it_is_deleted(tmp_path: Path) -> None:
    async with open_logs(tmp_path, clock=Clock()) as logs:
        logs.keep(said("written"))
        await logs.flush()
        logs.keep(said("waiting"))
        await logs.forget(ACCOUNT, "hello")
        assert (await logs.read(ACCOUNT, "hello")).records == ()


async def test_files_are_their_owners_alone(tmp_path: Path) -> None:
    async with open_logs(tmp_path / "logs", clock=Clock()) as logs:
        logs.keep(said("mine"))
        await logs.flush()
    assert (tmp_path / "logs" / ACCOUNT).stat().st_mode & 0o777 == 0o700
    assert (tmp_path / "logs" / ACCOUNT / "hello.jsonl").stat().st_mode & 0o777 == 0o600


async def test_a_disk_that_takes_nothing_costs_logs_and_nothing_else(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "logs").write_text("in the way of the directory")
    async with open_logs(tmp_path / "logs", clock=Clock()) as logs:
        logs.keep(said("lost"))
        assert (await logs.read(ACCOUNT, "hello")).records == ()
        logs.keep(said("lost too"))
    assert caplog.text.count("cannot keep workers' logs") == 2


def touch_in_order(*folders: Path) -> None:
    """Make the files of the first folder the longest untouched."""
    files = [file for folder in folders for file in sorted(folder.iterdir())]
    for place, file in enumerate(files):
        os.utime(file, (NOW_S + place, NOW_S + place))


def num_bytes_in(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.iterdir())


async def test_an_account_that_says_much_takes_none_of_the_others_room(tmp_path: Path) -> None:
    limits = LogLimits(account_bytes=3000, total_bytes=4000)
    logs = KeptLogs(tmp_path, limits, clock=Clock())
    logs.keep(said("quiet", version=a_version(tenant=TenantId("other"))))
    await logs.flush()
    for number in range(8):
        logs.keep(said("x" * 700, version=a_version(f"w{number}")))
        await logs.flush()
    touch_in_order(tmp_path / "other", tmp_path / ACCOUNT)

    await logs.sweep()

    assert texts(await logs.read(TenantId("other"), "hello")) == ["quiet"]
    assert 0 < num_bytes_in(tmp_path / ACCOUNT) <= 3000
