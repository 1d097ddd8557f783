"""Nodes whose step loop is the fake one: real processes, a real gRPC Unix socket."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import anyio
import msgspec
from anyio.abc import Process

from support.fake_loop import BUILD, MODEL, FakeLoopConfig
from support.processes import children_of
from tenantry_runtime.core import Sampling
from tenantry_runtime.pool.__main__ import main
from tenantry_runtime.pool.client import NodeClient
from tenantry_runtime.pool.messages import Submit

ENDLESS = 1 << 30
"""`max_tokens` of a sequence that ends by other means."""

PATIENCE_S = 30.0
"""For what takes milliseconds on a machine with nothing else to do."""

TESTS = Path(__file__).resolve().parents[1]


@dataclass(frozen=True, slots=True)
class FakeNode:
    address: str
    process: Process

    @property
    def loop_pid(self) -> int:
        (pid,) = children_of(self.process.pid)
        return pid


@asynccontextmanager
async def a_node(
    folder: Path, config: FakeLoopConfig | None = None, *, drain_s: float = 0.0
) -> AsyncIterator[FakeNode]:
    """Run a node; end it with SIGTERM, and fail when that does not work."""
    address = f"unix:{folder / 'node.sock'}"
    file = folder / "node.json"
    engine = config or FakeLoopConfig()
    file.write_bytes(
        msgspec.json.encode({"address": address, "engine": engine, "drain_s": drain_s})
    )
    async with start_process("support.fake_node", str(file)) as process:
        yield FakeNode(address, process)


def environment() -> dict[str, str]:
    """For child processes that import from `support`, as pytest does."""
    path = os.pathsep.join([str(TESTS), *filter(None, [os.environ.get("PYTHONPATH")])])
    return os.environ | {"PYTHONPATH": path}


@asynccontextmanager
async def start_process(module: str, *arguments: str) -> AsyncIterator[Process]:
    process = await anyio.open_process(
        [sys.executable, "-m", module, *arguments],
        stdin=None,
        stdout=None,
        stderr=None,
        env=environment(),
    )
    try:
        yield process
    finally:
        with anyio.CancelScope(shield=True):
            if process.returncode is None:
                process.terminate()
            with anyio.move_on_after(PATIENCE_S) as deadline:
                await process.wait()
            if deadline.cancelled_caught:
                process.kill()
                await process.wait()
        assert not deadline.cancelled_caught, f"{module} ignored SIGTERM"


def a_submit(
    request_id: str = "request",
    *,
    prompt: list[int] | None = None,
    max_tokens: int = 5,
    stop_token_ids: tuple[int, ...] = (),
) -> Submit:
    return Submit(
        request_id=request_id,
        tenant="tenant",
        model=MODEL,
        token_ids=[100] if prompt is None else prompt,
        sampling=Sampling(seed=1),
        stop_token_ids=stop_token_ids,
        max_tokens=max_tokens,
    )


async def until_running(client: NodeClient, num_running: int) -> None:
    """Wait for statistics younger than this call that show so many sequences."""
    called_ns = time.time_ns()
    with anyio.fail_after(PATIENCE_S):
        while True:
            statistics = await client.statistics()
            if statistics.loop_turn_ns > called_ns and statistics.num_running == num_running:
                return


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], build=BUILD))
