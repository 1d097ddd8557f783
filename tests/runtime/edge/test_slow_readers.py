"""A client that does not read holds up itself alone: the node steps on, and what waits is bounded."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest

from support.chat_stream import read_stream
from support.edges import AsgiCall, Edge, State, an_edge
from support.fake_node import PATIENCE_S, start_process
from support.plain_text import END, KIMI, an_offer
from support.requests import a_body
from support.token_source import FakeTokenSource, Step
from tenantry_runtime.edge.config import Limits
from tenantry_runtime.errors import GenerationFailed
from tenantry_runtime.pool.client import NodeClient, connect

CONTEXT_TOKENS = 1 << 30
PATIENT = Limits(stall_timeout_s=PATIENCE_S)
"""Longer than it takes until so much is unread that the sequence is given up."""


@asynccontextmanager
async def an_endless_edge(
    state: State, folder: Path, limits: Limits, *, step_s: float = 0.0005
) -> AsyncIterator[tuple[Edge, NodeClient]]:
    """An edge before a node process that says `a` for ever."""
    address = f"unix:{folder / 'node.sock'}"
    engine = {"models": [KIMI.id], "token_ids": [ord("a")], "step_s": step_s}
    (folder / "node.json").write_text(json.dumps({"address": address, "engine": engine}))
    offers = [an_offer(context_tokens=CONTEXT_TOKENS)]
    async with (
        start_process("support.scripted_node", str(folder / "node.json")),
        connect(address) as node,
    ):
        await node.ready()
        async with an_edge(state, node, limits=limits, offers=offers) as edge:
            yield edge, node


async def until_alone(node: NodeClient) -> None:
    """Wait until the node runs nothing."""
    with anyio.fail_after(PATIENCE_S):
        while (await node.statistics()).num_running:
            await anyio.lowlevel.checkpoint()


@pytest.mark.asyncio
async def test_others_stream_on_beside_a_client_that_does_not_read(
    state: State, tmp_path: Path
) -> None:
    async with (
        an_endless_edge(state, tmp_path, PATIENT) as (edge, node),
        anyio.create_task_group() as tasks,
    ):
        stuck = AsgiCall(edge=edge, body=a_body(stream=True), takes=False)
        tasks.start_soon(stuck)
        with anyio.fail_after(PATIENCE_S):
            while not (await node.statistics()).num_running:
                await anyio.lowlevel.checkpoint()
            others = [
                AsgiCall(edge=edge, body=a_body(stream=True, max_tokens=50)) for _ in range(4)
            ]
            async with anyio.create_task_group() as streams:
                for other in others:
                    streams.start_soon(other)
        # the one that does not read is still there
        assert (await node.statistics()).num_running == 1
        stuck.leaves.set()
        await until_alone(node)

    assert [read_stream(other.printed.decode()).content for other in others] == ["a" * 50] * 4


@pytest.mark.asyncio
async def test_what_waits_for_a_client_that_does_not_read_is_bounded(
    state: State, tmp_path: Path
) -> None:
    async with (
        an_endless_edge(state, tmp_path, PATIENT, step_s=0.0) as (edge, node),
        anyio.create_task_group() as tasks,
    ):
        stuck = AsgiCall(edge=edge, body=a_body(stream=True), takes=False)
        tasks.start_soon(stuck)
        with anyio.fail_after(PATIENCE_S):
            while not (await node.statistics()).num_running:
                await anyio.lowlevel.checkpoint()
        await until_alone(node)
        # nobody has left, or been given up: the node was told to stop because so much was unread
        assert edge.services.open_requests.statistics().num_open == 1
        stuck.leaves.set()

    assert not stuck.is_complete


@pytest.mark.asyncio
async def test_a_client_that_takes_nothing_for_too_long_is_given_up_and_its_sequence_ends(
    state: State, tmp_path: Path
) -> None:
    limits = Limits(stall_timeout_s=0.1)
    async with an_endless_edge(state, tmp_path, limits) as (edge, node):
        stuck = AsgiCall(edge=edge, body=a_body(stream=True), takes=False)
        with anyio.fail_after(PATIENCE_S):
            await stuck()
        await until_alone(node)
        assert edge.services.open_requests.statistics().num_open == 0

    assert not stuck.is_complete


@pytest.mark.asyncio
@pytest.mark.parametrize("last", [END, GenerationFailed("x")], ids=["answer", "error"])
async def test_a_client_that_does_not_take_a_whole_answer_holds_no_place_for_ever(
    state: State, last: Step
) -> None:
    async with an_edge(state, FakeTokenSource(last), limits=Limits(stall_timeout_s=0.05)) as edge:
        stuck = AsgiCall(edge=edge, body=a_body(), takes=False)
        with anyio.fail_after(PATIENCE_S):
            await stuck()
        assert edge.services.open_requests.statistics().num_open == 0

    assert not stuck.is_complete
