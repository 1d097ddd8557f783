"""Many isolates that nobody asks: what memory they have, and whether they still answer."""

from __future__ import annotations

import resource
import time
from dataclasses import dataclass
from pathlib import Path

import anyio

from tenantry_runtime.workers.engine import EngineConfig
from tenantry_runtime.workers.sandbox import Level

from .cold import respond_ms
from .subjects import HELLO, a_version, an_engine

NUM_SAMPLES = 50
"""Of which the kernel is asked what memory they have."""
NUM_AT_ONCE = 8
QUIET_S = 3.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Idle:
    """Many isolates, each of a worker that has answered once."""

    num_isolates: int
    start_s: float
    """For all of them, a first request to each included."""
    private_bytes: list[int]
    """Of some of them."""
    pss_bytes: list[int]
    """With their part of what is shared."""
    machine_bytes: float
    """Less memory available on the machine, for each isolate."""
    cpu_ms: float
    """That all of them used in `QUIET_S`."""
    ask_all_s: float
    """One more request to each, one at a time."""


async def measure(num_isolates: int, *, floor: Level) -> Idle:
    """Start them all and leave them alone for a while."""
    _raise_descriptor_limit()
    config = EngineConfig(max_isolates=num_isolates + 16, idle_memory_bytes=1 << 40)
    async with an_engine(config, floor=floor) as engine:
        versions = [a_version(HELLO) for _ in range(num_isolates)]
        available_bytes = _available_bytes()
        began_s = time.perf_counter()
        waiting = iter(versions)

        async def ask() -> None:
            for version in waiting:
                await respond_ms(engine, version)

        async with anyio.create_task_group() as tasks:
            for _ in range(NUM_AT_ONCE):
                tasks.start_soon(ask)
        start_s = time.perf_counter() - began_s
        machine_bytes = (available_bytes - _available_bytes()) / num_isolates
        pids = engine.pids()
        assert len(pids) == num_isolates
        before_ms = sum(map(_cpu_ms, pids))
        await anyio.sleep(QUIET_S)
        cpu_ms = sum(map(_cpu_ms, pids)) - before_ms
        memory = [_memory(pid) for pid in pids[:: max(num_isolates // NUM_SAMPLES, 1)]]
        began_s = time.perf_counter()
        for version in versions:
            await respond_ms(engine, version)
        ask_all_s = time.perf_counter() - began_s
        assert len(engine.pids()) == num_isolates
    return Idle(
        num_isolates=num_isolates,
        start_s=start_s,
        private_bytes=[private for private, _ in memory],
        pss_bytes=[pss for _, pss in memory],
        machine_bytes=machine_bytes,
        cpu_ms=cpu_ms,
        ask_all_s=ask_all_s,
    )


def _memory(pid: int) -> tuple[int, int]:
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]
    sizes = {line.split()[0]: 1024 * int(line.split()[1]) for line in lines}
    return sizes["Private_Clean:"] + sizes["Private_Dirty:"], sizes["Pss:"]


def _cpu_ms(pid: int) -> float:
    return time.clock_gettime((~pid << 3) | 2) * 1000


def _available_bytes() -> int:
    # cached files are available either way
    lines = Path("/proc/meminfo").read_text().splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith("MemAvailable:"))


def _raise_descriptor_limit() -> None:
    # the runtime has two for each isolate
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
