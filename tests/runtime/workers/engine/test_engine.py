"""Versions get isolates, share them, and every invocation is told of, however it ends."""

from __future__ import annotations

import anyio
import anyio.lowlevel
import pytest

from support.worker_isolates import (
    A_REQUEST,
    NO_POOL,
    FakeBundles,
    FakeIsolate,
    FakeNursery,
    Records,
    a_version,
    an_engine,
    an_invocation,
    ask,
    failure,
    forever,
    hello,
)
from tenantry_runtime.workers.engine import EngineConfig, Exit
from tenantry_runtime.workers.engine.engine import WorkerEngine
from tenantry_runtime.workers.interface import (
    ErrorLine,
    HttpResponse,
    LoadError,
    Record,
)
from tenantry_runtime.workers.isolate import Attendant, Ending, EndingKind, InvocationFailed
from tenantry_runtime.workers.outcome import Outcome
from tenantry_runtime.workers.spec import WorkerLimits

pytestmark = pytest.mark.asyncio


class Gate:
    """A handler that lets a test count who is in, and lets them out."""

    def __init__(self) -> None:
        self.num_in = 0
        self.opened = anyio.Event()
        self._came = anyio.Event()

    async def __call__(self, isolate: FakeIsolate, attendant: Attendant) -> HttpResponse:
        self.num_in += 1
        self._came.set()
        self._came = anyio.Event()
        await self.opened.wait()
        return HttpResponse(status=200)

    async def wait_for(self, num_in: int) -> None:
        while self.num_in < num_in:
            await self._came.wait()


async def test_many_invocations_of_a_version_share_one_isolate() -> None:
    nursery, gate, version = FakeNursery(), Gate(), a_version()
    nursery.handler = gate
    async with an_engine(nursery) as engine, anyio.create_task_group() as tasks:
        for _ in range(20):
            tasks.start_soon(ask, engine, version)
        await gate.wait_for(20)
        gate.opened.set()
    assert len(nursery.loaded) == 1


async def test_no_two_versions_share_an_isolate() -> None:
    nursery = FakeNursery()
    mine, theirs = a_version(tenant="mine"), a_version(tenant="theirs")
    async with an_engine(nursery) as engine:
        for version in (mine, theirs, mine, theirs):
            await ask(engine, version)
    assert [isolate.version for isolate in nursery.loaded] == [mine, theirs]


async def test_the_record_says_who_waited_for_an_isolate() -> None:
    nursery, records, version = FakeNursery(), Records(), a_version()
    async with an_engine(nursery, records=records) as engine:
        await ask(engine, version)
        await ask(engine, version)
    first, second = records.records
    assert first.cold_start_ms is not None
    assert second.cold_start_ms is None
    assert (second.status, second.outcome, second.event.url) == (200, Outcome.OK, A_REQUEST.url)


async def test_one_more_than_an_isolate_takes_gets_another_isolate() -> None:
    nursery, gate = FakeNursery(), Gate()
    nursery.handler = gate
    version = a_version(limits=WorkerLimits(concurrency=2))
    async with an_engine(nursery) as engine, anyio.create_task_group() as tasks:
        for _ in range(3):
            tasks.start_soon(ask, engine, version)
        await gate.wait_for(3)
        gate.opened.set()
    assert len(nursery.loaded) == 2


async def test_one_that_waits_in_vain_is_told_that_the_worker_is_overloaded() -> None:
    nursery, gate, records = FakeNursery(), Gate(), Records()
    nursery.handler = gate
    version = a_version(limits=WorkerLimits(concurrency=1))
    config = EngineConfig(blank_isolates=0, max_isolates_each=1, queue_s=0.01)
    async with an_engine(nursery, config=config, records=records) as engine:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask, engine, version)
            await gate.wait_for(1)
            assert (await failure(engine, version)).outcome is Outcome.OVERLOADED
            gate.opened.set()
    assert [record.outcome for record in records.records] == [Outcome.OVERLOADED, Outcome.OK]


async def test_one_too_many_in_the_queue_is_told_at_once() -> None:
    nursery, gate = FakeNursery(), Gate()
    nursery.handler = gate
    version = a_version(limits=WorkerLimits(concurrency=1))
    config = EngineConfig(blank_isolates=0, max_isolates_each=1, queue_length=0)
    async with an_engine(nursery, config=config) as engine:
        refused = await failure(engine, version)
    assert refused.outcome is Outcome.OVERLOADED
    assert refused.retry_after_s == 1


