"""What runs for an invocation, what ends it, and what must not."""

from __future__ import annotations

import anyio
import pytest

from support.guests import Guests, Heard, RawRuntime, a_request, a_worker, an_invocation, fetched
from tenantry_runtime.workers.frames import Cancel, Failed, Fetch, File, Finished, Load, Loaded
from tenantry_runtime.workers.isolate import InvocationFailed

HEAD = """
import asyncio, contextvars
from workers import Response, WorkerEntrypoint
"""


@pytest.mark.asyncio
async def test_functions_of_the_module_answer_too(guests: Guests) -> None:
    code = (
        "from workers import Response\nasync def on_fetch(request, env):\n  return Response('f')\n"
    )
    async with a_worker(guests, code) as isolate:
        assert await fetched(isolate) == b"f"


@pytest.mark.asyncio
async def test_an_entrypoint_of_its_own_name_is_called(guests: Guests) -> None:
    code = HEAD + (
        "class Default(WorkerEntrypoint):\n"
        "  async def fetch(self, request): return Response('default')\n"
        "class Admin(WorkerEntrypoint):\n"
        "  async def fetch(self, request): return Response('admin')\n"
    )
    async with (
        a_worker(guests, code) as isolate,
        isolate.fetch(a_request(), an_invocation("Admin"), Heard()) as response,
    ):
        assert response.body == b"admin"


@pytest.mark.asyncio
async def test_requests_run_side_by_side_and_do_not_see_each_others_context(guests: Guests) -> None:
    code = HEAD + (
        "name = contextvars.ContextVar('name', default='nobody')\n"
        "both = asyncio.Barrier(2)\n"
        "class Default(WorkerEntrypoint):\n"
        "  async def fetch(self, request):\n"
        "    before = name.get()\n"
        "    name.set(request.url[-1])\n"
        "    await both.wait()\n"
        "    return Response(before + ' ' + name.get())\n"
    )
    async with a_worker(guests, code) as isolate:
        bodies: set[bytes] = set()

        async def fetch(path: str) -> None:
            bodies.add(await fetched(isolate, path))

        async with anyio.create_task_group() as group:
            group.start_soon(fetch, "/a")
            group.start_soon(fetch, "/b")
        assert bodies == {b"nobody a", b"nobody b"}
        assert isolate.statistics().num_invocations == 0


@pytest.mark.asyncio
async def test_what_a_handler_raises_is_told_with_its_line(guests: Guests) -> None:
    code = HEAD + (
        "class Default(WorkerEntrypoint):\n  async def fetch(self, request):\n    return 1 / 0\n"
    )
    heard = Heard()
    async with a_worker(guests, code) as isolate:
        with pytest.raises(InvocationFailed) as raised:
            await fetched(isolate, heard=heard)
    assert (raised.value.name, raised.value.message) == ("ZeroDivisionError", "division by zero")
    assert raised.value.trace.splitlines()[:3] == [
        "Traceback (most recent call last):",
        '  File "entry.py", line 6, in fetch',
        "    return 1 / 0",
    ]
    assert [error.stack for error in heard.errors] == [raised.value.trace]
    assert heard.num_finished == 1


@pytest.mark.asyncio
async def test_a_client_that_leaves_cancels_the_handler_at_its_await(guests: Guests) -> None:
    code = HEAD + (
        "class Default(WorkerEntrypoint):\n"
        "  async def fetch(self, request):\n"
        "    try:\n"
        "      print('waiting')\n"
        "      await asyncio.sleep(3600)\n"
        "    except asyncio.CancelledError:\n"
        "      print('cancelled')\n"
        "      raise\n"
        "    finally:\n"
        "      print('finally')\n"
    )
    heard = Heard()
    async with a_worker(guests, code) as isolate:
        async with anyio.create_task_group() as group:

            async def fetch() -> None:
                async with isolate.fetch(a_request(), an_invocation(), heard):
                    raise AssertionError("it answered")

            group.start_soon(fetch)
            await heard.line("waiting")
            group.cancel_scope.cancel()
        await heard.has_finished.wait()
        assert heard.texts == ["waiting", "cancelled", "finally"]
        assert [error.name for error in heard.errors] == ["CancelledError"]


