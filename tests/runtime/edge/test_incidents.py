"""Incidents on their way from nodes to the store."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from pathlib import Path

import anyio
import pytest

from tenantry_runtime.edge.incidents import MAX_PENDING, IncidentRecorder, recording
from tenantry_runtime.edge.nodes import Nodes
from tenantry_runtime.errors import StoreUnavailable
from tenantry_runtime.pool.messages import Incident, NodeStatistics
from tenantry_runtime.tenancy import open_store

PATIENCE_S = 30.0


def an_incident(step: int, *, request_id: str = "r") -> Incident:
    return Incident(
        time_s=1000.0,
        model="m",
        request_id=request_id,
        tenant="acme",
        step=step,
        op="decode read",
        logical_page=1,
        page=17,
        found=("tag",),
    )


def statistics(*incidents: Incident, incarnation: int = 5) -> NodeStatistics:
    return NodeStatistics(
        loop_turn_ns=1,
        num_running=0,
        num_waiting=0,
        num_free_pages={},
        incidents=incidents,
        incarnation=incarnation,
    )


class Sink:
    """A store that keeps what it is told, or fails as often as a test says."""

    def __init__(self, *failures: Exception) -> None:
        self.kept: list[tuple[str, int, Incident]] = []
        self.num_calls = 0
        self._failures = list(failures)
        self._has_grown = anyio.Event()

    async def record(self, node: str, incarnation: int, incidents: Iterable[Incident]) -> None:
        self.num_calls += 1
        await anyio.lowlevel.checkpoint()
        if self._failures:
            raise self._failures.pop(0)
        self.kept += [(node, incarnation, incident) for incident in incidents]
        self._has_grown.set()
        self._has_grown = anyio.Event()

    async def has(self, count: int) -> None:
        with anyio.fail_after(PATIENCE_S):
            while len(self.kept) < count:
                await self._has_grown.wait()


@pytest.mark.asyncio
async def test_what_is_told_again_and_again_is_recorded_once() -> None:
    sink = Sink()
    async with recording(sink) as recorder:
        for _ in range(3):
            recorder.hear("node", statistics(an_incident(1), an_incident(2)))
            await anyio.wait_all_tasks_blocked()
        recorder.hear("node", statistics(an_incident(2), an_incident(3)))
        await sink.has(3)

    assert [(node, life, each.step) for node, life, each in sink.kept] == [
        ("node", 5, 1),
        ("node", 5, 2),
        ("node", 5, 3),
    ]


@pytest.mark.asyncio
async def test_lives_of_a_node_are_told_apart() -> None:
    sink = Sink()
    async with recording(sink) as recorder:
        recorder.hear("node", statistics(an_incident(1), incarnation=5))
        recorder.hear("node", statistics(an_incident(1), incarnation=6))
        await sink.has(2)

    assert {(node, life) for node, life, _ in sink.kept} == {("node", 5), ("node", 6)}


@pytest.mark.asyncio
async def test_a_request_is_named_as_its_client_knows_it() -> None:
    sink = Sink()
    async with recording(sink) as recorder:
        recorder.hear("node", statistics(an_incident(1, request_id="abc#4#17")))
        await sink.has(1)

    assert sink.kept[0][2].request_id == "abc"


@pytest.mark.asyncio
async def test_what_the_store_does_not_take_now_it_takes_later() -> None:
    sink = Sink(*[StoreUnavailable("away")] * 3)
    recorder = IncidentRecorder(sink, first_pause_s=0.001)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(recorder.run)
        recorder.hear("node", statistics(an_incident(1)))
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
            recorder.hear("node", statistics(an_incident(1)))
            await anyio.wait_all_tasks_blocked()
            recorder.hear("node", statistics(an_incident(2)))
            await sink.has(1)

    assert [each.step for _, _, each in sink.kept] == [2]
    assert "lost incidents of node node" in caplog.text


def test_while_the_store_is_away_no_more_waits_than_there_may() -> None:
    recorder = IncidentRecorder(Sink())
    for step in range(MAX_PENDING + 10):
        recorder.hear("node", statistics(an_incident(step)))

    assert recorder.num_pending == MAX_PENDING


@pytest.mark.asyncio
async def test_incidents_of_nodes_are_in_the_store(tmp_path: Path) -> None:
    async with open_store(tmp_path) as store, recording(store.incidents) as recorder:
        nodes = Nodes(incidents=recorder)
        nodes.reported("unix:/node", statistics(an_incident(1)))
        with anyio.fail_after(PATIENCE_S):
            while recorder.num_pending:
                await anyio.lowlevel.checkpoint()
        kept = await store.incidents.list(account="acme")

    assert [(each.node, each.time_ms, each.op) for each in kept] == [
        ("unix:/node", 1_000_000, "decode read")
    ]