async def test_a_handler_that_raises_fails_its_own_invocation_alone() -> None:
    async def raises(isolate: FakeIsolate, attendant: Attendant) -> HttpResponse:
        attendant.failed(ErrorLine(name="ValueError", message="bad", time_ms=0, stack="trace"))
        raise InvocationFailed("ValueError", "bad", "trace")

    nursery, records, version = FakeNursery(raises), Records(), a_version()
    async with an_engine(nursery, records=records) as engine:
        error = await failure(engine, version)
        assert (error.outcome, error.message) == (Outcome.EXCEPTION, "ValueError: bad")
        await failure(engine, version)
    assert len(nursery.loaded) == 1
    assert [error.stack for error in records.records[0].errors] == ["trace"]


async def test_a_worker_out_of_memory_is_named_and_its_isolate_replaced() -> None:
    async def raises(isolate: FakeIsolate, attendant: Attendant) -> HttpResponse:
        attendant.failed(ErrorLine(name="MemoryError", message="", time_ms=0))
        raise InvocationFailed("MemoryError", "")

    nursery, version = FakeNursery(raises), a_version()
    async with an_engine(nursery) as engine:
        assert (await failure(engine, version)).outcome is Outcome.EXCEEDED_MEMORY
        nursery.handler = hello
        assert (await ask(engine, version)).status == 200
    assert len(nursery.loaded) == 2


@pytest.mark.parametrize(
    ("exit", "outcome"),
    [
        (Exit(signal=9), Outcome.EXCEEDED_MEMORY),
        (Exit(signal=24), Outcome.EXCEEDED_CPU),
        (Exit(signal=11), Outcome.CRASHED),
        (Exit(signal=31), Outcome.CRASHED),
        (Exit(status=0), Outcome.CRASHED),
    ],
)
async def test_an_isolate_that_dies_fails_its_invocations_by_name(
    exit: Exit, outcome: Outcome
) -> None:
    async def dies(isolate: FakeIsolate, attendant: Attendant) -> HttpResponse:
        isolate.process.end(exit)
        await anyio.lowlevel.checkpoint()
        raise AssertionError

    nursery, records, version = FakeNursery(dies), Records(), a_version()
    async with an_engine(nursery, records=records) as engine:
        assert (await failure(engine, version)).outcome is outcome
        nursery.handler = hello
        # replaced at once, without a pause
        assert (await ask(engine, version)).body == b"hello"
    assert records.records[0].outcome is outcome


async def test_an_isolate_that_breaks_the_rules_is_ended() -> None:
    async def lies(isolate: FakeIsolate, attendant: Attendant) -> HttpResponse:
        isolate.end(Ending(EndingKind.VIOLATION, "a stream that nobody opened"))
        await anyio.lowlevel.checkpoint()
        raise AssertionError

    nursery, version = FakeNursery(lies), a_version()
    async with an_engine(nursery) as engine:
        error = await failure(engine, version)
    assert (error.outcome, error.message) == (Outcome.VIOLATION, "a stream that nobody opened")
    assert nursery.loaded[0].process.is_killed


async def test_the_watchdog_ends_what_uses_too_much() -> None:
    async def burns(isolate: FakeIsolate, attendant: Attendant) -> HttpResponse:
        isolate.process.cpu += 51_000_000
        return await forever(isolate, attendant)

    nursery = FakeNursery(burns)
    version = a_version(limits=WorkerLimits(cpu_ms=50))
    async with an_engine(nursery) as engine:
        assert (await failure(engine, version)).outcome is Outcome.EXCEEDED_CPU


async def test_the_watchdog_stops_what_takes_too_long() -> None:
    nursery = FakeNursery(forever)
    version = a_version(limits=WorkerLimits(wall_s=0.02))
    async with an_engine(nursery) as engine:
        assert (await failure(engine, version)).outcome is Outcome.EXCEEDED_WALL


async def test_whoever_goes_away_cancels_the_handler() -> None:
    nursery, gate, records, version = FakeNursery(), Gate(), Records(), a_version()
    nursery.handler = gate
    async with an_engine(nursery, records=records) as engine:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask, engine, version)
            await gate.wait_for(1)
            tasks.cancel_scope.cancel()
        (record,) = await records.wait(1)
    assert record.outcome is Outcome.CANCELED


async def test_a_record_comes_when_wait_until_has_ended() -> None:
    async def holds(isolate: FakeIsolate, attendant: Attendant) -> HttpResponse:
        isolate.held.add(attendant)
        return HttpResponse(status=200)

    nursery, records, version = FakeNursery(holds), Records(), a_version()
    async with an_engine(nursery, records=records) as engine:
        await ask(engine, version)
        assert records.records == []
        (isolate,) = nursery.loaded
        isolate.finish(next(iter(isolate.held)))
        assert [record.outcome for record in records.records] == [Outcome.OK]


async def test_each_invocation_in_mode_request_has_an_isolate_that_nobody_had() -> None:
    nursery, version = FakeNursery(), a_version(isolation="request")
    async with an_engine(nursery) as engine:
        for _ in range(3):
            await ask(engine, version)
    assert len(nursery.loaded) == 3


