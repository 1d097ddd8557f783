"""Workers in isolates for real: every way to end is named, and the next request is served."""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import pytest

from support.byte_streams import Pieces
from support.confined_workers import Machine, Workshop, a_workshop, find_machine
from support.worker_isolates import FakeBindings, an_invocation
from tenantry_runtime.workers.engine import EngineConfig
from tenantry_runtime.workers.interface import (
    HttpRequest,
    HttpResponse,
    LoadError,
    StreamResult,
    WorkerFailed,
)
from tenantry_runtime.workers.outcome import Outcome
from tenantry_runtime.workers.spec import WorkerLimits, WorkerVersion

pytestmark = [pytest.mark.isolates, pytest.mark.asyncio]


@pytest.fixture(scope="module")
def machine() -> Machine:
    return anyio.run(find_machine)


SHORT = WorkerLimits(cpu_ms=100, wall_s=1.0)


async def outcome(shop: Workshop, version: WorkerVersion, path: str = "/") -> WorkerFailed:
    with pytest.raises(WorkerFailed) as raised:
        await shop.get(version, path)
    return raised.value


BREACHES = {
    "a loop without an end": ("while True: pass", Outcome.EXCEEDED_CPU),
    "a regular expression": (
        "import re; re.match('(a+)+$', 'a' * 40 + 'b')",
        Outcome.EXCEEDED_CPU,
    ),
    "a loop that logs": ("while True: print('x' * 100)", Outcome.EXCEEDED_CPU),
    "a loop that yields": ("while True: await asyncio.sleep(0)", Outcome.EXCEEDED_CPU),
    "a long sleep": ("await asyncio.sleep(100)", Outcome.EXCEEDED_WALL),
    "a sleep that blocks all": ("time.sleep(100)", Outcome.EXCEEDED_WALL),
    "memory": ("x = bytearray(200 << 20)", Outcome.EXCEEDED_MEMORY),
    "an exit": ("os._exit(3)", Outcome.CRASHED),
    "a fault": ("import ctypes; ctypes.string_at(0)", Outcome.CRASHED),
    "an exception": ("raise ValueError('bad')", Outcome.EXCEPTION),
}


@pytest.mark.parametrize("name", BREACHES)
async def test_each_breach_is_named_and_the_worker_serves_the_next_request(
    machine: Machine, name: str
) -> None:
    code, expected = BREACHES[name]
    async with a_workshop(machine) as shop:
        version = shop.texts.handler(
            f"""
            if request.url.endswith("/bad"):
                {code}
            return Response("good")
            """,
            limits=SHORT,
        )
        assert await shop.get(version) == b"good"
        assert (await outcome(shop, version, "/bad")).outcome is expected
        assert await shop.get(version) == b"good"
        records = await shop.records.wait(3)
    assert [record.outcome for record in records] == [Outcome.OK, expected, Outcome.OK]


async def test_what_waits_for_nothing_is_told_its_line(machine: Machine) -> None:
    async with a_workshop(machine) as shop:
        version = shop.texts.handler("await asyncio.get_running_loop().create_future()")
        error = await outcome(shop, version)
        (record,) = await shop.records.wait(1)
    assert error.outcome is Outcome.NEVER_RESPONDS
    assert [line.name for line in record.errors] == ["neverResponds"]
    # the line of `await`: three lines of imports and two of the class come before it
    assert "entry.py, line 6" in error.message


async def test_requests_beside_one_that_breaks_a_limit_get_an_answer(machine: Machine) -> None:
    async with a_workshop(machine) as shop:
        version = shop.texts.handler(
            """
            if request.url.endswith("/bad"):
                while True: pass
            await asyncio.sleep(100)
            """,
            limits=WorkerLimits(cpu_ms=100),
        )
        waiting = anyio.Event()

        async def wait() -> None:
            waiting.set()
            failed = await outcome(shop, version)
            assert failed.outcome is Outcome.UNRESPONSIVE
            assert "entry.py, line 7" in failed.message

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(wait)
            await waiting.wait()
            assert (await outcome(shop, version, "/bad")).outcome is Outcome.EXCEEDED_CPU


async def test_an_import_that_fails_names_file_and_line(machine: Machine) -> None:
    async with a_workshop(machine) as shop:
        version = shop.texts.version("x = 1\nboom\n")
        with pytest.raises(LoadError, match="boom") as raised:
            await shop.engine.try_load(version)
        assert (raised.value.name, raised.value.path) == ("NameError", "entry.py")
        failed = await outcome(shop, version)
        again = await outcome(shop, version)
    assert failed.outcome is again.outcome is Outcome.LOAD_FAILED
    assert again.retry_after_s is not None


async def test_files_that_fill_the_memory_are_named_with_both_sizes(machine: Machine) -> None:
    async with a_workshop(machine) as shop:
        code = "class Default(WorkerEntrypoint): ..."
        version = shop.texts.version(code, data={"data.bin": bytes(63 << 20)})
        with pytest.raises(LoadError) as raised:
            await shop.engine.try_load(version)
    assert raised.value.name == "MemoryError"
    for words in ("memory of 128 MiB is full", "files alone have 63.0 MiB", "Leave out"):
        assert words in raised.value.message


