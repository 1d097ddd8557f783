"""A node that leaves: what runs finishes, nothing new begins, and it ends in bounded time."""

from __future__ import annotations

import signal
from pathlib import Path

import anyio
import grpc
import pytest

from support.fake_loop import FakeLoopConfig
from support.fake_node import ENDLESS, PATIENCE_S, FakeNode, a_node, a_submit
from support.processes import descendants_of, wait_until_gone
from support.raw_edge import RawEdge, a_raw_edge
from tenantry_runtime.core import FinishReason
from tenantry_runtime.pool.grpc_options import DRAIN, STATISTICS, channel_for
from tenantry_runtime.pool.messages import Failed, Step
from tenantry_runtime.pool.node import STOPPED
from tenantry_runtime.pool.wire import decode_statistics

pytestmark = pytest.mark.cluster

LONG_S = 600.0
SLOW = FakeLoopConfig(step_s=0.02)


async def is_draining(address: str) -> bool:
    async with channel_for(address) as channel:
        answer = await channel.unary_unary(STATISTICS)(b"", timeout=PATIENCE_S)
    return decode_statistics(answer).is_draining


async def until_draining(node: FakeNode) -> None:
    with anyio.fail_after(PATIENCE_S):
        while not await is_draining(node.address):
            pass


async def ended(node: FakeNode) -> int:
    with anyio.fail_after(PATIENCE_S):
        return await node.process.wait()


async def read_tokens(edge: RawEdge, num_tokens: int) -> None:
    while num_tokens > 0:
        step = await edge.read()
        assert isinstance(step, Step), step
        num_tokens -= len(step.sequences[0].token_ids)


@pytest.mark.asyncio
@pytest.mark.parametrize("how", ["SIGTERM", "SIGINT", "Drain"])
async def test_what_runs_finishes_and_new_work_is_refused(tmp_path: Path, how: str) -> None:
    async with (
        a_node(tmp_path, SLOW, drain_s=LONG_S) as node,
        a_raw_edge(node.address) as edge,
    ):
        loop_pid = node.loop_pid
        await edge.send(a_submit("runs", max_tokens=100))
        await read_tokens(edge, 1)
        assert not await is_draining(node.address)
        if how == "Drain":
            async with channel_for(node.address) as channel:
                await channel.unary_unary(DRAIN)(b"", timeout=PATIENCE_S)
        else:
            node.process.send_signal(signal.Signals[how])
        await until_draining(node)

        await edge.send(a_submit("late", max_tokens=1))
        received: list[int] = []
        refused = finish = None
        while finish is None:
            message = await edge.read()
            if isinstance(message, Failed):
                refused = message
                continue
            assert isinstance(message, Step)
            (tokens,) = message.sequences
            received += tokens.token_ids
            finish = tokens.finish

        assert finish == FinishReason.LENGTH
        assert received[-1] == 200
        assert refused == Failed(
            request_id="late", reason="capacity", message="the node is draining"
        )
        assert await edge.status() == (grpc.StatusCode.OK, "")
        assert await ended(node) == STOPPED
        await wait_until_gone(loop_pid)


@pytest.mark.asyncio
async def test_a_second_signal_ends_the_node_at_once(tmp_path: Path) -> None:
    async with (
        a_node(tmp_path, drain_s=LONG_S) as node,
        a_raw_edge(node.address) as edge,
    ):
        await edge.send(a_submit("endless", max_tokens=ENDLESS))
        await read_tokens(edge, 1)
        node.process.send_signal(signal.SIGTERM)
        await until_draining(node)
        pids = descendants_of(node.process.pid)
        node.process.send_signal(signal.SIGTERM)

        with anyio.fail_after(PATIENCE_S):
            while isinstance(message := await edge.read(), Step):
                pass
        assert message == Failed(
            request_id="endless",
            reason="internal",
            message="the node is stopping",
            is_cut_off=True,
        )
        assert await ended(node) == STOPPED
        for pid in pids:
            await wait_until_gone(pid)


@pytest.mark.asyncio
async def test_draining_is_bounded(tmp_path: Path) -> None:
    async with (
        a_node(tmp_path, drain_s=0.3) as node,
        a_raw_edge(node.address) as edge,
    ):
        await edge.send(a_submit("endless", max_tokens=ENDLESS))
        await read_tokens(edge, 1)
        node.process.send_signal(signal.SIGTERM)

        assert await ended(node) == STOPPED


@pytest.mark.asyncio
async def test_an_idle_node_leaves_at_once(tmp_path: Path) -> None:
    async with a_node(tmp_path, drain_s=LONG_S) as node, a_raw_edge(node.address):
        node.process.send_signal(signal.SIGTERM)

        assert await ended(node) == STOPPED
