"""Isolates without processes, for what decides about them: their handlers are functions of a test."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeAlias

import anyio
import pytest

from tenantry_runtime.core import TenantId
from tenantry_runtime.workers.engine import Confined, EngineConfig, Exit, TemplateKey, open_engine
from tenantry_runtime.workers.engine.engine import WorkerEngine
from tenantry_runtime.workers.frames import Loaded
from tenantry_runtime.workers.interface import (
    ByteStream,
    CallContext,
    HttpRequest,
    HttpResponse,
    Invocation,
    Record,
    WorkerFailed,
)
from tenantry_runtime.workers.isolate import (
    Attendant,
    Ending,
    EndingKind,
    HeldUp,
    InvocationFailed,
    IsolateEnded,
    NeverBegan,
)
from tenantry_runtime.workers.sandbox import SpawnFailed
from tenantry_runtime.workers.spec import SourceFile, WorkerLimits, WorkerVersion

Handler: TypeAlias = Callable[["FakeIsolate", Attendant], Awaitable[HttpResponse]]
Load: TypeAlias = Callable[["FakeIsolate"], Awaitable[None]]

_HELLO = HttpResponse(status=200, body=b"hello")
_numbers = itertools.count(1)


def a_version(
    worker: str = "hello",
    *,
    tenant: str = "acme",
    limits: WorkerLimits | None = None,
    isolation: Any = "isolate",
    dependencies: str = "",
) -> WorkerVersion:
    number = next(_numbers)
    return WorkerVersion(
        tenant=TenantId(tenant),
        worker=worker,
        version_id=f"{worker}-{number}",
        number=number,
        main_module="entry.py",
        files=(SourceFile(path="entry.py", digest=f"digest-{number}", num_bytes=3),),
        limits=limits or WorkerLimits(),
        isolation=isolation,
        dependencies=dependencies,
    )


def an_invocation() -> Invocation:
    return Invocation(id=f"invocation-{next(_numbers)}")


A_REQUEST = HttpRequest(method="GET", url="http://hello.acme.localhost/")


async def hello(isolate: FakeIsolate, attendant: Attendant) -> HttpResponse:
    return _HELLO


async def forever(isolate: FakeIsolate, attendant: Attendant) -> HttpResponse:
    await anyio.sleep_forever()
    raise AssertionError


async def loads(isolate: FakeIsolate) -> None:
    pass


class FakeProcess:
    """A process whose CPU time is what a test says."""

    def __init__(self) -> None:
        self.pid = 0
        self.cpu = 0
        self.unread = 0
        self.num_inquiries = 0
        self.is_killed = False
        self.exit: Exit | None = None
        self.isolate: FakeIsolate | None = None

    def cpu_ns(self) -> int:
        return self.cpu

    def unread_bytes(self) -> int:
        return self.unread

    def inquire(self) -> None:
        self.num_inquiries += 1

    def kill(self) -> None:
        if self.exit is None:
            self.is_killed = True
            self.end(Exit(signal=9))

    def end(self, exit: Exit) -> None:
        """End by itself."""
        self.exit = exit
        assert self.isolate is not None
        self.isolate.end(Ending(EndingKind.CLOSED, "closed"))

    async def wait(self) -> Exit:
        assert self.exit is not None
        return self.exit


class FakeIsolate:
    """Runs a handler in the task of whoever asks; `held` ones finish when the test says."""

    def __init__(self, handler: Handler, load: Load) -> None:
        self.ended = anyio.Event()
        self.ending: Ending | None = None
        self.held_up: HeldUp | None = None
        self.process = FakeProcess()
        self.process.isolate = self
        self._handler = handler
        self._load = load
        self.version: WorkerVersion | None = None
        self.files: dict[str, bytes] = {}
        self.num_frames = 0
        self.obeys = True
        """Whether `stop` stops anything."""
        self._scopes: dict[Attendant, anyio.CancelScope] = {}
        self.held: set[Attendant] = set()
        self.stopped: list[Attendant] = []

    def end(self, ending: Ending) -> None:
        if self.ending is None:
            self.ending = ending
            for attendant in tuple(self.held):
                self.finish(attendant)
            for scope in self._scopes.values():
                scope.cancel()
            self.ended.set()

    async def load(
        self,
        version: WorkerVersion,
        files: Iterable[tuple[str, bytes]],
        values: Mapping[str, object],
    ) -> Loaded:
        self.version = version
        self.files = dict(files)
        with anyio.CancelScope() as scope:
            self._scopes[_LOAD] = scope
            await self._load(self)
        del self._scopes[_LOAD]
        if self.ending is not None:
            raise IsolateEnded(self.ending)
        return Loaded({}, 1.0)

    @asynccontextmanager
    async def fetch(
        self,
        request: HttpRequest,
        invocation: Invocation,
        attendant: Attendant,
        *,
        deadline_s: float | None = None,
    ) -> AsyncIterator[HttpResponse]:
        try:
            yield await self._run(attendant)
        finally:
            if attendant not in self.held:
                attendant.finished()

    async def scheduled(
        self,
        cron: str,
        scheduled_ms: int,
        invocation: Invocation,
        attendant: Attendant,
        *,
        deadline_s: float | None = None,
    ) -> None:
        try:
            await self._run(attendant)
        finally:
            attendant.finished()

    async def rpc(
        self,
        method: str,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        invocation: Invocation,
        attendant: Attendant,
        *,
        deadline_s: float | None = None,
    ) -> object:
        try:
            return (await self._run(attendant)).status
        finally:
            attendant.finished()

    async def _run(self, attendant: Attendant) -> HttpResponse:
        if self.ending is not None:
            raise NeverBegan(self.ending)
        with anyio.CancelScope() as scope:
            self._scopes[attendant] = scope
            try:
                return await self._handler(self, attendant)
            finally:
                del self._scopes[attendant]
        if self.ending is not None:
            raise IsolateEnded(self.ending)
        raise InvocationFailed("CancelledError", "")

    def stop(self, attendant: Attendant) -> None:
        self.stopped.append(attendant)
        if self.obeys:
            if (scope := self._scopes.get(attendant)) is not None:
                scope.cancel()
            self.finish(attendant)

    def finish(self, attendant: Attendant) -> None:
        """Let the `wait_until` of a held invocation end."""
        if attendant in self.held:
            self.held.remove(attendant)
            attendant.finished()

    @property
    def num_signs(self) -> int:
        return self.num_frames


class FakeNursery:
    """Spawns fake isolates, and remembers them."""

    def __init__(self, handler: Handler = hello, load: Load = loads) -> None:
        self.handler = handler
        self.load = load
        self.isolates: list[FakeIsolate] = []
        self.keys: list[TemplateKey] = []
        self.problem: str | None = None
        """Why it spawns none."""
        self.num_alive = 0
        self.most_alive = 0

    @asynccontextmanager
    async def spawn(
        self, key: TemplateKey, *, memory_bytes: int, outside: Attendant
    ) -> AsyncIterator[Confined]:
        await anyio.lowlevel.checkpoint()
        if self.problem is not None:
            raise SpawnFailed(self.problem)
        isolate = FakeIsolate(self.handler, self.load)
        self.isolates.append(isolate)
        self.keys.append(key)
        self.num_alive += 1
        self.most_alive = max(self.most_alive, self.num_alive)
        try:
            yield Confined(isolate=isolate, process=isolate.process)
        finally:
            self.num_alive -= 1
            isolate.end(Ending(EndingKind.LEFT, "left"))

    def tidy(self, now_s: float) -> None:
        pass

    @property
    def loaded(self) -> list[FakeIsolate]:
        """Those that got a version."""
        return [isolate for isolate in self.isolates if isolate.version is not None]


class FakeBundles:
    def __init__(self) -> None:
        self.num_reads = 0

    async def read(self, file: SourceFile) -> bytes:
        self.num_reads += 1
        return file.digest.encode()

    def dependencies(self, digest: str) -> str:
        return f"/dependencies/{digest}"


class FakeBindings:
    """Answers every call with what a test says."""

    def __init__(self, answer: Callable[[], Awaitable[Any]] | None = None) -> None:
        self._answer = answer
        self.contexts: list[CallContext] = []

    # Any: as in the interface
    async def call(
        self,
        context: CallContext,
        binding: str,
        method: str,
        args: Sequence[Any],
        body: ByteStream | None,
    ) -> Any:
        self.contexts.append(context)
        return None if self._answer is None else await self._answer()

    async def values(self, version: WorkerVersion) -> Mapping[str, object]:
        return {}


class Records:
    """A `LogSink` whose records can be waited for."""

    def __init__(self) -> None:
        self.records: list[Record] = []
        self._has_come = anyio.Event()

    def record(self, record: Record) -> None:
        self.records.append(record)
        self._has_come.set()
        self._has_come = anyio.Event()

    async def wait(self, num_records: int) -> list[Record]:
        while len(self.records) < num_records:
            await self._has_come.wait()
        return self.records


# no blank isolates unless a test is about them
NO_POOL = EngineConfig(blank_isolates=0)


@asynccontextmanager
async def an_engine(
    nursery: FakeNursery,
    *,
    config: EngineConfig = NO_POOL,
    records: Records | None = None,
    bindings: FakeBindings | None = None,
    bundles: FakeBundles | None = None,
) -> AsyncIterator[WorkerEngine]:
    async with open_engine(
        nursery,
        bindings=bindings or FakeBindings(),
        bundles=bundles or FakeBundles(),
        sink=records or Records(),
        config=config,
    ) as engine:
        with anyio.fail_after(10):
            yield engine


async def ask(engine: WorkerEngine, version: WorkerVersion) -> HttpResponse:
    async with engine.fetch(version, A_REQUEST, an_invocation()) as response:
        return response


async def failure(engine: WorkerEngine, version: WorkerVersion) -> WorkerFailed:
    with pytest.raises(WorkerFailed) as raised:
        await ask(engine, version)
    return raised.value


class _Load:
    """Whose scope a load's is."""


# Any: the key of a load among those of invocations
_LOAD: Any = _Load()
