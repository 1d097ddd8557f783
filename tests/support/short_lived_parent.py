"""A supervisor to be killed: `python -m support.short_lived_parent LOG` starts a child and waits."""

from __future__ import annotations

import sys
from pathlib import Path

import anyio

from tenantry_runtime.supervisor.children import start_child


async def start_and_wait(log: str) -> None:
    async with start_child("child", "support.stubborn", "again", log=Path(log)) as child:
        print(child.process.pid, flush=True)
        await anyio.sleep_forever()


if __name__ == "__main__":
    anyio.run(start_and_wait, sys.argv[1])
