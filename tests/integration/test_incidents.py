"""What is kept of nodes that are killed or drained under load, by real edges and nodes."""

from __future__ import annotations

import re
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import anyio
import httpx
import pytest
from anyio.abc import Process

from support.edge_process import EdgeProcess, a_scripted_node, an_edge_process
from support.edges import ACCOUNT, RUN
from support.requests import a_body
from tenantry_runtime.tenancy import IncidentRecord, open_store

pytestmark = pytest.mark.cluster

NUM_STREAMS = 12
ENDLESS_TOKENS = 100_000
PATIENCE_S = 60.0
NODES = ("one", "two")


@dataclass(slots=True, eq=False)
class Stream:
    """One request, as its client knows it."""

    trace_id: str
    request_id: str = ""
    node: str = ""
    is_broken: bool = False


def node_of(headers: httpx.Headers) -> str:
    """Return the folder of the node that a response names; its scripted nodes run requests whole."""
    [folder] = set(re.findall(r"/(one|two)/node\.sock", headers["x-tenantry-member"]))
    return str(folder)


async def incidents(edge: EdgeProcess) -> list[IncidentRecord]:
    async with open_store(edge.state.directory) as store:
        return await store.incidents.list()


class Streams:
    """Requests that go on until their node does not."""

    def __init__(self, edge: EdgeProcess) -> None:
        self._edge = edge
        self.all = [Stream(trace_id=f"{number:032x}") for number in range(1, NUM_STREAMS + 1)]
        self.have_begun = anyio.Event()
        self._changed = anyio.Event()

    def at(self, node: str) -> list[Stream]:
        return [each for each in self.all if each.node == node]

    async def run(self, stream: Stream) -> None:
        headers = {"traceparent": f"00-{stream.trace_id}-00f067aa0ba902b7-01"}
        body = a_body(stream=True, max_tokens=ENDLESS_TOKENS)
        async with (
            self._edge.client() as client,
            client.stream("POST", RUN, content=body, headers=headers) as response,
        ):
            assert response.status_code == 200
            lines = response.aiter_lines()
            await anext(lines)
            stream.node = node_of(response.headers)
            stream.request_id = response.headers["cf-ai-req-id"]
            if all(each.node for each in self.all):
                self.have_begun.set()
            async for line in lines:
                stream.is_broken = stream.is_broken or '"error' in line
        self._changed.set()
        self._changed = anyio.Event()

    async def until_broken(self, node: str) -> None:
        """Wait until all that ran on a node have ended with an error."""
        with anyio.fail_after(PATIENCE_S):
            while not all(each.is_broken for each in self.at(node)):
                await self._changed.wait()


@asynccontextmanager
async def two_nodes(folder: Path) -> AsyncIterator[tuple[EdgeProcess, Process]]:
    """Run an edge and nodes "one" and "two"; yield the edge when it has met both, and node "one"."""
    for name in NODES:
        (folder / name).mkdir()
    addresses = [f"unix:{folder / name / 'node.sock'}" for name in NODES]
    async with (
        an_edge_process(
            folder,
            nodes=addresses,
            show_routing=True,
            context_tokens=1 << 30,
            liveness={"ask_every_s": 0.05},
            grace_s=0.5,
        ) as edge,
        a_scripted_node(folder / "one", "a", step_s=0.01) as one,
        a_scripted_node(folder / "two", "a", step_s=0.01),
    ):
        with anyio.fail_after(PATIENCE_S):
            while edge.log.text.count("connected to node") < len(NODES):
                await edge.log.grown()
        yield edge, one


@asynccontextmanager
async def under_load(edge: EdgeProcess) -> AsyncIterator[Streams]:
    """Yield when every stream has a token; what still runs at the end, its client leaves."""
    streams = Streams(edge)
    async with anyio.create_task_group() as tasks:
        for stream in streams.all:
            tasks.start_soon(streams.run, stream)
        with anyio.fail_after(PATIENCE_S):
            await streams.have_begun.wait()
        # both have some
        assert 0 < len(streams.at("one")) < NUM_STREAMS
        yield streams
        tasks.cancel_scope.cancel()


@pytest.mark.asyncio
async def test_a_node_killed_under_load_is_one_incident_with_the_requests_that_ran_there(
    tmp_path: Path,
) -> None:
    async with two_nodes(tmp_path) as (edge, victim):
        async with under_load(edge) as streams:
            victim.send_signal(signal.SIGKILL)
            await streams.until_broken("one")
        # what it has not recorded yet it records when it ends
        await edge.end()

    there = streams.at("one")
    [lost] = await incidents(edge)
    assert (lost.kind, lost.node) == ("node_lost", f"unix:{tmp_path / 'one' / 'node.sock'}")
    assert (lost.tenants, lost.ended_ms) == ((ACCOUNT,), None)
    assert sorted(lost.request_ids) == sorted(each.request_id for each in there)
    assert sorted(lost.trace_ids) == [each.trace_id for each in there]
    # all had tokens, so that none could go on elsewhere
    assert lost.facts == {"unfinished": len(there), "carried": 0}


@pytest.mark.asyncio
async def test_a_node_told_to_leave_at_once_is_one_drain_with_what_it_cut_off(
    tmp_path: Path,
) -> None:
    async with two_nodes(tmp_path) as (edge, leaving):
        async with under_load(edge) as streams:
            leaving.send_signal(signal.SIGTERM)
            await edge.log.says(": drain ")
            leaving.send_signal(signal.SIGTERM)
            await streams.until_broken("one")
        with anyio.fail_after(PATIENCE_S):
            await leaving.wait()
            await edge.log.says("lost node")
        await edge.end()

    there = streams.at("one")
    [drain] = await incidents(edge)
    assert (drain.kind, drain.node) == ("drain", f"unix:{tmp_path / 'one' / 'node.sock'}")
    assert drain.ended_ms is not None
    assert sorted(drain.request_ids) == sorted(each.request_id for each in there)
    assert drain.facts["cut_off"] == len(there)