def test_a_request_that_is_cancelled_before_it_began_runs_nothing(guests: Guests) -> None:
    code = HEAD + (
        "class Default(WorkerEntrypoint):\n  async def fetch(self, request): print('ran')\n"
    )
    with RawRuntime(guests.spawn()) as runtime:
        runtime.send(File("entry.py", code.encode()), Load("entry.py", []))
        assert isinstance(runtime.receive(), Loaded)
        # in one write, so that the guest reads both before the handler's first step
        runtime.send(Fetch(1, "", "GET", "http://w/", []), Cancel(1))
        told = [runtime.receive(), runtime.receive()]
    assert [type(frame) for frame in told] == [Failed, Finished]


@pytest.mark.asyncio
async def test_leaving_a_body_closes_its_generator(guests: Guests) -> None:
    code = HEAD + (
        "async def pieces():\n"
        "  try:\n"
        "    yield b'one'\n"
        "    await asyncio.sleep(3600)\n"
        "  finally:\n"
        "    print('closed')\n"
        "class Default(WorkerEntrypoint):\n"
        "  async def fetch(self, request): return Response(pieces())\n"
    )
    heard = Heard()
    async with a_worker(guests, code) as isolate:
        async with isolate.fetch(a_request(), an_invocation(), heard) as response:
            assert not isinstance(response.body, bytes)
            assert await anext(aiter(response.body)) == b"one"
        await heard.has_finished.wait()
        assert heard.texts == ["closed"]


BACKGROUND = HEAD + (
    "go = asyncio.Event()\n"
    "async def work():\n"
    "  try:\n"
    "    await go.wait()\n"
    "    print('worked')\n"
    "  except asyncio.CancelledError:\n"
    "    print('stopped')\n"
    "    raise\n"
    "class Default(WorkerEntrypoint):\n"
    "  async def fetch(self, request):\n"
    "    self.ctx.wait_until(work())\n"
    "    if request.url.endswith('/wait'):\n"
    "      print('waiting')\n"
    "      await asyncio.sleep(3600)\n"
    "    return Response('sent')\n"
    "  async def release(self):\n"
    "    go.set()\n"
)


@pytest.mark.asyncio
async def test_wait_until_goes_on_after_the_response(guests: Guests) -> None:
    heard = Heard()
    async with a_worker(guests, BACKGROUND) as isolate:
        async with isolate.fetch(a_request(), an_invocation(), heard) as response:
            assert response.body == b"sent"
        assert not heard.has_finished.is_set()
        await isolate.rpc("release", [], {}, an_invocation(), Heard())
        await heard.has_finished.wait()
        assert heard.texts == ["worked"]


@pytest.mark.asyncio
async def test_wait_until_survives_a_client_that_leaves(guests: Guests) -> None:
    heard = Heard()
    async with a_worker(guests, BACKGROUND) as isolate:
        async with anyio.create_task_group() as group:

            async def fetch() -> None:
                async with isolate.fetch(a_request("/wait"), an_invocation(), heard):
                    raise AssertionError("it answered")

            group.start_soon(fetch)
            await heard.line("waiting")
            group.cancel_scope.cancel()
        await heard.until(lambda: len(heard.errors) == 1)
        await isolate.rpc("release", [], {}, an_invocation(), Heard())
        await heard.has_finished.wait()
        assert heard.texts == ["waiting", "worked"]


@pytest.mark.asyncio
async def test_stopping_an_invocation_cancels_wait_until_too(guests: Guests) -> None:
    heard = Heard()
    async with a_worker(guests, BACKGROUND) as isolate:
        async with isolate.fetch(a_request(), an_invocation(), heard):
            pass
        isolate.stop(heard)
        await heard.has_finished.wait()
        assert heard.texts == ["stopped"]


@pytest.mark.asyncio
async def test_tasks_that_nobody_waits_for_end_with_their_invocation(guests: Guests) -> None:
    code = HEAD + (
        "async def forever():\n"
        "  try:\n"
        "    await asyncio.sleep(3600)\n"
        "  finally:\n"
        "    print('ended')\n"
        "class Default(WorkerEntrypoint):\n"
        "  async def fetch(self, request):\n"
        "    task = asyncio.create_task(forever())\n"
        "    await asyncio.sleep(0)\n"
        "    return Response('sent')\n"
    )
    heard = Heard()
    async with a_worker(guests, code) as isolate:
        assert await fetched(isolate, heard=heard) == b"sent"
    assert [line.level for line in heard.lines] == ["warn", "log"]
    assert "wait_until" in heard.texts[0]
    assert heard.texts[1] == "ended"


