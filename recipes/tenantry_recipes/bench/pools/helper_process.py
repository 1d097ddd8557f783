"""A process that does something beside what is measured, until it is told to end.

It is a module that gets its order as JSON. It writes one line when it is under way, goes on until
its input is closed, and then writes what it did.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TypeVar

import anyio
import msgspec
from anyio.abc import Process
from anyio.streams.buffered import BufferedByteReceiveStream

from tenantry_recipes.bench.errors import BenchmarkError

UNDER_WAY = b"under way"
START_TIMEOUT_S = 60.0
_LINE_BYTES = 1000

ReportT = TypeVar("ReportT")


@dataclass(slots=True, eq=False)
class Helper:
    """Such a process."""

    module: str
    process: Process
    output: BufferedByteReceiveStream

    @property
    def pid(self) -> int:
        return self.process.pid

    async def finish(self, kind: type[ReportT]) -> ReportT:
        """End it; return what it says that it did."""
        assert self.process.stdin is not None
        await self.process.stdin.aclose()
        return msgspec.json.decode(await self.line(), type=kind)

    async def line(self) -> bytes:
        try:
            return await self.output.receive_until(b"\n", _LINE_BYTES)
        except (anyio.IncompleteRead, anyio.EndOfStream):
            raise BenchmarkError(f"the process of {self.module} has failed") from None


@asynccontextmanager
async def helper(module: str, order: msgspec.Struct) -> AsyncIterator[Helper]:
    """Run a module; yield when it is under way."""
    async with await anyio.open_process(
        [sys.executable, "-m", module, msgspec.json.encode(order).decode()],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=None,
    ) as process:
        assert process.stdout is not None
        running = Helper(module, process, BufferedByteReceiveStream(process.stdout))
        try:
            with anyio.fail_after(START_TIMEOUT_S):
                said = await running.line()
            assert said == UNDER_WAY, said
            yield running
        except BaseException:
            # nobody is left to tell what it was
            process.kill()
            raise


def say(report: bytes) -> None:
    """Write a line to whoever runs this process."""
    print(report.decode(), flush=True)
