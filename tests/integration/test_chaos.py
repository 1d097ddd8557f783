"""Whatever happens to a node or to its messages: the right answer, or an error that says so."""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import anyio
import httpx
import pytest

from support.cluster import Cluster, Layout, Node, a_cluster
from support.conversations import Ask, Told, ask_all, ask_one, make_tenants, prompts
from support.held_push import Hold, Spoil, Spoiler, cut_short, flip_a_bit, lost, twice
from support.processes import wait_until_gone
from tenantry_runtime.pool.push_frames import Kind

pytestmark = pytest.mark.cluster

LAYOUT = Layout(
    phases={"p0": ("prefill",), "p1": ("prefill",), "d0": ("decode",), "d1": ("decode",)},
    source={"prefill_cache": "bf16", "cache": "fp8"},
    engine={"chunk_tokens": 64, "num_pages": 512},
    meddled=frozenset({"d0", "d1"}),
)
IMPATIENT = {
    "liveness": {
        "ask_every_s": 0.5,
        "stale_after_s": 4.0,
        "lost_after_s": 6.0,
        "keepalive_interval_s": 2.0,
        "keepalive_timeout_s": 2.0,
    }
}
"""So that a node that stands still is given up within seconds."""

HOLDS = {
    "reserved": lambda: Hold(kind=Kind.OPEN),
    "mid-push": lambda: Hold(kind=Kind.PAGES, number=2),
    "pushed": lambda: Hold(kind=Kind.END),
}
STATES = pytest.mark.parametrize("state", HOLDS)
PHASES = pytest.mark.parametrize("phase", ["prefill", "decode"])
NUM_OTHERS = 6


async def some_asks(cluster: Cluster, *, seed: int = 1) -> list[Ask]:
    """One request of many pages, and others of two tenants."""
    tenants = await make_tenants(cluster.edge, 2)
    return [
        Ask(tenant=tenants[number % 2], prompt=prompt, max_tokens=64)
        for number, prompt in enumerate(prompts(seed, NUM_OTHERS + 1, longest=250))
    ]


async def busy_node(cluster: Cluster, phase: str) -> Node:
    """Return the node whose member of the phase has a sequence."""
    with anyio.fail_after(30):
        while True:
            for node in cluster.nodes.values():
                for load in (await node.client.statistics()).loads:
                    if load.phase == phase and load.num_sequences:
                        return node


@asynccontextmanager
async def held(
    cluster: Cluster, state: str, ask: Ask, told: Told
) -> AsyncIterator[tuple[Hold, anyio.CancelScope]]:
    """Ask, and yield when the hand-off stands still in the state; wait for the answer at the end.

    The scope is the client's: cancel it, and the client is gone.
    """
    hold = HOLDS[state]()
    for node in cluster.nodes.values():
        if node.meddler is not None:
            node.meddler.meddle = hold
    async with (
        httpx.AsyncClient(base_url=cluster.edge.url, timeout=120) as client,
        anyio.create_task_group() as tasks,
    ):
        scope = anyio.CancelScope()

        async def in_scope() -> None:
            with scope:
                await ask_one(client, ask, told)

        tasks.start_soon(in_scope)
        with anyio.fail_after(60):
            await hold.is_reached.wait()
        yield hold, scope


def check(told: Told, right: Told) -> None:
    """An answer is whole and right, or ends with an error before anything wrong."""
    if told.error is None:
        assert told.is_whole
        assert told.text == right.text
        assert told.usage["completion_tokens"] == right.usage["completion_tokens"]
    else:
        assert not told.is_whole
        assert right.text.startswith(told.text)


def check_all(told: Sequence[Told], right: Sequence[Told]) -> None:
    for one, other in zip(told, right, strict=True):
        check(one, other)


@pytest.mark.asyncio
@STATES
@PHASES
async def test_a_node_killed_before_the_first_token_costs_nobody_an_answer(
    tmp_path: Path, phase: str, state: str
) -> None:
    async with a_cluster(tmp_path, LAYOUT) as cluster:
        asks = await some_asks(cluster)
        right = await ask_all(cluster.edge, asks)
        # another tenant: nothing of it is cached anywhere
        first, *others = [replace(ask, tenant=asks[1].tenant) for ask in asks]
        told = Told()
        async with held(cluster, state, first, told) as (hold, _):
            victim = await busy_node(cluster, phase)
            victim.signal_all(signal.SIGKILL)
            await wait_until_gone(victim.process.pid)
            hold.let_go.set()
            rest = await ask_all(cluster.edge, others)
        assert (told.error, told.text) == (None, right[0].text)
        assert [each.text for each in rest] == [each.text for each in right[1:]]
        await cluster.until_idle(*(name for name in cluster.nodes if name != victim.name))


