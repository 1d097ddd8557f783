"""Time on a GPU, without what the host adds."""

from __future__ import annotations

import statistics
from typing import Protocol

import torch

from .case import Run

_REPEATS = 50
_FIRST_REPEATS = 5
"""Not counted: clocks rise."""
# several times the 50 MB of an H200's second-level cache
_FLUSH_BYTES = 512 << 20
_COPY_BYTES = 4 << 30


class Clock(Protocol):
    """How long an op takes, and how fast memory is."""

    def seconds(self, run: Run) -> float:
        """Return the median of several runs that find nothing in the cache."""
        ...

    def copy_bandwidth(self) -> float:
        """Return bytes per second, read and written, of a large copy."""
        ...


class GpuClock:
    """CUDA events around a captured graph, queued behind a read that empties the cache.

    A write would do so too, but its lines would then go to memory at the cost of the op. The read
    takes longer than the host needs to queue the graph, so launches cost what they cost in a
    captured step.
    """

    def __init__(self, device: torch.device, *, copy_bytes: int = _COPY_BYTES) -> None:
        self._device = device
        self._copy_bytes = copy_bytes
        self._flush = torch.zeros(_FLUSH_BYTES // 4, device=device)

    def seconds(self, run: Run) -> float:
        # compiles, and lets torch's allocator see what it needs
        run()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            run()
        pairs = [self._timed(graph) for _ in range(_REPEATS)]
        torch.cuda.synchronize()
        times_ms: list[float] = [start.elapsed_time(end) for start, end in pairs[_FIRST_REPEATS:]]
        return statistics.median(times_ms) / 1e3

    def copy_bandwidth(self) -> float:
        source = torch.empty(self._copy_bytes // 2, dtype=torch.uint8, device=self._device)
        target = torch.empty_like(source)
        return 2 * source.numel() / self.seconds(lambda: target.copy_(source))

    def _timed(self, graph: torch.cuda.CUDAGraph) -> tuple[torch.cuda.Event, torch.cuda.Event]:
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        self._flush.sum()
        start.record()
        graph.replay()
        end.record()
        return start, end
