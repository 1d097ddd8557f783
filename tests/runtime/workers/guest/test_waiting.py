"""Who waits for what cannot come, and in which line; and who does not."""

from __future__ import annotations

import anyio
import pytest

from support.byte_streams import Pieces
from support.guests import Guests, Heard, a_request, a_worker, an_invocation, fetched
from tenantry_runtime.workers.interface import ByteStream
from tenantry_runtime.workers.isolate import Isolate
from tenantry_runtime.workers.spec import AiBinding

HEAD = "import asyncio\nfrom workers import Response, WorkerEntrypoint\n"


async def fetch_forever(isolate: Isolate, heard: Heard) -> None:
    async with isolate.fetch(a_request("/", Pieces(b"x")), an_invocation(), heard):
        raise AssertionError("it answered")


@pytest.mark.asyncio
async def test_the_line_that_waits_for_nothing_is_named(guests: Guests) -> None:
    code = HEAD + (
        "class Default(WorkerEntrypoint):\n"
        "  async def fetch(self, request):\n"
        "    await self.inner()\n"
        "  async def inner(self):\n"
        "    await asyncio.Future()\n"
    )
    heard = Heard()
    async with a_worker(guests, code) as isolate, anyio.create_task_group() as group:
        group.start_soon(fetch_forever, isolate, heard)
        await heard.until(lambda: bool(heard.places))
        group.cancel_scope.cancel()
    assert heard.places == [("entry.py", 7)]


@pytest.mark.asyncio
async def test_wait_until_can_wait_for_nothing_too(guests: Guests) -> None:
    code = HEAD + (
        "async def later():\n"
        "  await asyncio.Event().wait()\n"
        "class Default(WorkerEntrypoint):\n"
        "  async def fetch(self, request):\n"
        "    self.ctx.wait_until(later())\n"
        "    return Response('')\n"
    )
    heard = Heard()
    async with a_worker(guests, code) as isolate:
        async with isolate.fetch(a_request(), an_invocation(), heard):
            pass
        await heard.until(lambda: bool(heard.places))
    assert heard.places == [("entry.py", 4)]


@pytest.mark.asyncio
async def test_requests_that_wait_for_each_other_have_time_to_meet(guests: Guests) -> None:
    code = HEAD + (
        "met = asyncio.Event()\n"
        "class Default(WorkerEntrypoint):\n"
        "  async def fetch(self, request):\n"
        "    await met.wait()\n"
        "    return Response('met')\n"
        "  async def meet(self): met.set()\n"
    )
    heard, bodies = Heard(), list[bytes]()
    async with a_worker(guests, code) as isolate, anyio.create_task_group() as group:

        async def fetch() -> None:
            bodies.append(await fetched(isolate, heard=heard))

        group.start_soon(fetch)
        await isolate.rpc("meet", [], {}, an_invocation(), Heard())
    assert (bodies, heard.places) == ([b"met"], [])


@pytest.mark.asyncio
@pytest.mark.parametrize(
    "waits",
    [
        "await self.env.AI.run('@cf/m', {'prompt': 'hi'})",
        "await asyncio.sleep(3600)",
        "await asyncio.get_running_loop().run_in_executor(None, threading.Event().wait, 3600)",
        "await anext(await self.env.AI.run('@cf/m', {'prompt': 'hi', 'stream': True}))",
    ],
)
async def test_what_can_still_come_is_waited_for(guests: Guests, waits: str) -> None:
    code = HEAD + (
        "import threading\n"
        "class Default(WorkerEntrypoint):\n"
        "  async def fetch(self, request):\n"
        f"    {waits}\n"
        "  async def ping(self): return 'pong'\n"
    )
    heard = Heard(never_answers)
    ai = [AiBinding(name="AI")]
    async with (
        a_worker(guests, code, bindings=ai, is_hasty=True) as isolate,
        anyio.create_task_group() as group,
    ):
        group.start_soon(fetch_forever, isolate, heard)
        # each answer comes out of a turn that ends in the loop's waiting
        for _ in range(5):
            await isolate.rpc("ping", [], {}, an_invocation(), Heard())
        assert heard.places == []
        group.cancel_scope.cancel()


async def never_answers(
    binding: str, method: str, args: list[object], body: ByteStream | None
) -> object:
    await anyio.sleep_forever()
    return None
