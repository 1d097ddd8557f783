"""Runs versions of workers in isolates of their own."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import Any

import anyio
import msgspec

from tenantry_runtime.background import background_tasks
from tenantry_runtime.workers.interface import (
    Bindings,
    Bundles,
    ErrorLine,
    Event,
    HttpRequest,
    HttpResponse,
    Invocation,
    LogSink,
    Record,
    WorkerFailed,
)
from tenantry_runtime.workers.isolate import NeverBegan
from tenantry_runtime.workers.outcome import Outcome
from tenantry_runtime.workers.sandbox import SpawnFailed
from tenantry_runtime.workers.spec import WorkerVersion

from .asking import Awaited, Fetching
from .backoff import StartFailed
from .bundle_cache import BundleCache
from .config import EngineConfig
from .descriptors import make_room
from .housing import Housing
from .interface import Nursery
from .keeper import Keeper
from .lives import Lives
from .loading import Loader, NotLoaded
from .running import Running
from .watchdog import Watchdog

MAX_MOVES = 4
"""That an invocation makes from an isolate which never began it to another."""


def unix_ms() -> int:
    return time.time_ns() // 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineStatistics:
    """What an engine has at one time."""

    num_isolates: int
    """All, blank ones too."""
    num_blank: int
    num_idle: int
    idle_memory_bytes: int
    """Private to the idle ones, about."""
    num_started: int
    """Since the engine began; blank ones do not count."""
    num_ended: Mapping[str, int]
    """Of those, by outcome, or "retired": nobody needed them any more."""


class WorkerEngine:
    """An `Engine`; `open_engine` makes it."""

    def __init__(
        self,
        *,
        lives: Lives,
        housing: Housing,
        keeper: Keeper,
        loader: Loader,
        bindings: Bindings,
        sink: LogSink,
        config: EngineConfig,
    ) -> None:
        self._lives = lives
        self._keeper = keeper
        self._housing = housing
        self._loader = loader
        self._bindings = bindings
        self._sink = sink
        self._config = config

    def fetch(
        self, version: WorkerVersion, request: HttpRequest, invocation: Invocation
    ) -> AbstractAsyncContextManager[HttpResponse]:
        return Fetching(self.begin, version, request, invocation)

    async def scheduled(
        self, version: WorkerVersion, cron: str, scheduled_ms: int, invocation: Invocation
    ) -> None:
        event = Event(kind="scheduled", cron=cron, scheduled_ms=scheduled_ms)

        async def ask(running: Running) -> None:
            isolate = running.resident.confined.isolate
            await isolate.scheduled(
                cron, scheduled_ms, invocation, running, deadline_s=running.deadline_s
            )

        await self._run(version, invocation, event, ask)

    async def rpc(
        self,
        version: WorkerVersion,
        method: str,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        invocation: Invocation,
    ) -> object:
        async def ask(running: Running) -> object:
            isolate = running.resident.confined.isolate
            return await isolate.rpc(
                method, args, kwargs, invocation, running, deadline_s=running.deadline_s
            )

        return await self._run(version, invocation, Event(kind="rpc", rpc_method=method), ask)

    async def try_load(self, version: WorkerVersion, *, cpu_ms: float = 1000.0) -> float:
        """Also raises `WorkerFailed` where the machine cannot make an isolate."""
        try:
            resident, used_ms = await self._loader.load(
                version, self._housing, cpu_ms=cpu_ms, wall_s=self._config.load_s
            )
        except NotLoaded as error:
            raise error.error from None
        except SpawnFailed as error:
            raise WorkerFailed(Outcome.INTERNAL, "no isolate could be made") from error
        resident.retire()
        return used_ms

    def retire(self, version_id: str) -> None:
        """End a version's isolates as soon as nothing runs in them; later invocations get new ones."""
        self._housing.retire(version_id)

    async def drain(self) -> None:
        """Take no more invocations, and wait for those that run, `wait_until` included.

        At most `drain_s`; what runs then ends with the engine.
        """
        with anyio.move_on_after(self._config.drain_s):
            await self._housing.drain()

    async def filled(self) -> None:
        """Return when the blank isolates that are kept are there: the next start is a load."""
        await self._lives.filled()

    async def tidy(self) -> None:
        """End idle isolates that have to; happens by itself every second."""
        await self._keeper.tidy()

    def statistics(self) -> EngineStatistics:
        """Count isolates."""
        return EngineStatistics(
            num_isolates=self._lives.num_isolates,
            num_blank=self._lives.num_blank,
            num_idle=len(self._housing.idle),
            idle_memory_bytes=self._housing.idle.memory_bytes,
            num_started=self._housing.num_started,
            num_ended=dict(self._housing.num_ended),
        )

    def pids(self) -> list[int]:
        """Return the processes of isolates that have a version."""
        return self._housing.pids()

    async def begin(
        self,
        version: WorkerVersion,
        invocation: Invocation,
        event: Event,
        *,
        moved: Running | None = None,
    ) -> Running:
        """Let an invocation begin in an isolate; a record tells of it whatever happens.

        `moved` is the same one, of which an isolate said `NeverBegan`. Raises `WorkerFailed`.
        """
        if moved is None:
            began_s, num_moves = time.monotonic(), 0
            record = Record(
                version=version, invocation=invocation, event=event, started_ms=unix_ms()
            )
        else:
            began_s, num_moves, record = moved.began_s, moved.num_moves + 1, moved.record
            moved.resident.withdraw(moved)
        try:
            if num_moves > MAX_MOVES:
                raise WorkerFailed(Outcome.UNRESPONSIVE, f"{num_moves} isolates did not react")
            resident = self._housing.place(version)
            if resident is None:
                resident = await self._housing.wait_for_place(version)
                record.cold_start_ms = 1000 * (time.monotonic() - began_s)
        except BaseException as error:
            self._sink.record(_not_begun(record, error, time.monotonic() - began_s))
            raise
        return resident.admit(record, self._bindings, began_s=began_s, num_moves=num_moves)

    async def _run(
        self,
        version: WorkerVersion,
        invocation: Invocation,
        event: Event,
        ask: Callable[[Running], Awaitable[object]],
    ) -> object:
        """Run an invocation that is no fetch, to its end."""
        running = await self.begin(version, invocation, event)
        while True:
            try:
                async with Awaited(running):
                    return await ask(running)
            except NeverBegan:
                running = await self.begin(version, invocation, event, moved=running)


