"""One request that holds an isolate up, or ends it, is no other request's misfortune."""

from __future__ import annotations

import os
import signal

import anyio
import pytest

from support.confined_workers import Machine, Workshop, a_workshop, find_machine
from support.worker_isolates import an_invocation
from tenantry_runtime.workers.engine import EngineConfig
from tenantry_runtime.workers.interface import HttpRequest, LoadError, WorkerFailed
from tenantry_runtime.workers.outcome import Outcome
from tenantry_runtime.workers.spec import WorkerLimits, WorkerVersion

PATIENCE_S = 60.0

pytestmark = [pytest.mark.isolates, pytest.mark.asyncio]


@pytest.fixture(scope="module")
def machine() -> Machine:
    return anyio.run(find_machine)


async def fail(shop: Workshop, version: WorkerVersion, failures: list[WorkerFailed]) -> None:
    try:
        await shop.get(version, "/bad")
    except WorkerFailed as failure:
        failures.append(failure)


KEPT_BY = {
    "a loop": ("while True: pass", WorkerLimits(cpu_ms=5000), Outcome.EXCEEDED_CPU),
    "a sleep": ("time.sleep(100)", WorkerLimits(wall_s=6.0), Outcome.EXCEEDED_WALL),
}


@pytest.mark.parametrize("name", KEPT_BY)
async def test_requests_that_come_behind_one_that_hangs_are_answered_by_another_isolate(
    machine: Machine, name: str
) -> None:
    line, limits, expected = KEPT_BY[name]
    failures: list[WorkerFailed] = []
    async with a_workshop(machine) as shop:
        version = shop.texts.handler(
            f"""
            if request.url.endswith("/bad"):
                print("begun")
                {line}
            return Response("good")
            """,
            limits=limits,
        )
        assert await shop.get(version) == b"good"
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(fail, shop, version, failures)
            await anyio.lowlevel.checkpoint()
            # one that goes away changes nothing
            with anyio.move_on_after(0.2):
                await shop.get(version)
            request = HttpRequest(method="POST", url="http://w/", body=b"x")
            async with shop.engine.fetch(version, request, an_invocation()) as response:
                assert response.body == b"good"
            assert [await shop.get(version) for _ in range(3)] == [b"good"] * 3
            assert failures == []
        records = await shop.records.wait(7)
    assert [failure.outcome for failure in failures] == [expected]
    assert "entry.py, line 8" in failures[0].message
    outcomes = [record.outcome for record in records]
    assert sorted(outcomes) == sorted([Outcome.OK] * 5 + [Outcome.CANCELED, expected])


@pytest.mark.parametrize("line", ["while True: pass", "time.sleep(100)"])
async def test_an_import_that_hangs_is_ended_in_its_line(machine: Machine, line: str) -> None:
    async with a_workshop(machine, EngineConfig(blank_isolates=1, load_s=2.0)) as shop:
        # two lines of imports come before it
        version = shop.texts.version(f"x = 1\n{line}\n")
        with pytest.raises(LoadError) as raised:
            await shop.engine.try_load(version)
    assert (raised.value.path, raised.value.line) == ("entry.py", 5)


async def test_a_request_to_an_isolate_that_has_just_died_is_served_by_another(
    machine: Machine,
) -> None:
    async with a_workshop(machine) as shop:
        version = shop.texts.handler("return Response(str(os.getpid()))")
        await shop.get(version)
        (pid,) = shop.engine.pids()
        os.kill(pid, signal.SIGKILL)
        await shop.get(version)
        assert shop.engine.pids() != [pid]
        records = await shop.records.wait(2)
    assert [record.outcome for record in records] == [Outcome.OK, Outcome.OK]


async def test_whoever_reads_the_last_of_an_isolate_may_leave_when_its_version_is_forgotten(
    machine: Machine,
) -> None:
    async with a_workshop(machine) as shop:
        version = shop.texts.handler(
            """
            if request.url.endswith("/other"):
                return Response("other")
            async def body():
                yield b"begun"
                await asyncio.sleep(0)
                while True: pass
            import asyncio
            return Response(body())
            """,
            limits=WorkerLimits(cpu_ms=2500),
        )
        request = HttpRequest(method="GET", url="http://w/")
        async with shop.engine.fetch(version, request, an_invocation()) as response:
            assert not isinstance(response.body, bytes)
            assert await anext(aiter(response.body)) == b"begun"
            # by another isolate, which a deployment ends
            assert await shop.get(version, "/other") == b"other"
            shop.engine.retire(version.version_id)
            with anyio.fail_after(PATIENCE_S):
                while len(shop.engine.statistics().num_ended) < 2:  # noqa: ASYNC110
                    await anyio.sleep(0.05)
            # there are none left: it is forgotten
            await shop.engine.tidy()
        outcomes = {record.outcome for record in await shop.records.wait(2)}
    assert outcomes == {Outcome.OK, Outcome.EXCEEDED_CPU}
