"""The machine on which figures were taken."""

from __future__ import annotations

import os
import platform
import time
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

_NUM_PASSES = 20
_FIRST_PASSES = 3
"""Not counted: caches and threads get warm."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """What a reader must know of it."""

    cpu: str
    num_cpus: int
    threads: int
    """Of every contender."""
    versions: dict[str, str]
    """Of the packages that compute."""

    def __str__(self) -> str:
        packages = ", ".join(f"{name} {number}" for name, number in self.versions.items())
        return f"{self.cpu}, {self.num_cpus} CPUs, {self.threads} threads each; {packages}"


def describe_machine(threads: int, packages: tuple[str, ...]) -> Machine:
    return Machine(
        cpu=_cpu_name(),
        num_cpus=len(os.sched_getaffinity(0)),
        threads=threads,
        versions={"Python": platform.python_version()}
        | {package: version(package) for package in packages},
    )


def read_bandwidth(num_bytes: float, threads: int) -> float:
    """Measure the bytes per second at which `threads` read as much memory, again and again.

    What fits a cache is read from there, as an engine's weights are.
    """
    import torch

    torch.set_num_threads(threads)
    values = torch.ones(int(num_bytes) // torch.float32.itemsize)
    passes: list[float] = []
    for _ in range(_NUM_PASSES):
        started_s = time.perf_counter()
        values.sum()
        passes.append(time.perf_counter() - started_s)
    return values.nbytes / min(passes[_FIRST_PASSES:])


def _cpu_name() -> str:
    path = Path("/proc/cpuinfo")
    lines = path.read_text().splitlines() if path.exists() else []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor() or platform.machine())
