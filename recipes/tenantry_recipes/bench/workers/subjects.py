"""The workers that are measured, and an engine that runs them."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import anyio
import anyio.lowlevel

from tenantry_runtime.core import TenantId
from tenantry_runtime.workers.engine import EngineConfig, WorkerEngine, open_engine, open_templates
from tenantry_runtime.workers.interface import ByteStream, CallContext, Record, StreamResult
from tenantry_runtime.workers.sandbox import Level, find_interpreter
from tenantry_runtime.workers.spec import AiBinding, SourceFile, WorkerVersion

ACCOUNT = "bench"
NUM_EVENTS = 200
"""Of a short stream."""
NUM_LONG = 1000
"""Of a long one: an answer of as many tokens."""
EVENTS = [b'data: {"index":%d,"response":" token"}\n\n' % index for index in range(NUM_LONG)]

_HEAD = "from tenantry.workers import Response, WorkerEntrypoint\n\n"
HELLO, PIPED, LONG, MADE = "hello", "piped", "piped-long", "made"
STREAMS = {PIPED: NUM_EVENTS, LONG: NUM_LONG, MADE: NUM_EVENTS}
"""How many events each has."""
_PIPED = (
    _HEAD
    + """
class Default(WorkerEntrypoint):
    async def fetch(self, request):
        stream = await self.env.AI.run("model", {"prompt": "x", "stream": True})
        return Response(stream, headers={"content-type": "text/event-stream"})
"""
)
CODE = {
    HELLO: _HEAD
    + """
class Default(WorkerEntrypoint):
    async def fetch(self, request):
        return Response("hello")
""",
    PIPED: _PIPED,
    LONG: _PIPED,
    MADE: _HEAD
    + f"""
class Default(WorkerEntrypoint):
    async def fetch(self, request):
        async def events():
            for index in range({NUM_EVENTS}):
                yield b'data: {{"index":%d,"response":" token"}}\\n\\n' % index
        return Response(events(), headers={{"content-type": "text/event-stream"}})
""",
}
_numbers = itertools.count(1)


class EventStream:
    """The answer of a model that has a token ready whenever it is asked."""

    def __init__(self, num_events: int) -> None:
        self._num_events = num_events

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for event in EVENTS[: self._num_events]:
            yield event
            # others have their turn
            await anyio.lowlevel.checkpoint()

    async def aclose(self) -> None:
        """Nothing is held."""


class Subjects:
    """The workers' files, what answers their calls, and nobody who reads their logs."""

    async def read(self, file: SourceFile) -> bytes:
        return CODE[file.digest].encode()

    def dependencies(self, digest: str) -> str:
        raise LookupError(digest)

    async def call(
        self,
        context: CallContext,
        binding: str,
        method: str,
        # Any: as in the interface
        args: Sequence[Any],
        body: ByteStream | None,
    ) -> StreamResult:
        return StreamResult(stream=EventStream(STREAMS[context.version.worker]))

    async def values(self, version: WorkerVersion) -> Mapping[str, object]:
        return {}

    def record(self, record: Record) -> None:
        """Forget it."""


def a_version(name: str) -> WorkerVersion:
    """Make a version that no isolate has yet."""
    number = next(_numbers)
    file = SourceFile(path="entry.py", digest=name, num_bytes=len(CODE[name]))
    return WorkerVersion(
        tenant=TenantId(ACCOUNT),
        worker=name,
        version_id=f"{name}-{number}",
        number=number,
        main_module="entry.py",
        files=(file,),
        bindings=(AiBinding(name="AI"),),
    )


@asynccontextmanager
async def an_engine(config: EngineConfig, *, floor: Level) -> AsyncIterator[WorkerEngine]:
    """Open an engine with real isolates. Raises `SandboxTooWeak` below the floor."""
    subjects = Subjects()
    async with (
        open_templates(
            interpreter=await find_interpreter(), bundles=subjects, config=config, floor=floor
        ) as templates,
        open_engine(
            templates, bindings=subjects, bundles=subjects, sink=subjects, config=config
        ) as engine,
    ):
        yield engine