async def test_an_import_has_a_second_of_cpu_time(machine: Machine) -> None:
    async with a_workshop(machine) as shop:
        with pytest.raises(LoadError, match="exceededCpu"):
            await shop.engine.try_load(shop.texts.version("while True: pass"))
        cpu_ms = await shop.engine.try_load(shop.texts.handler("return Response('x')"))
    assert 0 < cpu_ms < 1000


async def test_many_requests_share_an_isolate_and_its_globals(machine: Machine) -> None:
    async with a_workshop(machine) as shop:
        version = shop.texts.version(
            """
            num_in = most = 0
            class Default(WorkerEntrypoint):
                async def fetch(self, request):
                    global num_in, most
                    num_in += 1
                    most = max(most, num_in)
                    await asyncio.sleep(0.05)
                    num_in -= 1
                    return Response(str(most))
            """
        )
        await shop.get(version)
        answers: list[bytes] = []

        async def get() -> None:
            answers.append(await shop.get(version))

        async with anyio.create_task_group() as tasks:
            for _ in range(40):
                tasks.start_soon(get)
    assert answers[-1] == b"40"


async def test_in_mode_request_no_request_sees_what_another_left(machine: Machine) -> None:
    async with a_workshop(machine) as shop:
        version = shop.texts.version(
            """
            seen = 0
            class Default(WorkerEntrypoint):
                async def fetch(self, request):
                    global seen
                    seen += 1
                    return Response(str(seen))
            """,
            isolation="request",
        )
        assert [await shop.get(version) for _ in range(3)] == [b"1", b"1", b"1"]


async def test_wait_until_goes_on_after_the_response_and_a_drain_waits_for_it(
    machine: Machine,
) -> None:
    async with a_workshop(machine) as shop:
        version = shop.texts.handler(
            """
            async def later():
                await asyncio.sleep(0.1)
                print("later")
            wait_until(later())
            return Response("now")
            """
        )
        assert await shop.get(version) == b"now"
        assert shop.records.records == []
        await shop.engine.drain()
        (record,) = shop.records.records
    assert [line.text for line in record.logs] == ["later"]


async def test_whoever_goes_away_cancels_the_handler_and_its_call(machine: Machine) -> None:
    asked, was_cancelled = anyio.Event(), anyio.Event()

    async def answer() -> None:
        asked.set()
        try:
            await anyio.sleep_forever()
        finally:
            was_cancelled.set()

    async with a_workshop(machine, bindings=FakeBindings(answer)) as shop:
        version = shop.texts.handler(
            """
            try:
                await self.env.AI.run("model", {})
            finally:
                print("ended")
            """
        )
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(shop.get, version)
            await asked.wait()
            tasks.cancel_scope.cancel()
        await was_cancelled.wait()
        (record,) = await shop.records.wait(1)
    assert record.outcome is Outcome.CANCELED
    assert [line.text for line in record.logs] == ["ended"]
    assert record.errors == []


async def test_a_stream_of_a_binding_passes_the_isolate_by(machine: Machine) -> None:
    class Events:
        async def __aiter__(self) -> AsyncIterator[bytes]:
            for number in range(500):
                yield b"data: %d\n\n" % number

        async def aclose(self) -> None: ...

    async def answer() -> StreamResult:
        return StreamResult(stream=Events())

    async with a_workshop(machine, bindings=FakeBindings(answer)) as shop:
        version = shop.texts.handler(
            """
            stream = await self.env.AI.run("model", {"stream": True})
            return Response(stream, headers={"content-type": "text/event-stream"})
            """
        )
        body = await shop.get(version)
        (record,) = await shop.records.wait(1)
    assert body == b"".join(b"data: %d\n\n" % number for number in range(500))
    assert record.outcome is Outcome.OK


async def test_a_response_that_grows_too_large_breaks_off(machine: Machine) -> None:
    async with a_workshop(machine) as shop:
        version = shop.texts.handler(
            """
            async def pieces():
                while True:
                    yield b"x" * 1000
            return Response(pieces())
            """,
            limits=WorkerLimits(response_bytes=100_000),
        )
        assert (await outcome(shop, version)).outcome is Outcome.RESPONSE_TOO_LARGE
        (record,) = await shop.records.wait(1)
    assert record.outcome is Outcome.RESPONSE_TOO_LARGE


async def test_one_subrequest_too_many_raises_in_the_worker(machine: Machine) -> None:
    async with a_workshop(machine) as shop:
        version = shop.texts.handler(
            """
            for number in range(10):
                try:
                    await self.env.AI.run("model", {})
                except Exception as error:
                    return Response(f"{number}: {error}")
            """,
            limits=WorkerLimits(subrequests=3),
        )
        assert (await shop.get(version)).startswith(b"3: Too many subrequests")


