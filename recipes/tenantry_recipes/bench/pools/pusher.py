"""The process that pushes pages into a decode node: `python -m tenantry_recipes.bench.pools.pusher JSON`.

`helper_process.helper` runs it; it is under way when pages flow, and writes `Pushed` in the end.
"""

from __future__ import annotations

import sys
import time

import anyio
import msgspec

from .helper_process import UNDER_WAY, say
from .pace import Pace
from .page_source import PageSource, ZeroPage, a_page_source

MODULE = "tenantry_recipes.bench.pools.pusher"

NUM_PROMPT = 2048
"""Tokens of each prompt: 32 pages."""
NUM_STREAMS = 3
"""Hand-offs at one time: while one waits for its reservation or its end, others push."""


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be pushed."""

    address: str
    bytes_per_s: float
    page: ZeroPage
    seed: int
    lends: bool
    """Whether the node may read the pages where they lie."""


class Pushed(msgspec.Struct, frozen=True, kw_only=True):
    """What was."""

    num_bytes: int
    took_s: float

    @property
    def bytes_per_s(self) -> float:
        return self.num_bytes / self.took_s


async def push(order: Order) -> None:
    """Be that process."""
    pace = Pace(order.bytes_per_s)
    opened = a_page_source(order.address, order.page, seed=order.seed, lends=order.lends)
    async with opened as source:
        await _hand_over(source, pace)
        started_s, num_before = time.perf_counter(), source.num_bytes
        say(UNDER_WAY)
        async with anyio.create_task_group() as streams:
            for _ in range(NUM_STREAMS):
                streams.start_soon(_hand_over_forever, source, pace)
            await anyio.wait_readable(sys.stdin)
            took_s = time.perf_counter() - started_s
            streams.cancel_scope.cancel()
    pushed = Pushed(num_bytes=source.num_bytes - num_before, took_s=took_s)
    say(msgspec.json.encode(pushed))


async def _hand_over_forever(source: PageSource, pace: Pace) -> None:
    while True:
        await _hand_over(source, pace)


async def _hand_over(source: PageSource, pace: Pace) -> None:
    """Bring one prompt, which asks for one token, and so is over when it is there."""
    async with source.handed_over(NUM_PROMPT, 1, pace=pace) as sequence:
        async for _ in sequence:
            pass


def main() -> None:
    (order,) = sys.argv[1:]
    anyio.run(push, msgspec.json.decode(order, type=Order))


if __name__ == "__main__":
    main()