async def test_no_more_isolates_for_a_single_use_run_than_the_version_may_have() -> None:
    nursery, gate = FakeNursery(), Gate()
    nursery.handler = gate
    version = a_version(isolation="request", limits=WorkerLimits(concurrency=2))
    async with an_engine(nursery) as engine, anyio.create_task_group() as tasks:
        for _ in range(4):
            tasks.start_soon(ask, engine, version)
        await gate.wait_for(2)
        assert nursery.most_alive == 2
        gate.opened.set()
    assert len(nursery.loaded) == 4


async def test_a_version_that_cannot_be_loaded_fails_all_that_wait_with_one_load() -> None:
    async def fails(isolate: FakeIsolate) -> None:
        raise LoadError("NameError", "name 'x' is not defined", path="entry.py", line=3, trace="t")

    nursery, records, version = FakeNursery(load=fails), Records(), a_version()
    async with an_engine(nursery, records=records) as engine:
        async with anyio.create_task_group() as tasks:
            for _ in range(5):
                tasks.start_soon(failure, engine, version)
        error = await failure(engine, version)
    assert len(nursery.isolates) == 1
    assert error.outcome is Outcome.LOAD_FAILED
    assert error.message == "NameError: name 'x' is not defined (entry.py, line 3)"
    assert error.retry_after_s == 1
    assert [line.stack for line in records.records[0].errors] == ["t"]


async def test_a_version_is_tried_again_when_its_time_has_come() -> None:
    async def fails(isolate: FakeIsolate) -> None:
        raise LoadError("NameError", "no")

    nursery, version = FakeNursery(load=fails), a_version()
    config = EngineConfig(blank_isolates=0, backoff_s=1e-6, max_backoff_s=1e-6)
    async with an_engine(nursery, config=config) as engine:
        await failure(engine, version)
        nursery.load = FakeNursery().load
        assert (await ask(engine, version)).status == 200


async def test_an_import_that_dies_is_a_load_that_failed() -> None:
    async def dies(isolate: FakeIsolate) -> None:
        isolate.process.end(Exit(signal=11))

    nursery, version = FakeNursery(load=dies), a_version()
    async with an_engine(nursery) as engine:
        assert (await failure(engine, version)).outcome is Outcome.CRASHED
        again = await failure(engine, version)
    assert len(nursery.isolates) == 1
    assert again.retry_after_s is not None


async def test_a_load_is_held_to_its_cpu_time() -> None:
    async def burns(isolate: FakeIsolate) -> None:
        isolate.process.cpu += 1_001_000_000
        await anyio.sleep_forever()

    nursery = FakeNursery(load=burns)
    async with an_engine(nursery) as engine:
        with pytest.raises(LoadError, match="exceededCpu") as raised:
            await engine.try_load(a_version())
    assert "1000 ms" in raised.value.message


async def test_an_upload_is_tried_in_an_isolate_that_is_thrown_away() -> None:
    async def burns(isolate: FakeIsolate) -> None:
        isolate.process.cpu += 12_000_000

    nursery = FakeNursery(load=burns)
    async with an_engine(nursery) as engine:
        assert await engine.try_load(a_version()) == 12.0
        await nursery.isolates[0].ended.wait()
        assert nursery.isolates[0].process.is_killed


async def test_files_of_a_bundle_are_read_once_for_many_isolates() -> None:
    nursery, bundles = FakeNursery(), FakeBundles()
    version = a_version(isolation="request")
    async with an_engine(nursery, bundles=bundles) as engine:
        await ask(engine, version)
        await ask(engine, version)
    assert bundles.num_reads == 1
    assert nursery.loaded[1].files == {"entry.py": version.files[0].digest.encode()}


async def test_the_isolate_idle_for_longest_gives_way_when_there_is_no_room() -> None:
    nursery, versions = FakeNursery(), [a_version() for _ in range(3)]
    config = EngineConfig(blank_isolates=0, max_isolates=2)
    async with an_engine(nursery, config=config) as engine:
        for version in versions:
            await ask(engine, version)
        assert nursery.loaded[0].process.is_killed
        assert not nursery.loaded[1].process.is_killed


async def test_one_without_room_waits_until_an_isolate_is_idle() -> None:
    nursery, gate = FakeNursery(), Gate()
    nursery.handler = gate
    config = EngineConfig(blank_isolates=0, max_isolates=1)
    async with an_engine(nursery, config=config) as engine, anyio.create_task_group() as tasks:
        tasks.start_soon(ask, engine, a_version())
        await gate.wait_for(1)
        tasks.start_soon(ask, engine, a_version())
        await anyio.wait_all_tasks_blocked()
        assert gate.num_in == 1
        gate.opened.set()
    assert gate.num_in == 2