@asynccontextmanager
async def open_engine(
    nursery: Nursery,
    *,
    bindings: Bindings,
    bundles: Bundles,
    sink: LogSink,
    config: EngineConfig = EngineConfig(),  # noqa: B008  # frozen
) -> AsyncIterator[WorkerEngine]:
    """Run an engine while the block runs; leaving it ends all isolates. See `WorkerEngine.drain`."""
    now: Callable[[], float] = time.monotonic
    config = msgspec.structs.replace(config, max_isolates=make_room(config.max_isolates))
    async with background_tasks() as tasks:
        lives = Lives(nursery, tasks, config, now=now)
        watchdog = Watchdog(poll_s=config.poll_s, now=now)
        loader = Loader(
            lives=lives,
            watchdog=watchdog,
            bundles=BundleCache(bundles, max_bytes=config.bundle_cache_bytes),
            bindings=bindings,
            share_templates=config.share_templates,
            now=now,
            unix_ms=unix_ms,
        )
        housing = Housing(
            lives=lives,
            loader=loader,
            watchdog=watchdog,
            sink=sink,
            tasks=tasks,
            config=config,
            now=now,
        )
        keeper = Keeper(lives, housing, config, now=now)
        for part in (lives.run, watchdog.run, keeper.run):
            tasks.start_soon(part)
        yield WorkerEngine(
            lives=lives,
            housing=housing,
            keeper=keeper,
            loader=loader,
            bindings=bindings,
            sink=sink,
            config=config,
        )


def _not_begun(record: Record, error: BaseException, wall_s: float) -> Record:
    """Complete the record of an invocation that found no isolate."""
    record.wall_ms = 1000 * wall_s
    record.outcome = error.outcome if isinstance(error, WorkerFailed) else Outcome.CANCELED
    if isinstance(error, StartFailed):
        record.errors.append(error.failure.error)
        record.logs += error.failure.lines
    elif isinstance(error, WorkerFailed):
        record.errors.append(
            ErrorLine(name=error.outcome.value, message=error.message, time_ms=unix_ms())
        )
    return record
