"""Run by itself: load a checkpoint and print as JSON how much the process's memory grew.

    python peak_memory.py WARM_UP_DIRECTORY DIRECTORY

Resident pages count, those of mapped files too. The first load brings in code pages and
allocator arenas, so that what the second adds is the model.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch

from tenantry_runtime.models.loader import load_model


def memory_bytes(field: str) -> int:
    """Return a size from this process's status: VmRSS (resident now), VmHWM (resident at most)."""
    for line in Path("/proc/self/status").read_text().splitlines():
        name, _, size = line.partition(":")
        if name == field:
            return int(size.split()[0]) * 1024
    raise LookupError(field)


def main() -> None:
    torch.set_num_threads(1)
    warm_up, directory = (Path(argument) for argument in sys.argv[1:])
    load_model(warm_up, dtype=torch.bfloat16)
    before = memory_bytes("VmRSS")
    decoder = load_model(directory, dtype=torch.bfloat16)
    grown = {}
    for name, field in (("end_bytes", "VmRSS"), ("peak_bytes", "VmHWM")):
        grown[name] = memory_bytes(field) - before
    assert decoder.config.num_layers > 0
    print(json.dumps(grown))


if __name__ == "__main__":
    main()
