"""Runs hostile workers by an engine with real isolates and real bindings, beside a neighbor's worker.

`python -m support.escapes.hostile_engine LEVEL` prints what came of all of them, as JSON.
"""

from __future__ import annotations

import hashlib
import logging
import os
import socket
import sys
import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import anyio
import msgspec

from support.bindings import OTHER_TENANT, TENANT, World, a_version, a_world
from support.worker_isolates import Records, an_invocation
from tenantry_runtime.core import TenantId
from tenantry_runtime.workers.engine import EngineConfig, WorkerEngine, open_engine, open_templates
from tenantry_runtime.workers.interface import HttpRequest, WorkerFailed
from tenantry_runtime.workers.sandbox import Level, find_interpreter, probe_layers
from tenantry_runtime.workers.spec import (
    AiBinding,
    Binding,
    KvBinding,
    ServiceBinding,
    SourceFile,
    WorkerVersion,
)

from .hostile_workers import HEAD, WORKERS, HostileWorker

THEIRS = "the neighbor's own value"

_IMPORTS = """
import asyncio, os, time
from tenantry.workers import Response, WorkerEntrypoint, fetch, wait_until
"""
_NEIGHBOR = """
class Default(WorkerEntrypoint):
    async def fetch(self, request):
        return Response('the neighbor')
"""
_REQUEST = HttpRequest(method="GET", url="http://worker.localhost/")
_ATTEMPT_LIMIT_S = 30.0
_NEIGHBOR_LIMIT_S = 5.0


@dataclass(slots=True, eq=False, kw_only=True)
class Findings:
    """What came of all of them."""

    level: str = ""
    said: dict[str, str] = field(default_factory=dict)
    """Of each the outcome's name, or the response's text."""
    neighbor_said: dict[str, str] = field(default_factory=dict)
    num_connections: int = 0
    """That this machine's own listener saw."""
    payers: set[TenantId] = field(default_factory=set)
    """Of all AI requests that were made."""
    num_descriptors_left: int = 0
    log_text: str = ""
    """All that the hostile tenant's log says."""
    complaints: list[str] = field(default_factory=list)
    """What the runtime's own log says, with traces."""


class Listening(logging.Handler):
    """Keeps the runtime's warnings, and what is worse."""

    def __init__(self, complaints: list[str]) -> None:
        super().__init__(logging.WARNING)
        self._complaints = complaints

    def emit(self, record: logging.LogRecord) -> None:
        """Keep one."""
        self._complaints.append(self.format(record))


class Texts:
    """A `Bundles` of texts, which are a version's only file."""

    def __init__(self) -> None:
        self._content: dict[str, bytes] = {}

    async def read(self, file: SourceFile) -> bytes:
        """Return a text."""
        return self._content[file.digest]

    def dependencies(self, digest: str) -> str:
        """Return none: no version has any."""
        raise AssertionError(digest)

    def add(self, text: str) -> SourceFile:
        """Keep a text."""
        content = (_IMPORTS + text).encode()
        digest = hashlib.sha256(content).hexdigest()
        self._content[digest] = content
        return SourceFile(path="entry.py", digest=digest, num_bytes=len(content))


@dataclass(slots=True, eq=False, kw_only=True)
class Stage:
    """An engine that serves both tenants."""

    world: World
    engine: WorkerEngine
    level: Level
    texts: Texts
    records: Records
    neighbor: WorkerVersion
    bindings: tuple[Binding, ...]

    async def try_out(self, name: str, worker: HostileWorker, port: int) -> str:
        """Return what came of one."""
        body = worker.body.replace("{port}", str(port)).replace("\n", "\n        ")
        handler = (
            f"class Default(WorkerEntrypoint):\n    async def fetch(self, request):\n        {body}"
        )
        source = self.texts.add(f"{HEAD}\n{handler}\n")
        version = _version(source, f"hostile-{source.digest[:12]}", TENANT, self.bindings)
        with anyio.move_on_after(_ATTEMPT_LIMIT_S):
            return await self._get(version)
        return f"nothing in {_ATTEMPT_LIMIT_S:g} s"

    async def ask_neighbor(self) -> str:
        """Return what the neighbor answers."""
        with anyio.move_on_after(_NEIGHBOR_LIMIT_S):
            return await self._get(self.neighbor)
        return f"nothing in {_NEIGHBOR_LIMIT_S:g} s"

    async def _get(self, version: WorkerVersion) -> str:
        try:
            async with self.engine.fetch(version, _REQUEST, an_invocation()) as response:
                if isinstance(response.body, bytes):
                    return response.body.decode()
                return b"".join([piece async for piece in response.body]).decode()
        except WorkerFailed as error:
            return error.outcome.value


