"""Incidents on their way to the store."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import anyio
import pytest

from tenantry_runtime.edge.incidents import IncidentRecorder, NodeIncidents, recording
from tenantry_runtime.edge.incidents.recorder import MAX_AT_ONCE, MAX_PENDING
from tenantry_runtime.edge.nodes import Nodes
from tenantry_runtime.errors import StoreUnavailable
from tenantry_runtime.pool.messages import Incident, NodeStatistics
from tenantry_runtime.tenancy import IncidentKind, IncidentRecord, open_store

PATIENCE_S = 30.0


def a_record(number: int, **changes: object) -> IncidentRecord:
    record = IncidentRecord(
        id=f"i{number}", kind=IncidentKind.NODE_LOST, began_ms=number, seen_ms=number
    )
    return replace(record, **changes)  # type: ignore[arg-type]


class Sink:
    """A store that keeps what it is told, or fails as often as a test says."""

    def __init__(self, *failures: Exception) -> None:
        self.kept: list[IncidentRecord] = []
        self.num_calls = 0
        self._failures = list(failures)
        self._has_grown = anyio.Event()

    async def record(self, records: Iterable[IncidentRecord]) -> None:
        self.num_calls += 1
        await anyio.lowlevel.checkpoint()
        if self._failures:
            raise self._failures.pop(0)
        self.kept += records
        self._has_grown.set()
        self._has_grown = anyio.Event()

    async def has(self, count: int) -> None:
        with anyio.fail_after(PATIENCE_S):
            while len(self.kept) < count:
                await self._has_grown.wait()


@pytest.mark.asyncio
async def test_what_one_becomes_before_it_is_recorded_is_recorded_alone() -> None:
    sink = Sink()
    async with recording(sink) as recorder:
        recorder.begin(a_record(1))
        recorder.begin(a_record(2))
        recorder.update(a_record(1, ended_ms=9))
        await sink.has(2)
        await anyio.wait_all_tasks_blocked()

    assert sink.kept == [a_record(1, ended_ms=9), a_record(2)]
    assert recorder.counts == {"integrity": 0, "node_lost": 2, "drain": 0, "quota_storm": 0}


@pytest.mark.asyncio
async def test_what_one_becomes_while_it_is_recorded_is_recorded_after() -> None:
    class Slow(Sink):
        async def record(self, records: Iterable[IncidentRecord]) -> None:
            if not self.kept:
                recorder.update(a_record(1, ended_ms=9))
            await super().record(records)

    sink = Slow()
    async with recording(sink) as recorder:
        recorder.begin(a_record(1))
        await sink.has(2)

    assert sink.kept == [a_record(1), a_record(1, ended_ms=9)]


@pytest.mark.asyncio
async def test_what_waits_when_the_edge_ends_is_recorded_first() -> None:
    sink = Sink()
    async with recording(sink) as recorder:
        for number in range(MAX_AT_ONCE + 1):
            recorder.begin(a_record(number))

    assert len(sink.kept) == MAX_AT_ONCE + 1


@pytest.mark.asyncio
async def test_what_the_store_does_not_take_now_it_takes_later() -> None:
    sink = Sink(*[StoreUnavailable("away")] * 3)
    recorder = IncidentRecorder(sink, first_pause_s=0.001)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(recorder.run)
        recorder.begin(a_record(1))
        await sink.has(1)
        tasks.cancel_scope.cancel()

    assert sink.num_calls == 4
    assert recorder.num_pending == 0


@pytest.mark.asyncio
async def test_what_the_store_cannot_take_keeps_nothing_else_from_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    sink = Sink(ValueError("too long"))
    async with recording(sink) as recorder:
        with caplog.at_level(logging.ERROR):
            recorder.begin(a_record(1))
            await anyio.wait_all_tasks_blocked()
            recorder.begin(a_record(2))
            await sink.has(1)

    assert sink.kept == [a_record(2)]
    assert "lost incidents" in caplog.text


def test_while_the_store_is_away_no_more_waits_than_there_may() -> None:
    recorder = IncidentRecorder(Sink())
    for number in range(MAX_PENDING + 10):
        recorder.begin(a_record(number))
    recorder.update(a_record(MAX_PENDING, ended_ms=9))

    assert recorder.num_pending == MAX_PENDING


@pytest.mark.asyncio
async def test_incidents_of_nodes_are_in_the_store(tmp_path: Path) -> None:
    incident = Incident(
        time_s=1000.0,
        model="m",
        request_id="r#0#1",
        tenant="acme",
        step=1,
        op="decode read",
        logical_page=1,
        page=17,
        found=("tag",),
    )
    told = NodeStatistics(
        loop_turn_ns=1,
        num_running=0,
        num_waiting=0,
        num_free_pages={},
        incidents=(incident,),
        incarnation=5,
    )
    async with open_store(tmp_path) as store:
        async with recording(store.incidents) as recorder:
            nodes = Nodes(incidents=NodeIncidents(recorder, edge="here"))
            nodes.reported("unix:/node", told)
            nodes.reported("unix:/node", told)
        kept = await store.incidents.list(account="acme")

    assert [(each.node, each.began_ms, each.request_ids) for each in kept] == [
        ("unix:/node", 1_000_000, ("r",))
    ]
