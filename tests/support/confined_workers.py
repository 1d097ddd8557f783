"""An engine with isolates for real, and workers that a test writes as text."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from textwrap import dedent
from types import MappingProxyType
from typing import Any

import anyio
from msgspec.structs import replace

from support.worker_isolates import FakeBindings, Records, a_version, an_invocation
from tenantry_runtime.workers.engine import (
    EngineConfig,
    Templates,
    WorkerEngine,
    open_engine,
    open_templates,
)
from tenantry_runtime.workers.interface import HttpRequest
from tenantry_runtime.workers.sandbox import (
    Interpreter,
    Layers,
    find_interpreter,
    probe_layers,
)
from tenantry_runtime.workers.spec import AiBinding, SourceFile, WorkerVersion

HEAD = """
import asyncio, os, time
from tenantry.workers import Response, WorkerEntrypoint, fetch, wait_until
"""


class Texts:
    """A `Bundles` of texts."""

    def __init__(self) -> None:
        self._content: dict[str, bytes] = {}
        self.folders: dict[str, str] = {}
        """Of dependencies, by their digests."""

    async def read(self, file: SourceFile) -> bytes:
        return self._content[file.digest]

    def dependencies(self, digest: str) -> str:
        return self.folders[digest]

    def version(
        self, code: str, *, data: Mapping[str, bytes] = MappingProxyType({}), **options: Any
    ) -> WorkerVersion:
        """Make a version of one module, which has `HEAD` before it, and of `data` by their paths."""
        texts = {"entry.py": (HEAD + dedent(code)).encode(), **data}
        return replace(
            a_version(**options),
            files=tuple(self._file(path, each) for path, each in texts.items()),
            bindings=(AiBinding(name="AI"),),
        )

    def _file(self, path: str, content: bytes) -> SourceFile:
        digest = hashlib.sha256(content).hexdigest()
        self._content[digest] = content
        return SourceFile(path=path, digest=digest, num_bytes=len(content))

    def handler(self, body: str, **options: Any) -> WorkerVersion:
        """Make a version whose `fetch` has this body."""
        lines = dedent(body).strip().splitlines()
        head = ["class Default(WorkerEntrypoint):", "    async def fetch(self, request):"]
        return self.version("\n".join([*head, *(" " * 8 + line for line in lines)]), **options)


class Workshop:
    """An engine, what it runs, and what was told of it."""

    def __init__(
        self, templates: Templates, engine: WorkerEngine, texts: Texts, records: Records
    ) -> None:
        self.templates = templates
        self.engine = engine
        self.texts = texts
        self.records = records

    async def get(self, version: WorkerVersion, path: str = "/") -> bytes:
        """Return the whole body of a response."""
        request = HttpRequest(method="GET", url=f"http://hello.acme.localhost{path}")
        async with self.engine.fetch(version, request, an_invocation()) as response:
            if isinstance(response.body, bytes):
                return response.body
            return b"".join([piece async for piece in response.body])


@dataclass(frozen=True, slots=True)
class Machine:
    """What this machine has, which takes half a second to find out."""

    interpreter: Interpreter
    layers: Layers


async def find_machine() -> Machine:
    interpreter = await find_interpreter()
    return Machine(interpreter, await probe_layers(interpreter))


@asynccontextmanager
async def a_workshop(
    machine: Machine, config: EngineConfig | None = None, bindings: FakeBindings | None = None
) -> AsyncIterator[Workshop]:
    config = config or EngineConfig(blank_isolates=1)
    texts, records = Texts(), Records()
    async with (
        open_templates(
            interpreter=machine.interpreter,
            layers=machine.layers,
            bundles=texts,
            config=config,
        ) as templates,
        open_engine(
            templates,
            bindings=bindings or FakeBindings(),
            bundles=texts,
            sink=records,
            config=config,
        ) as engine,
    ):
        with anyio.fail_after(60):
            yield Workshop(templates, engine, texts, records)
