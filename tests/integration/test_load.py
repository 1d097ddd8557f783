"""Two hundred tenants with five streams each, all at once, through an edge and a node."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import anyio
import pytest

from support.cluster import KIMI, Cluster, Layout, Node, a_cluster
from support.conversations import Tenant, make_tenants
from support.fake_node import PATIENCE_S
from support.load import Load, Stream, num_sockets, resident_mib
from support.processes import children_of, descendants_of
from tenantry_runtime.errors import NodeUnavailable

pytestmark = pytest.mark.ledger

NUM_TENANTS = 200
NUM_STREAMS = 5
MAX_TOKENS = 10
PROMPTS = [f"What is {number} + {3 * number + 7}?" for number in range(40)]

MAX_BATCH, MAX_WAITING = 64, 400

LAYOUT = Layout(
    phases={"node": ("prefill", "decode")},
    engine={
        "max_batch": MAX_BATCH,
        "max_waiting": MAX_WAITING,
        "num_pages": 512,
        "chunk_tokens": 256,
    },
    # a comment makes a stream of what may still be a refusal, and clients come back to those alone
    edge={"limits": {"keep_alive_s": 600.0}},
)

SLOWEST = 3.0
"""When the last answer has come, as a multiple of when half of them have: 2 where answers come evenly."""

LATEST_FIRST = 0.4
"""Of all answers, what may come before the first one of any tenant: a fifth where everybody has one before
anybody has two. Where a full queue is whoever's asks first, the unluckiest of 200 waits for 0.7 of them."""

GROWTH_MIB = 16.0
"""Of a process while it serves as many again: 17 KiB that stay of each request are seen."""


@dataclass(slots=True)
class Watch:
    """The most that a node was seen to have at one time."""

    num_looks: int = 0
    num_waiting: int = 0
    num_running: int = 0


async def follow(node: Node, watch: Watch) -> None:
    while True:
        # this process may be too busy with a thousand answers to wait for one more
        with suppress(NodeUnavailable):
            statistics = await node.client.statistics()
            watch.num_looks += 1
            watch.num_waiting = max(watch.num_waiting, statistics.num_waiting)
            watch.num_running = max(watch.num_running, statistics.num_running)
        # as often as its statistics change
        await anyio.sleep(0.25)


@asynccontextmanager
async def watching(node: Node) -> AsyncIterator[Watch]:
    watch = Watch()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(follow, node, watch)
        yield watch
        tasks.cancel_scope.cancel()


def processes_of(cluster: Cluster) -> dict[str, int]:
    front = cluster.nodes["node"].process.pid
    (loop,) = children_of(front)
    return {"edge": cluster.edge.process.pid, "front": front, "loop": loop}


async def told_alone(cluster: Cluster, tenant: Tenant) -> dict[str, Stream]:
    """Return what the model says to each prompt when it has nothing else to do."""
    told = {prompt: Stream(tenant=tenant, prompt=prompt) for prompt in PROMPTS}
    for stream in told.values():
        await Load(edge=cluster.edge, model=KIMI, max_tokens=MAX_TOKENS, streams=[stream]).run()
    return told


async def wave(cluster: Cluster, tenants: Sequence[Tenant], *, at_once: int) -> Load:
    """Let all tenants ask, so many of them at once; return when all are answered."""
    streams = [
        Stream(tenant=tenants[number % NUM_TENANTS], prompt=PROMPTS[7 * number % len(PROMPTS)])
        for number in range(NUM_TENANTS * NUM_STREAMS)
    ]
    load = Load(
        edge=cluster.edge, model=KIMI, max_tokens=MAX_TOKENS, streams=streams, at_once=at_once
    )
    await load.run()
    return load


def check_answers(load: Load, alone: dict[str, Stream]) -> None:
    for stream in load.streams:
        expected = alone[stream.prompt]
        assert stream.text == expected.text
        assert stream.finish_reason == expected.finish_reason
        assert stream.completion_tokens == expected.completion_tokens == MAX_TOKENS


def check_nobody_starves(load: Load) -> None:
    streams = sorted(load.streams, key=lambda stream: stream.ended_s)
    assert streams[-1].ended_s <= SLOWEST * median(stream.ended_s for stream in streams)
    served: set[Tenant] = set()
    for num_before, stream in enumerate(streams):
        served.add(stream.tenant)
        if len(served) == NUM_TENANTS:
            assert num_before <= LATEST_FIRST * len(streams)
            return
    raise AssertionError("not everybody was served")


def check_nothing_is_left(pids: Collection[int], folder: Path) -> None:
    assert not [pid for pid in pids if Path(f"/proc/{pid}").exists()]
    assert not list(folder.glob("*.sock"))


async def until_sockets_are(
    cluster: Cluster, pids: dict[str, int], expected: dict[str, int]
) -> None:
    """Wait until no process has more sockets than it had before anybody asked."""
    with anyio.fail_after(PATIENCE_S):
        while any(num_sockets(pid) > expected[name] for name, pid in pids.items()):
            # servers notice in their own time that clients are gone
            await cluster.nodes["node"].client.statistics()


@pytest.mark.asyncio
async def test_a_thousand_streams_are_answered_right_within_bounds(tmp_path: Path) -> None:
    async with a_cluster(tmp_path, LAYOUT) as cluster:
        tenants = await make_tenants(cluster.edge, NUM_TENANTS)
        pids = processes_of(cluster)
        alone = await told_alone(cluster, tenants[0])
        sockets = {name: num_sockets(pid) for name, pid in pids.items()}

        async with watching(cluster.nodes["node"]) as watch:
            load = await wave(cluster, tenants, at_once=NUM_TENANTS * NUM_STREAMS)
            before = {name: resident_mib(pid) for name, pid in pids.items()}
            # fewer at once: what an allocator keeps of a crowd differs by more than what is looked for
            again = await wave(cluster, tenants, at_once=MAX_BATCH)
            after = {name: resident_mib(pid) for name, pid in pids.items()}
        await cluster.until_idle()

        assert watch.num_looks
        check_answers(load, alone)
        check_answers(again, alone)
        check_nobody_starves(load)
        assert load.num_refusals, "the queue was full at times"
        assert watch.num_waiting <= MAX_WAITING
        assert watch.num_running <= MAX_BATCH
        grown = {name: after[name] - before[name] for name in pids}
        assert max(grown.values()) <= GROWTH_MIB, grown
        await until_sockets_are(cluster, pids, sockets)
        everybody = {pid for parent in pids.values() for pid in (parent, *descendants_of(parent))}
    check_nothing_is_left(everybody, tmp_path)
