"""Run by itself: convert a checkpoint and print as JSON how much the process's memory grew at most.

    python peak_conversion.py WARM_UP_DIRECTORY DIRECTORY SHARD_BYTES

The first conversion brings in code pages and allocator arenas, so that what the second adds is the
conversion's.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from tenantry_runtime.models.convert import Conversion, convert

from .conversions import Listener
from .peak_memory import memory_bytes


def main() -> None:
    warm_up, directory = (Path(argument) for argument in sys.argv[1:3])
    shard_bytes = int(sys.argv[3])
    with TemporaryDirectory(dir=directory.parent) as scratch:

        def run(source: Path, name: str) -> None:
            conversion = Conversion(
                source=source,
                destination=Path(scratch) / name,
                shard_bytes=shard_bytes,
                num_threads=2,
            )
            convert(conversion, Listener())

        run(warm_up, "warm-up")
        before = memory_bytes("VmHWM")
        run(directory, "large")
        print(json.dumps({"peak_bytes": memory_bytes("VmHWM") - before}))


if __name__ == "__main__":
    main()
