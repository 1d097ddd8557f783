"""A process that takes its share of a core, and has nothing to do with the node: it copies pages.

`python -m tenantry_recipes.bench.pools.burner JSON`, run by `helper_process.helper`. How much slower
steps are beside it tells what of their time under pushes is that of a core with others on it.
"""

from __future__ import annotations

import sys
import time

import anyio
import msgspec

from .helper_process import UNDER_WAY, say

MODULE = "tenantry_recipes.bench.pools.burner"

SLICE_S = 0.001
"""Between two looks at how much it has had; about as often a front and a pusher wake up."""
MOST_LATE_S = 0.05
"""What is caught up with, as with pushes (`pace.py`)."""
NUM_PAGES = 64
"""As many as a node has slots: copies come from memory that others have evicted from the caches."""


class Burn(msgspec.Struct, frozen=True, kw_only=True):
    """How much is to be taken."""

    share: float
    """Of one core."""
    page_bytes: int


class Burnt(msgspec.Struct, frozen=True, kw_only=True):
    """How much was."""

    processor_s: float
    took_s: float


async def burn(order: Burn) -> None:
    """Be that process."""
    pages = [bytes(order.page_bytes) for _ in range(NUM_PAGES)]
    target = bytearray(order.page_bytes)
    started_s = due_s = time.perf_counter()
    num_copies, had_s = 0, time.process_time()
    first_s = had_s
    say(UNDER_WAY)
    async with anyio.create_task_group() as tasks:

        async def until_told() -> None:
            await anyio.wait_readable(sys.stdin)
            tasks.cancel_scope.cancel()

        tasks.start_soon(until_told)
        while True:
            now_s = time.perf_counter()
            due_s = max(due_s, now_s - MOST_LATE_S)
            allowed_s = had_s + order.share * (now_s - due_s)
            due_s = now_s
            while time.process_time() < allowed_s:
                target[:] = pages[num_copies % NUM_PAGES]
                num_copies += 1
            had_s = max(allowed_s, time.process_time())
            await anyio.sleep(SLICE_S)
    burnt = Burnt(processor_s=time.process_time() - first_s, took_s=time.perf_counter() - started_s)
    say(msgspec.json.encode(burnt))


def main() -> None:
    (order,) = sys.argv[1:]
    anyio.run(burn, msgspec.json.decode(order, type=Burn))


if __name__ == "__main__":
    main()