async def test_a_response_over_its_size_is_refused() -> None:
    async def large(isolate: FakeIsolate, attendant: Attendant) -> HttpResponse:
        return HttpResponse(status=200, body=b"x" * 11)

    nursery, records = FakeNursery(large), Records()
    version = a_version(limits=WorkerLimits(response_bytes=10))
    async with an_engine(nursery, records=records) as engine:
        assert (await failure(engine, version)).outcome is Outcome.RESPONSE_TOO_LARGE
    assert records.records[0].outcome is Outcome.RESPONSE_TOO_LARGE


async def test_a_retired_version_s_isolate_ends_when_nothing_runs_in_it() -> None:
    nursery, gate, version = FakeNursery(), Gate(), a_version()
    nursery.handler = gate
    async with an_engine(nursery) as engine, anyio.create_task_group() as tasks:
        tasks.start_soon(ask, engine, version)
        await gate.wait_for(1)
        engine.retire(version.version_id)
        assert not nursery.loaded[0].process.is_killed
        gate.opened.set()
        await nursery.loaded[0].ended.wait()


async def test_isolates_are_counted_as_they_start_and_by_what_they_end_of() -> None:
    async def fails(isolate: FakeIsolate) -> None:
        raise LoadError("NameError", "name 'x' is not defined")

    async def lies(isolate: FakeIsolate, attendant: Attendant) -> HttpResponse:
        isolate.end(Ending(EndingKind.VIOLATION, "a stream that nobody opened"))
        return await forever(isolate, attendant)

    nursery = FakeNursery()
    async with an_engine(nursery) as engine:
        retired, liar, unloadable = a_version("a"), a_version("b"), a_version("c")
        await ask(engine, retired)
        engine.retire(retired.version_id)
        await nursery.loaded[0].ended.wait()
        nursery.handler = lies
        await failure(engine, liar)
        nursery.load = fails
        await failure(engine, unloadable)
        await anyio.wait_all_tasks_blocked()
        counted = engine.statistics()
    assert counted.num_started == 3
    assert counted.num_ended == {"retired": 1, "protocolViolation": 1, "scriptNotFound": 1}


async def test_a_drain_waits_for_what_runs_and_takes_nothing_more() -> None:
    nursery, gate, version = FakeNursery(), Gate(), a_version()
    nursery.handler = gate
    has_drained = anyio.Event()

    async def drain(engine: WorkerEngine) -> None:
        await engine.drain()
        has_drained.set()

    async with an_engine(nursery) as engine, anyio.create_task_group() as tasks:
        tasks.start_soon(ask, engine, version)
        await gate.wait_for(1)
        tasks.start_soon(drain, engine)
        await anyio.wait_all_tasks_blocked()
        assert (await failure(engine, version)).outcome is Outcome.OVERLOADED
        assert not has_drained.is_set()
        gate.opened.set()
        await has_drained.wait()


async def test_a_drain_does_not_wait_for_ever() -> None:
    nursery, gate, version = FakeNursery(), Gate(), a_version()
    nursery.handler = gate
    config = EngineConfig(blank_isolates=0, drain_s=0.01)
    async with an_engine(nursery, config=config) as engine, anyio.create_task_group() as tasks:
        tasks.start_soon(ask, engine, version)
        await gate.wait_for(1)
        await engine.drain()
        tasks.cancel_scope.cancel()


async def test_cron_and_calls_between_workers_run_and_are_recorded() -> None:
    nursery, records, version = FakeNursery(), Records(), a_version()
    async with an_engine(nursery, records=records) as engine:
        await engine.scheduled(version, "* * * * *", 60_000, an_invocation())
        assert await engine.rpc(version, "add", [1], {}, an_invocation()) == 200
    scheduled, called = (record.event for record in records.records)
    assert (scheduled.kind, scheduled.cron, scheduled.scheduled_ms) == (
        "scheduled",
        "* * * * *",
        60_000,
    )
    assert (called.kind, called.rpc_method) == ("rpc", "add")


async def test_nothing_is_left_when_an_engine_has_ended() -> None:
    nursery, version = FakeNursery(), a_version()
    async with an_engine(nursery, config=EngineConfig()) as engine:
        await ask(engine, version)
    assert nursery.num_alive == 0


def outcomes(records: list[Record]) -> list[Outcome]:
    return [record.outcome for record in records]


async def test_invocations_that_only_wait_until_keeps_learn_of_a_crash() -> None:
    async def holds(isolate: FakeIsolate, attendant: Attendant) -> HttpResponse:
        isolate.held.add(attendant)
        return HttpResponse(status=200)

    nursery, records, version = FakeNursery(holds), Records(), a_version()
    async with an_engine(nursery, config=NO_POOL, records=records) as engine:
        await ask(engine, version)
        nursery.loaded[0].process.end(Exit(signal=11))
        assert outcomes(await records.wait(1)) == [Outcome.CRASHED]