async def test_no_more_connections_are_open_than_an_invocation_may_have(machine: Machine) -> None:
    num_open = most = 0

    async def answer() -> HttpResponse:
        nonlocal num_open, most
        num_open += 1
        most = max(most, num_open)
        for _ in range(10):
            await anyio.lowlevel.checkpoint()
        num_open -= 1
        return HttpResponse(status=200, body=b"")

    async with a_workshop(machine, bindings=FakeBindings(answer)) as shop:
        version = shop.texts.handler(
            """
            await asyncio.gather(*(fetch("http://example.com/") for _ in range(20)))
            return Response("all")
            """,
            limits=WorkerLimits(connections=4),
        )
        assert await shop.get(version) == b"all"
    assert most == 4


async def test_an_isolate_that_works_while_nobody_asks_is_ended(machine: Machine) -> None:
    has_worked = anyio.Event()

    async def answer() -> None:
        has_worked.set()

    config = EngineConfig(blank_isolates=0, idle_cpu_ms=20.0)
    async with a_workshop(machine, config, bindings=FakeBindings(answer)) as shop:
        version = shop.texts.version(
            """
            async def work(ai):
                await asyncio.sleep(0.01)
                end_s = time.process_time() + 0.05
                while time.process_time() < end_s:
                    pass
                await ai.run("model", {})
            class Default(WorkerEntrypoint):
                async def fetch(self, request):
                    import contextvars
                    loop = asyncio.get_running_loop()
                    start = lambda: globals().update(task=loop.create_task(work(self.env.AI)))
                    loop.call_soon(start, context=OUTSIDE)
                    return Response("now")
            import contextvars
            OUTSIDE = contextvars.copy_context()
            """
        )
        assert await shop.get(version) == b"now"
        await has_worked.wait()
        assert shop.engine.statistics().num_idle == 1
        await shop.engine.tidy()
        assert shop.engine.statistics().num_idle == 0


async def test_isolates_of_one_template_share_a_hash_seed_until_it_is_replaced(
    machine: Machine,
) -> None:
    config = EngineConfig(blank_isolates=0, template_spawns=2)
    async with a_workshop(machine, config) as shop:
        version = shop.texts.handler("return Response(str(hash('seed')))", isolation="request")
        seeds = [await shop.get(version)]
        with anyio.fail_after(20):
            while len(set(seeds)) < 3:
                seeds.append(await shop.get(version))
    assert seeds[0] == seeds[1]


async def test_a_body_is_streamed_both_ways(machine: Machine) -> None:
    async with a_workshop(machine) as shop:
        version = shop.texts.handler("return Response(request.body)")
        body = Pieces(*[b"x" * 10_000] * 100)
        request = HttpRequest(method="POST", url="http://hello.acme.localhost/", body=body)
        num_bytes = 0
        async with shop.engine.fetch(version, request, an_invocation()) as response:
            assert not isinstance(response.body, bytes)
            async for piece in response.body:
                num_bytes += len(piece)
    assert num_bytes == 1_000_000


async def test_a_version_starts_with_the_dependencies_that_it_names(
    machine: Machine, tmp_path: Path
) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "greeting.py").write_text(f"TEXT = {name!r}\n")
    async with a_workshop(machine) as shop:
        shop.texts.folders |= {name: str(tmp_path / name) for name in ("one", "two")}
        body = "import greeting; return Response(greeting.TEXT)"
        one = shop.texts.handler(body, dependencies="one")
        two = shop.texts.handler(body, dependencies="two")
        none = shop.texts.handler(body)
        assert [await shop.get(one), await shop.get(two)] == [b"one", b"two"]
        assert (await outcome(shop, none)).outcome is Outcome.EXCEPTION


async def test_workers_are_served_again_after_their_template_has_died(machine: Machine) -> None:
    async with a_workshop(machine) as shop:
        version = shop.texts.handler("return Response('good')")
        assert await shop.get(version) == b"good"
        (template,) = shop.templates.pids()
        os.kill(template, signal.SIGKILL)
        # whoever asks before all is known of it may be told of the crash
        with anyio.fail_after(20):
            while (await attempt(shop, version)) != b"good" or shop.templates.pids() == [template]:
                await anyio.lowlevel.checkpoint()


async def attempt(shop: Workshop, version: WorkerVersion) -> bytes:
    try:
        return await shop.get(version)
    except WorkerFailed as failed:
        return failed.outcome.encode()


async def test_data_lies_beside_the_module_and_is_the_isolates_own(machine: Machine) -> None:
    async with a_workshop(machine) as shop:
        code = """
            import pathlib
            page = pathlib.Path(__file__).parent / "pages" / "page.html"
            text = page.read_text()
            page.write_text(text + "!")
            assert open("pages/page.html").read() == text + "!"
            return Response(text)
            """
        one = shop.texts.handler(code, data={"pages/page.html": b"<p>"}, isolation="request")
        assert [await shop.get(one) for _ in range(2)] == [b"<p>"] * 2