@pytest.mark.asyncio
async def test_methods_are_called_and_cron_triggers_run(guests: Guests) -> None:
    code = HEAD + (
        "class Default(WorkerEntrypoint):\n"
        "  async def add(self, a, *, b): return {'sum': a + b}\n"
        "  async def odd(self): return object()\n"
        "  async def scheduled(self, controller): print(controller.cron)\n"
    )
    heard = Heard()
    async with a_worker(guests, code) as isolate:
        assert await isolate.rpc("add", [1], {"b": 2}, an_invocation(), Heard()) == {"sum": 3}
        with pytest.raises(InvocationFailed):
            await isolate.rpc("odd", [], {}, an_invocation(), Heard())
        await isolate.scheduled("*/5 * * * *", 0, an_invocation(), heard)
        assert heard.texts == ["*/5 * * * *"]


@pytest.mark.asyncio
async def test_a_task_that_exits_ends_no_isolate(guests: Guests) -> None:
    code = HEAD + (
        "async def leave(): raise SystemExit(3)\n"
        "class Default(WorkerEntrypoint):\n"
        "  async def fetch(self, request):\n"
        "    task = asyncio.create_task(leave())\n"
        "    await asyncio.sleep(0)\n"
        "    raise SystemExit(4)\n"
    )
    async with a_worker(guests, code) as isolate:
        for _ in range(2):
            with pytest.raises(InvocationFailed) as raised:
                await fetched(isolate)
            assert (raised.value.name, raised.value.message) == ("SystemExit", "4")


@pytest.mark.asyncio
async def test_a_drained_isolate_tells_its_application_and_ends(guests: Guests) -> None:
    code = (
        "from workers import Response, WorkerEntrypoint, asgi\n"
        "async def app(scope, receive, send):\n"
        "  if scope['type'] == 'lifespan':\n"
        "    while True:\n"
        "      message = await receive()\n"
        "      print(message['type'])\n"
        "      await send({'type': message['type'] + '.complete'})\n"
        "      if message['type'] == 'lifespan.shutdown': return\n"
        "  await send({'type': 'http.response.start', 'status': 200, 'headers': []})\n"
        "  await send({'type': 'http.response.body', 'body': b'from the app'})\n"
        "class Default(WorkerEntrypoint):\n"
        "  async def fetch(self, request): return await asgi.fetch(app, request, self.env)\n"
    )
    outside = Heard()
    async with a_worker(guests, code, outside=outside) as isolate:
        assert await fetched(isolate) == b"from the app"
        assert await fetched(isolate) == b"from the app"
        await isolate.drain()
        assert outside.texts == ["lifespan.startup", "lifespan.shutdown"]


@pytest.mark.asyncio
async def test_a_response_that_http_cannot_carry_is_the_workers_error(guests: Guests) -> None:
    code = HEAD + (
        "class Default(WorkerEntrypoint):\n"
        "  async def fetch(self, request):\n"
        "    if request.url.endswith('/long'):\n"
        "      return Response('x', headers=[(f'x-{n}', 'v') for n in range(300)])\n"
        "    return Response('x', headers={'x-price': '3 \\u20ac'})\n"
    )
    async with a_worker(guests, code) as isolate:
        with pytest.raises(InvocationFailed, match="256 headers"):
            await fetched(isolate, "/long")
        with pytest.raises(InvocationFailed, match="latin-1"):
            await fetched(isolate)
        assert isolate.ending is None


@pytest.mark.asyncio
async def test_a_worker_that_is_out_of_memory_is_told_so_and_goes_on(guests: Guests) -> None:
    code = HEAD + (
        "import resource\n"
        "class Default(WorkerEntrypoint):\n"
        "  async def fetch(self, request):\n"
        "    if request.url.endswith('/little'): return Response('fits')\n"
        "    resource.setrlimit(resource.RLIMIT_DATA, (256 << 20, 256 << 20))\n"
        "    return Response(str(len(bytes(1 << 30))))\n"
    )
    async with a_worker(guests, code) as isolate:
        with pytest.raises(InvocationFailed) as raised:
            await fetched(isolate)
        assert raised.value.name == "MemoryError"
        assert await fetched(isolate, "/little") == b"fits"
