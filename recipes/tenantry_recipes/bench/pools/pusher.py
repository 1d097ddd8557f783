"""The process that pushes pages into a decode node: `python -m tenantry_recipes.bench.pools.pusher JSON`.

It writes one line when pages flow, goes on until its input is closed, and then writes `Pushed`.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import anyio
import msgspec
from anyio.abc import Process
from anyio.streams.buffered import BufferedByteReceiveStream

from tenantry_recipes.bench.errors import BenchmarkError

from .pace import Pace
from .page_source import PageSource, ZeroPage, a_page_source

NUM_PROMPT = 2048
"""Tokens of each prompt: 32 pages."""
NUM_STREAMS = 3
"""Hand-offs at one time: while one waits for its reservation or its end, others push."""
START_TIMEOUT_S = 60.0
_FLOWS = b"pages flow"
_LINE_BYTES = 1000


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be pushed."""

    address: str
    bytes_per_s: float
    page: ZeroPage
    seed: int


class Pushed(msgspec.Struct, frozen=True, kw_only=True):
    """What was."""

    num_bytes: int
    took_s: float

    @property
    def bytes_per_s(self) -> float:
        return self.num_bytes / self.took_s


@dataclass(slots=True, eq=False)
class Pushing:
    """A running pusher."""

    process: Process
    output: BufferedByteReceiveStream

    async def finish(self) -> Pushed:
        """End it; return what it has pushed since pages began to flow."""
        assert self.process.stdin is not None
        await self.process.stdin.aclose()
        return msgspec.json.decode(await self.line(), type=Pushed)

    async def line(self) -> bytes:
        try:
            return await self.output.receive_until(b"\n", _LINE_BYTES)
        except (anyio.IncompleteRead, anyio.EndOfStream):
            raise BenchmarkError("the process that pushes pages has failed") from None


@asynccontextmanager
async def pushing(order: Order) -> AsyncIterator[Pushing]:
    """Push in another process; yield when pages flow."""
    command = [sys.executable, "-m", "tenantry_recipes.bench.pools.pusher"]
    async with await anyio.open_process(
        [*command, msgspec.json.encode(order).decode()],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=None,
    ) as process:
        assert process.stdout is not None
        running = Pushing(process, BufferedByteReceiveStream(process.stdout))
        try:
            with anyio.fail_after(START_TIMEOUT_S):
                said = await running.line()
            assert said == _FLOWS, said
            yield running
        except BaseException:
            # nobody is left to tell how much it was
            process.kill()
            raise


async def push(order: Order) -> None:
    """Be that process."""
    pace = Pace(order.bytes_per_s)
    async with a_page_source(order.address, order.page, seed=order.seed) as source:
        await _hand_over(source, pace)
        started_s, num_before = time.perf_counter(), source.num_bytes
        print(_FLOWS.decode(), flush=True)
        async with anyio.create_task_group() as streams:
            for _ in range(NUM_STREAMS):
                streams.start_soon(_hand_over_forever, source, pace)
            await anyio.wait_readable(sys.stdin)
            took_s = time.perf_counter() - started_s
            streams.cancel_scope.cancel()
    pushed = Pushed(num_bytes=source.num_bytes - num_before, took_s=took_s)
    print(msgspec.json.encode(pushed).decode(), flush=True)


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