async def run_all(
    workers: Mapping[str, HostileWorker], folder: Path, level: Level | None = None
) -> Findings:
    """Run all of them, one after the other; without a level at the best."""
    findings = Findings()
    listening = Listening(findings.complaints)
    logging.getLogger().addHandler(listening)
    try:
        await _run_all(workers, folder, level, findings)
    finally:
        logging.getLogger().removeHandler(listening)
    return findings


async def _run_all(
    workers: Mapping[str, HostileWorker], folder: Path, level: Level | None, findings: Findings
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        async with a_stage(folder, level) as stage:
            assert await stage.ask_neighbor() == "the neighbor"
            num_before = len(os.listdir("/proc/self/fd"))
            for name, worker in workers.items():
                port = listener.getsockname()[1]
                findings.said[name] = await stage.try_out(name, worker, port)
                findings.neighbor_said[name] = await stage.ask_neighbor()
            findings.level = stage.level.value
            findings.payers = {TenantId(submit.tenant) for submit in stage.world.node.submits}
            findings.log_text = repr(stage.records.records)
            findings.num_descriptors_left = len(os.listdir("/proc/self/fd")) - num_before
        findings.num_connections = _num_connections(listener)


@asynccontextmanager
async def a_stage(folder: Path, level: Level | None) -> AsyncIterator[Stage]:
    """Open an edge's bindings, and an engine; the neighbor has a namespace of keys."""
    texts, records = Texts(), Records()
    config = EngineConfig(blank_isolates=2, max_isolates=16, idle_s=60.0)
    interpreter = await find_interpreter()
    layers = await probe_layers(interpreter)
    if level is Level.NO_NAMESPACE:
        layers = replace(layers, own_namespaces=False, user_namespace=False)
    async with a_world(folder) as world:
        kv = world.edge.services.store.kv
        mine = await kv.create_namespace(TENANT, "mine")
        theirs = await kv.create_namespace(OTHER_TENANT, "theirs")
        neighbor = _version(texts.add(_NEIGHBOR), "neighbor", OTHER_TENANT, ())
        world.versions.known.append(neighbor)
        owner = world.caller(KvBinding(name="KV", namespace_id=theirs.id), tenant=OTHER_TENANT)
        await owner.call("KV", "put", "theirs", THEIRS, {})
        bindings: tuple[Binding, ...] = (
            AiBinding(name="AI"),
            KvBinding(name="KV", namespace_id=mine.id),
            # as if the control plane had let it pass
            KvBinding(name="STOLEN", namespace_id=theirs.id),
            ServiceBinding(name="SERVICE", service="neighbor"),
        )
        async with (
            open_templates(
                interpreter=interpreter,
                bundles=texts,
                config=config,
                floor=level or Level.NONE,
                layers=layers,
            ) as templates,
            open_engine(
                templates, bindings=world.bindings, bundles=texts, sink=records, config=config
            ) as engine,
        ):
            world.bindings.attach(engine)
            yield Stage(
                world=world,
                engine=engine,
                level=layers.level,
                texts=texts,
                records=records,
                neighbor=neighbor,
                bindings=bindings,
            )


def _version(
    source: SourceFile, worker: str, tenant: TenantId, bindings: tuple[Binding, ...]
) -> WorkerVersion:
    known = a_version(worker=worker, tenant=tenant)
    return WorkerVersion(
        tenant=known.tenant,
        worker=known.worker,
        version_id=known.version_id,
        number=known.number,
        main_module=source.path,
        files=(source,),
        bindings=bindings,
    )


def _num_connections(listener: socket.socket) -> int:
    count = 0
    while True:
        try:
            listener.accept()[0].close()
        except BlockingIOError:
            return count
        count += 1


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="tenantry-escapes-") as made:
        found = anyio.run(run_all, WORKERS, Path(made), Level(sys.argv[1]))
    sys.stdout.buffer.write(msgspec.json.encode(found))
