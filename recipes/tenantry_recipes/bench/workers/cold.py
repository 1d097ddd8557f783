"""From nothing to a first response: by a fork, and from the pool of blank isolates.

Isolates that are forked for a request have no control group of their own here: joining one takes
longer than everything else together, and is what the pool is for.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

import anyio

from tenantry_runtime.workers.engine import EngineConfig, WorkerEngine
from tenantry_runtime.workers.interface import HttpRequest, Invocation
from tenantry_runtime.workers.sandbox import Level
from tenantry_runtime.workers.spec import WorkerVersion

from .subjects import HELLO, a_version, an_engine
from .workerd import cold_start_ms

NUM_BLANK = 4
NUM_WARM = 50
"""Requests to the isolate that each start leaves behind."""
WORKERD_EVERY = 10
_REQUEST = HttpRequest(method="GET", url="http://hello.bench.localhost/")


@dataclass(frozen=True, slots=True)
class Starts:
    """Milliseconds each, as they were measured in turns."""

    forked: list[float]
    pooled: list[float]
    warm: list[float]
    """A request to an isolate that is there, without HTTP."""
    workerd: list[float]


async def measure(num_starts: int, *, floor: Level, workerd: Path | None) -> Starts:
    """Start `num_starts` isolates in each way, one at a time."""
    starts = Starts([], [], [], [])
    async with (
        an_engine(EngineConfig(blank_isolates=0, groups=False), floor=floor) as forking,
        an_engine(EngineConfig(blank_isolates=NUM_BLANK), floor=floor) as pooling,
    ):
        for number in range(num_starts):
            starts.forked.append(await _start(forking, starts.warm))
            await pooling.filled()
            # a blank isolate rehearses once it is there
            await anyio.sleep(0.05)
            starts.pooled.append(await _start(pooling, starts.warm))
            if workerd is not None and number % WORKERD_EVERY == 0:
                starts.workerd.append(await cold_start_ms(workerd))
    return starts


async def _start(engine: WorkerEngine, warm: list[float]) -> float:
    version = a_version(HELLO)
    cold_ms = await respond_ms(engine, version)
    warm += [await respond_ms(engine, version) for _ in range(NUM_WARM)]
    engine.retire(version.version_id)
    return cold_ms


async def respond_ms(engine: WorkerEngine, version: WorkerVersion) -> float:
    """Return the time from a request to its whole response."""
    began_s = time.perf_counter()
    async with engine.fetch(version, _REQUEST, Invocation(id="bench")) as response:
        assert response.body == b"hello"
    return 1000 * (time.perf_counter() - began_s)
