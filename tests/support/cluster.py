"""Clusters of real processes on one machine: an edge, and nodes that host what a test says."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
from anyio.abc import Process

from support.edge_process import EdgeProcess, an_edge_process
from support.fake_node import PATIENCE_S, start_process
from support.meddler import Meddler, a_meddler
from support.processes import descendants_of
from support.text import GLM_NANO, KIMI_NANO
from tenantry_runtime.pool.client import NodeClient, connect

KIMI = "@cf/moonshotai/kimi-k2.6"
GLM = "@cf/zai-org/glm-5.2"
DIRECTORIES = {KIMI: KIMI_NANO, GLM: GLM_NANO}


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """What each node hosts, and how."""

    phases: Mapping[str, Sequence[str]]
    """By a node's name."""
    model: str = KIMI
    source: Mapping[str, Any] = field(default_factory=dict)
    """More fields of each node's model source."""
    engine: Mapping[str, Any] = field(default_factory=dict)
    """More fields of each node's engine configuration."""
    meddled: frozenset[str] = frozenset()
    """Nodes that are reached through a peer in the middle."""
    edge: Mapping[str, Any] = field(default_factory=dict)


@dataclass(slots=True, eq=False, kw_only=True)
class Node:
    """A node's process, and this test's own connection to it, past any meddler."""

    name: str
    address: str
    process: Process
    client: NodeClient
    meddler: Meddler | None

    def signal_all(self, number: signal.Signals) -> None:
        """Send a signal to the front and its step loop."""
        for pid in (self.process.pid, *descendants_of(self.process.pid)):
            os.kill(pid, number)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    edge: EdgeProcess
    nodes: dict[str, Node]

    async def until_idle(self, *names: str) -> None:
        """Wait until nodes hold nothing of any sequence, and have found nothing wrong with pages."""
        for name in names or tuple(self.nodes):
            await until_idle(self.nodes[name].client)


async def until_idle(client: NodeClient) -> None:
    """Wait until a node runs nothing; fail when it does not come to that, or has found a fault."""
    with anyio.fail_after(PATIENCE_S):
        while True:
            statistics = await client.statistics()
            loads = statistics.loads
            if not statistics.num_running + statistics.num_waiting and not any(
                load.num_sequences for load in loads
            ):
                break
    assert statistics.audit_findings == ()


@asynccontextmanager
async def a_cluster(folder: Path, layout: Layout) -> AsyncIterator[Cluster]:
    """Start nodes and edge; yield when all nodes are ready and the edge has met them."""
    async with AsyncExitStack() as stack:
        nodes: dict[str, Node] = {}
        addresses: list[str] = []
        for name, phases in layout.phases.items():
            nodes[name], address = await stack.enter_async_context(
                a_cluster_node(folder, name, phases, layout)
            )
            addresses.append(address)
        edge = await stack.enter_async_context(
            an_edge_process(folder, nodes=addresses, **layout.edge)
        )
        for node in nodes.values():
            with anyio.fail_after(2 * PATIENCE_S):
                await node.client.ready()
        with anyio.fail_after(PATIENCE_S):
            while edge.log.text.count("connected to node") < len(nodes):
                await edge.log.grown()
        yield Cluster(edge=edge, nodes=nodes)


@asynccontextmanager
async def a_cluster_node(
    folder: Path, name: str, phases: Sequence[str], layout: Layout
) -> AsyncIterator[tuple[Node, str]]:
    """Start one node; yield it and the address at which others find it."""
    address = f"unix:{folder / name}.sock"
    source = {
        "id": layout.model,
        "directory": str(DIRECTORIES[layout.model]),
        "phases": list(phases),
        **layout.source,
    }
    if "prefill" not in phases:
        source.pop("prefill_cache", None)
    engine = {"models": [source], "deterministic": True, **layout.engine}
    file = folder / f"{name}.json"
    file.write_text(json.dumps({"address": address, "engine": engine}))
    async with AsyncExitStack() as stack:
        process = await stack.enter_async_context(start_process("tenantry_runtime.pool", str(file)))
        client = await stack.enter_async_context(connect(address))
        meddler, outward = None, address
        if name in layout.meddled:
            outward = f"unix:{folder / name}-outward.sock"
            meddler = await stack.enter_async_context(a_meddler(outward, address))
        node = Node(name=name, address=address, process=process, client=client, meddler=meddler)
        yield node, outward
