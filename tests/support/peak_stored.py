"""Run by itself: load a checkpoint with its weights as stored, use it, and print the memory it took.

    python -m support.peak_stored WARM_UP_DIRECTORY DIRECTORY

As JSON: `end_bytes`, resident after its last step, without free memory; `peak_bytes`, resident at most. Loading and
running another of the same kind first brings in code, compiled loops and the allocator's arenas, so
that what the second adds is the model.
"""

from __future__ import annotations

import ctypes
import json
import sys
from pathlib import Path

import torch

from tenantry_runtime.models.decoder import Decoder
from tenantry_runtime.models.loader import load_model

from .paged_batch import PagedRun
from .peak_memory import memory_bytes


def load_and_run(directory: Path) -> Decoder:
    decoder = load_model(directory, dtype=torch.bfloat16, weights="stored")
    # too many rows for the compiled loops, then one
    PagedRun(decoder, num_pages=2).read(torch.arange(101), [100])
    return decoder


def give_back() -> None:
    """Give the system what the heap has free."""
    ctypes.CDLL(None).malloc_trim(0)


def main() -> None:
    torch.set_num_threads(1)
    warm_up, directory = (Path(argument) for argument in sys.argv[1:])
    load_and_run(warm_up)
    give_back()
    # from here on anew: proc(5), clear_refs
    Path("/proc/self/clear_refs").write_text("5")
    before = memory_bytes("VmRSS")
    decoder = load_and_run(directory)
    peak = memory_bytes("VmHWM")
    give_back()
    grown = {"end_bytes": memory_bytes("VmRSS") - before, "peak_bytes": peak - before}
    assert decoder.weights == "fp8+int4+bfloat16"
    print(json.dumps(grown))


if __name__ == "__main__":
    main()
