"""Many requests at once, of which some are left at any moment: nothing is violated, nothing stays."""

from __future__ import annotations

import random

import anyio
import pytest
from anyio.lowlevel import checkpoint

from support.byte_streams import Pieces
from support.guests import Guests, Heard, a_request, a_worker, an_invocation, whole
from tenantry_runtime.workers.interface import ByteStream, HttpResponse, StreamResult
from tenantry_runtime.workers.isolate import InvocationFailed, Isolate
from tenantry_runtime.workers.spec import AiBinding

CODE = """
    import asyncio
    from workers import Response, WorkerEntrypoint, fetch

    async def pieces():
        for n in range(40):
            yield b"x" * 20_000
            if n % 8 == 0:
                await asyncio.sleep(0)

    class Default(WorkerEntrypoint):
        async def fetch(self, request):
            match request.url.rpartition("/")[2]:
                case "hello":
                    return Response("hello")
                case "body":
                    return Response(pieces())
                case "echo":
                    return Response(await request.bytes())
                case "passed":
                    return Response(await self.env.AI.run("@cf/m", {"stream": True}))
                case "pulled":
                    events = await self.env.AI.run("@cf/m", {"stream": True})
                    async def upper():
                        async for event in events:
                            yield event.upper()
                    return Response(upper())
                case "sent":
                    return await fetch("https://example.com/", method="POST", body=pieces())
                case "raised":
                    raise ValueError
                case "later":
                    self.ctx.wait_until(self.env.AI.run("@cf/m", {}))
                    return Response("sent")
"""
KINDS = ["hello", "body", "echo", "passed", "pulled", "sent", "raised", "later"]


async def call(binding: str, method: str, args: list[object], body: ByteStream | None) -> object:
    await checkpoint()
    if binding == "FETCH":
        assert body is not None
        return HttpResponse(status=200, body=body)
    return StreamResult(stream=Pieces(*[b"event"] * 50))


async def fetch_for_a_while(
    isolate: Isolate, kind: str, num_checkpoints: int | None, heard: Heard
) -> None:
    """Fetch to the end, or leave after so many turns of the loop."""
    body = Pieces(*[b"y" * 30_000] * 20) if kind == "echo" else None
    async with anyio.create_task_group() as group:

        async def fetch() -> None:
            try:
                request = a_request(f"/{kind}", body)
                async with isolate.fetch(request, an_invocation(), heard) as response:
                    await whole(response.body)
            except InvocationFailed as error:
                assert (kind, error.name) == ("raised", "ValueError")
            group.cancel_scope.cancel()

        group.start_soon(fetch)
        if num_checkpoints is not None:
            for _ in range(num_checkpoints):
                await checkpoint()
            group.cancel_scope.cancel()


@pytest.mark.asyncio
@pytest.mark.parametrize("seed", range(4))
async def test_requests_that_are_left_at_any_moment_leave_nothing(
    guests: Guests, seed: int
) -> None:
    chances = random.Random(seed)
    all_heard: list[Heard] = []
    ai = [AiBinding(name="AI")]
    async with a_worker(guests, CODE, bindings=ai) as isolate:
        for _ in range(8):
            async with anyio.create_task_group() as group:
                for _ in range(16):
                    all_heard.append(Heard(call))
                    stays = chances.random() < 0.3
                    num_checkpoints = None if stays else chances.randrange(60)
                    kind = chances.choice(KINDS)
                    group.start_soon(
                        fetch_for_a_while, isolate, kind, num_checkpoints, all_heard[-1]
                    )
        for heard in all_heard:
            await heard.has_finished.wait()
        assert isolate.ending is None
        await isolate.drain()
        statistics = isolate.statistics()
        assert (statistics.num_calls, statistics.num_streams) == (0, 0)
    assert [heard.num_finished for heard in all_heard] == [1] * len(all_heard)
