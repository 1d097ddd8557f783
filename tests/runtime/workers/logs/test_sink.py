"""An edge's sink: what an engine tells is kept, and comes to those who listen."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.worker_routes import ACCOUNT, a_record
from tenantry_runtime.workers.interface import LogLine
from tenantry_runtime.workers.logs import (
    LogLimits,
    Tail,
    TailBroker,
    TailFilters,
    WorkerLogs,
    open_logs,
    open_worker_logs,
)

pytestmark = pytest.mark.asyncio


def said(text: str) -> list[LogLine]:
    return [LogLine(level="log", text=text, time_ms=0)]


def listening(logs: WorkerLogs) -> Tail:
    tail = logs.tails.open(ACCOUNT, "hello", TailFilters())
    tail.is_connected = True
    return tail


async def test_what_is_kept_and_what_is_listened_to_are_one_line(tmp_path: Path) -> None:
    async with open_worker_logs(tmp_path, LogLimits(max_age_s=1e12)) as logs:
        tail = listening(logs)
        logs.record(a_record(logs=said("hello")))
        message = await tail.next()
        page = await logs.kept.read(ACCOUNT, "hello")
    assert message is not None and b'"hello"' in message
    assert [bytes(record) for record in page.records] == [message]


async def test_what_is_too_much_to_be_kept_is_told_to_those_who_listen(tmp_path: Path) -> None:
    limits = LogLimits(records_per_s=1, file_bytes=1000, max_age_s=1e12)
    async with open_logs(tmp_path, limits, clock=lambda: 0.0) as kept:
        logs = WorkerLogs(kept, TailBroker())
        tail = listening(logs)
        for text in ("x" * 2000, "second"):
            logs.record(a_record(logs=said(text)))
            message = await tail.next()
            assert message is not None and text.encode() in message
        page = await kept.read(ACCOUNT, "hello")
    assert page.records == ()


async def test_a_record_that_cannot_be_told_does_not_end_the_engine(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_worker_logs(tmp_path) as logs:
        logs.record(a_record(logs=said("\ud800")))
    assert "lost a record of worker hello" in caplog.text
