"""Edges over one store, in front of nodes that count: processes to be killed and started again."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio

from support.cluster import GLM, KIMI
from support.fake_node import environment
from support.processes import descendants_of, wait_until_gone
from support.text import GLM_NANO, KIMI_NANO

NUM_EDGES = 3
NUM_FAKES = 2

PRICES = {"input": 0.95, "cached_input": 0.16, "output": 4.00}
CATALOG = {
    "models": [
        {"id": KIMI, "directory": str(KIMI_NANO), "prices": PRICES},
        {"id": GLM, "directory": str(GLM_NANO), "prices": PRICES},
    ]
}

STEP_S = 0.01
"""So that an edge that dies has requests at every stage."""

PATIENCE_S = 60.0


@dataclass(slots=True, eq=False, kw_only=True)
class Server:
    """An edge or a node, through all its lives."""

    name: str
    module: str
    file: Path
    folder: Path
    num_starts: int = 0
    process: subprocess.Popen[bytes] | None = None

    @property
    def log(self) -> Path:
        return self.folder / f"{self.name}-{self.num_starts}.log"

    def start(self) -> None:
        self.num_starts += 1
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", self.module, str(self.file)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment(),
            )

    async def kill(self) -> None:
        """Kill it and all its processes, and return when they are gone."""
        assert self.process is not None
        pids = [self.process.pid, *descendants_of(self.process.pid)]
        for pid in pids:
            # a step loop may end by itself when its front is gone
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        await anyio.to_thread.run_sync(self.process.wait)
        for pid in pids[1:]:
            await wait_until_gone(pid)

    async def end(self) -> int:
        """End it as it should be ended; return its exit code."""
        assert self.process is not None
        self.process.terminate()
        with anyio.fail_after(PATIENCE_S):
            return await anyio.to_thread.run_sync(self.process.wait, abandon_on_cancel=True)

    async def says(self, mark: str, count: int = 1) -> str:
        """Wait for what its present life says, and return what follows the last mark in its line."""
        with anyio.fail_after(PATIENCE_S):
            while True:
                assert self.process is not None
                assert self.process.poll() is None, self.log.read_text()
                found = re.findall(re.escape(mark) + r"(.*)\n", self.log.read_text())
                if len(found) >= count:
                    return str(found[-1])
                # nothing wakes who waits for a file to grow
                await anyio.sleep(0.05)


@dataclass(slots=True, eq=False, kw_only=True)
class LedgerCluster:
    folder: Path
    edges: list[Server]
    nodes: list[Server]
    ports: dict[str, int] = field(default_factory=dict)
    """Of the edges that are there, by name."""

    @property
    def counts(self) -> list[Path]:
        return sorted(self.folder.glob("*.counts"))

    async def start_edge(self, edge: Server) -> None:
        """Start it, and return when it can serve."""
        edge.start()
        url = await edge.says("listening on ")
        await edge.says("connected to node", count=len(self.nodes))
        self.ports[edge.name] = int(url.rpartition(":")[2])

    async def kill_edge(self, edge: Server) -> None:
        """Kill it at once and start it again; its clients learn it from their sockets."""
        del self.ports[edge.name]
        await edge.kill()
        await self.start_edge(edge)

    async def restart_edge(self, edge: Server) -> None:
        """Let it end as when it is told to, and start it again."""
        del self.ports[edge.name]
        assert await edge.end() == 0, edge.log.read_text()
        await self.start_edge(edge)

    async def kill_node(self, node: Server) -> None:
        await node.kill()
        node.start()


@asynccontextmanager
async def a_ledger_cluster(
    folder: Path, state_dir: Path, store_url: str | None
) -> AsyncIterator[LedgerCluster]:
    """Start everything; the first nodes are fakes that serve Kimi, the last is real and serves GLM."""
    catalog = folder / "catalog.json"
    catalog.write_text(json.dumps(CATALOG))
    scripts = [{"script": {"models": [KIMI], "token_ids": [0], "step_s": STEP_S}}] * NUM_FAKES
    source = {"id": GLM, "directory": str(GLM_NANO), "phases": ["prefill", "decode"]}
    real = {"engine": {"models": [source], "num_pages": 256, "threads": 1}}
    nodes = [_node(folder, f"node{number}", each) for number, each in enumerate([*scripts, real])]
    config = {
        "port": 0,
        "nodes": [f"unix:{folder / node.name}.sock" for node in nodes],
        "state_dir": str(state_dir),
        "catalog": str(catalog),
        **({} if store_url is None else {"store": store_url}),
    }
    edges = [_edge(folder, f"edge{number}", config) for number in range(NUM_EDGES)]
    cluster = LedgerCluster(folder=folder, edges=edges, nodes=nodes)
    try:
        for node in nodes:
            node.start()
        async with anyio.create_task_group() as tasks:
            for edge in edges:
                tasks.start_soon(cluster.start_edge, edge)
        yield cluster
    finally:
        _kill_all([*edges, *nodes])


def _node(folder: Path, name: str, engine: dict[str, Any]) -> Server:
    file = folder / f"{name}.json"
    counts = {"counts": str(folder / f"{name}.counts")}
    address = f"unix:{folder / name}.sock"
    file.write_text(json.dumps({"address": address, "engine": {**counts, **engine}}))
    return Server(name=name, module="support.counting_node", file=file, folder=folder)


def _edge(folder: Path, name: str, config: dict[str, Any]) -> Server:
    file = folder / f"{name}.json"
    file.write_text(json.dumps(config))
    return Server(name=name, module="tenantry_runtime.edge", file=file, folder=folder)


def _kill_all(servers: Sequence[Server]) -> None:
    for server in servers:
        process = server.process
        if process is not None and process.poll() is None:
            for pid in (*descendants_of(process.pid), process.pid):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            process.wait()