@pytest.mark.asyncio
@STATES
@PHASES
async def test_a_node_that_stands_still_harms_nobody_and_is_clean_when_it_goes_on(
    tmp_path: Path, phase: str, state: str
) -> None:
    async with a_cluster(tmp_path, replace(LAYOUT, edge=IMPATIENT)) as cluster:
        asks = await some_asks(cluster, seed=2)
        right = await ask_all(cluster.edge, asks)
        first, *others = [replace(ask, tenant=asks[1].tenant) for ask in asks]
        told = Told()
        async with held(cluster, state, first, told) as (hold, _):
            victim = await busy_node(cluster, phase)
            victim.signal_all(signal.SIGSTOP)
            hold.let_go.set()
            rest = await ask_all(cluster.edge, others)
        victim.signal_all(signal.SIGCONT)
        check_all([told, *rest], right)
        await cluster.until_idle()
        # and everybody is served again
        assert [each.text for each in await ask_all(cluster.edge, asks)] == [
            each.text for each in right
        ]


@pytest.mark.asyncio
@STATES
async def test_a_client_that_leaves_takes_its_pages_along(tmp_path: Path, state: str) -> None:
    async with a_cluster(tmp_path, LAYOUT) as cluster:
        asks = await some_asks(cluster, seed=3)
        async with held(cluster, state, asks[0], Told()) as (hold, client):
            client.cancel()
            for phase in ("prefill", "decode"):
                await until_nothing_runs(cluster, phase)
            # what was on its way comes late
            hold.let_go.set()
        await cluster.until_idle()
        told = await ask_all(cluster.edge, asks)
        assert all(each.is_whole for each in told)


async def until_nothing_runs(cluster: Cluster, phase: str) -> None:
    with anyio.fail_after(30):
        while True:
            loads = [
                load.num_sequences
                for node in cluster.nodes.values()
                for load in (await node.client.statistics()).loads
                if load.phase == phase
            ]
            if not any(loads):
                return


@pytest.mark.asyncio
async def test_a_decode_node_killed_while_it_streams_ends_its_streams_with_an_error(
    tmp_path: Path,
) -> None:
    async with a_cluster(tmp_path, LAYOUT) as cluster:
        asks = [replace(ask, max_tokens=400) for ask in await some_asks(cluster, seed=4)]
        right = await ask_all(cluster.edge, asks)
        told = [Told() for _ in asks]
        async with (
            httpx.AsyncClient(base_url=cluster.edge.url, timeout=120) as client,
            anyio.create_task_group() as tasks,
        ):
            for ask, one in zip(asks, told, strict=True):
                tasks.start_soon(ask_one, client, ask, one)
            victim = await busy_node(cluster, "decode")
            victim.signal_all(signal.SIGKILL)
        check_all(told, right)
        await cluster.until_idle(*(name for name in cluster.nodes if name != victim.name))


@pytest.mark.asyncio
@pytest.mark.parametrize("spoil", [flip_a_bit, cut_short, twice, lost])
async def test_spoiled_pages_are_never_read(tmp_path: Path, spoil: Spoil) -> None:
    async with a_cluster(tmp_path, LAYOUT) as cluster:
        asks = await some_asks(cluster, seed=5)
        right = await ask_all(cluster.edge, asks)
        spoiler = Spoiler(spoil=spoil, share=0.1, seed=1)
        for node in cluster.nodes.values():
            if node.meddler is not None:
                node.meddler.meddle = spoiler
        told = await ask_all(cluster.edge, [replace(ask, tenant=asks[1].tenant) for ask in asks])
        assert spoiler.num_spoiled
        check_all(told, right)
        await cluster.until_idle()


@pytest.mark.asyncio
async def test_a_member_with_many_mismatches_stops_taking_work_and_starts_no_storm(
    tmp_path: Path,
) -> None:
    async with a_cluster(tmp_path, LAYOUT) as cluster:
        tenants = await make_tenants(cluster.edge, 4)
        asks = [
            Ask(tenant=tenants[number % 4], prompt=prompt, max_tokens=8)
            for number, prompt in enumerate(prompts(6, 80, longest=120))
        ]
        spoiler = Spoiler(spoil=flip_a_bit, share=0.2, seed=2)
        meddler = cluster.nodes["d0"].meddler
        assert meddler is not None
        meddler.meddle = spoiler
        other = Spoiler(spoil=flip_a_bit, share=0.0, seed=3)
        sane = cluster.nodes["d1"].meddler
        assert sane is not None
        sane.meddle = other
        with anyio.fail_after(120):
            told = [
                one
                for start in range(0, len(asks), 8)
                for one in await ask_all(cluster.edge, asks[start : start + 8])
            ]
        assert spoiler.num_handoffs + other.num_handoffs <= 1.2 * len(asks)
        assert all(each.is_whole or each.error for each in told)
        # the sane one has got most of the work
        assert other.num_handoffs > spoiler.num_handoffs
        await cluster.until_idle()
