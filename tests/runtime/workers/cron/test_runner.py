"""Triggers on a clock by hand: what runs, where, and how often."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import anyio
import pytest
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import Tracer

from support.worker_routes import ACCOUNT, FunctionEngine, a_version, answering
from tenantry_runtime.core import TenantId
from tenantry_runtime.errors import StoreUnavailable
from tenantry_runtime.tenancy import Store
from tenantry_runtime.tenancy.workers import WorkerSchedule
from tenantry_runtime.workers.cron import CronRunner, StoredClaims
from tenantry_runtime.workers.cron.runner import Claims
from tenantry_runtime.workers.cron.waiting import MAX_RUNNING_EACH
from tenantry_runtime.workers.interface import Invocation, WorkerFailed
from tenantry_runtime.workers.outcome import Outcome
from tenantry_runtime.workers.spec import WorkerVersion

pytestmark = pytest.mark.asyncio

# in the middle of a minute
START_S = 1_800_000_000.0 + 30
MINUTE = int(START_S // 60)


class HandClock:
    """Time that passes when it is told to."""

    def __init__(self) -> None:
        self.now_s = START_S
        self._moved = anyio.Event()

    def now(self) -> float:
        return self.now_s

    async def sleep_until(self, unix_s: float) -> None:
        while self.now_s < unix_s:
            await self._moved.wait()

    async def pass_(self, seconds: float) -> None:
        """Let time pass, and everybody do what is then to be done."""
        self.now_s += seconds
        moved, self._moved = self._moved, anyio.Event()
        moved.set()
        await anyio.wait_all_tasks_blocked()


@dataclass(slots=True)
class World:
    clock: HandClock = field(default_factory=HandClock)
    crons: list[str] = field(default_factory=lambda: ["* * * * *"])
    engine: FunctionEngine = field(default_factory=lambda: FunctionEngine(answering()))
    problem: Exception | None = None
    is_there: bool = True
    tracer: Tracer | None = None

    async def schedules(self) -> Sequence[WorkerSchedule]:
        if self.problem is not None:
            raise self.problem
        return [WorkerSchedule(account=ACCOUNT, worker="hello", cron=cron) for cron in self.crons]

    async def resolve(self, account: TenantId, worker: str) -> WorkerVersion | None:
        return a_version(worker) if self.is_there else None

    @property
    def ran(self) -> list[int]:
        """At which minutes, counted from the start."""
        return [due_ms // 60_000 - MINUTE for _, _, due_ms in self.engine.scheduled_calls]

    @asynccontextmanager
    async def running(self, claims: Claims, num_edges: int = 1) -> AsyncIterator[None]:
        async with anyio.create_task_group() as tasks:
            for _ in range(num_edges):
                runner = CronRunner(
                    schedules=self,
                    claims=claims,
                    engine=self.engine,
                    resolve=self.resolve,
                    clock=self.clock,
                    tracer=self.tracer,
                )
                tasks.start_soon(runner.run)
            await anyio.wait_all_tasks_blocked()
            yield
            tasks.cancel_scope.cancel()


class OwnClaims:
    """Claims of one edge alone."""

    def __init__(self) -> None:
        self.claimed: set[tuple[str, str, str, int]] = set()

    async def claim(self, account: TenantId, worker: str, cron: str, due_ms: int) -> bool:
        key = (account, worker, cron, due_ms)
        is_new = key not in self.claimed
        self.claimed.add(key)
        return is_new

    async def forget(self, older_than_ms: int) -> None:
        pass


async def test_a_trigger_runs_in_each_of_its_minutes_from_this_one_on() -> None:
    world = World(crons=["*/2 * * * *"])
    assert MINUTE % 2 == 0
    async with world.running(OwnClaims()):
        assert world.ran == [0]
        for _ in range(4):
            await world.clock.pass_(60)
    assert world.ran == [0, 2, 4]


async def test_minutes_that_an_edge_stood_still_are_made_up_for_up_to_a_bound() -> None:
    world = World()
    async with world.running(OwnClaims()):
        await world.clock.pass_(3600)
    assert world.ran == [0, 56, 57, 58, 59, 60]


@pytest.mark.parametrize("num_edges", [1, 3])
async def test_among_edges_of_a_store_each_trigger_runs_once(store: Store, num_edges: int) -> None:
    world = World(crons=["* * * * *", "*/2 * * * *"])
    await store.create_account(ACCOUNT)
    claims = StoredClaims(store.database)
    async with world.running(claims, num_edges):
        for num_due in (2, 3, 5):
            with anyio.fail_after(20):
                await world.engine.until_scheduled(num_due)
            await world.clock.pass_(60)
    assert len(set(world.engine.scheduled_calls)) == len(world.engine.scheduled_calls)


async def test_a_time_is_claimed_once_and_none_before_it(store: Store) -> None:
    await store.create_account(ACCOUNT)
    claims = StoredClaims(store.database)
    trigger = (ACCOUNT, "hello", "* * * * *")
    assert await claims.claim(*trigger, 120_000)
    assert not await claims.claim(*trigger, 120_000)
    assert not await claims.claim(*trigger, 60_000)
    assert await claims.claim(*trigger, 180_000)
    assert await claims.claim(ACCOUNT, "hello", "*/2 * * * *", 120_000)
    await claims.forget(200_000)
    assert await claims.claim(*trigger, 180_000)


async def test_a_worker_that_fails_or_a_store_that_is_away_ends_nothing() -> None:
    world = World()

    async def fails(
        version: WorkerVersion, cron: str, scheduled_ms: int, invocation: Invocation
    ) -> None:
        world.engine.scheduled_calls.append((version.worker, cron, scheduled_ms))
        raise WorkerFailed(Outcome.EXCEPTION, "raised")

    world.engine.scheduled = fails  # type: ignore[method-assign]
    async with world.running(OwnClaims()):
        world.problem = StoreUnavailable("away")
        await world.clock.pass_(60)
        world.problem = None
        await world.clock.pass_(60)
    assert world.ran == [0, 2]


async def test_each_run_is_a_trace_of_its_own_in_which_the_worker_asks_models(
    tracer: Tracer, exporter: InMemorySpanExporter
) -> None:
    world = World(tracer=tracer)
    async with world.running(OwnClaims()):
        await world.clock.pass_(60)
    spans = exporter.get_finished_spans()
    assert [span.name for span in spans] == ["timer hello"] * 2
    ids = [(f"{span.context.trace_id:032x}", f"{span.context.span_id:016x}") for span in spans]
    assert len({trace for trace, _ in ids}) == 2
    told = [invocation.traceparent.split("-")[1:3] for invocation in world.engine.scheduled_in]
    assert [tuple(ids) for ids in told] == ids
    assert [dict(span.attributes or {})["tenantry.worker.outcome"] for span in spans] == ["ok"] * 2


async def test_a_worker_that_is_gone_is_not_claimed() -> None:
    claims = OwnClaims()
    async with World(is_there=False).running(claims):
        pass
    assert claims.claimed == set()


async def test_what_waited_too_long_for_a_place_is_left_out() -> None:
    world = World()
    world.crons = ["* * * * *"] + [f"*/{step} * * * *" for step in range(1, 50)]
    held = anyio.Event()

    async def waits(
        version: WorkerVersion, cron: str, scheduled_ms: int, invocation: Invocation
    ) -> None:
        world.engine.scheduled_calls.append((version.worker, cron, scheduled_ms))
        await held.wait()

    world.engine.scheduled = waits  # type: ignore[method-assign]
    async with world.running(OwnClaims()):
        for _ in range(2):
            await world.clock.pass_(60)
        assert len(world.engine.scheduled_calls) == MAX_RUNNING_EACH
        await world.clock.pass_(600)
        held.set()
        await anyio.wait_all_tasks_blocked()
    late = [minute for minute in world.ran[MAX_RUNNING_EACH:] if minute < 7]
    assert late == []
