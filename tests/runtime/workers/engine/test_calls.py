"""An invocation calls bindings as often, and fetches over as many connections, as it may."""

from __future__ import annotations

import anyio
import pytest

from support.byte_streams import Pieces
from support.worker_isolates import FakeBindings, a_version, an_invocation
from tenantry_runtime.workers.engine.calls import Calls
from tenantry_runtime.workers.interface import (
    FETCH,
    ByteStream,
    CallContext,
    CallRefused,
    HttpResponse,
)
from tenantry_runtime.workers.spec import WorkerLimits

pytestmark = pytest.mark.asyncio


def some_calls(bindings: FakeBindings, limits: WorkerLimits) -> Calls:
    context = CallContext(version=a_version(limits=limits), invocation=an_invocation())
    return Calls(bindings, context)


async def stream_of(calls: Calls) -> ByteStream:
    response = await calls.call(FETCH, "fetch", ["GET", "http://example.com/"], None)
    assert isinstance(response, HttpResponse)
    assert not isinstance(response.body, bytes)
    return response.body


async def streams() -> HttpResponse:
    return HttpResponse(status=200, body=Pieces(b"x"))


async def test_bindings_hear_on_whose_behalf_they_are_called() -> None:
    bindings = FakeBindings()
    calls = some_calls(bindings, WorkerLimits())
    await calls.call("AI", "run", [], None)
    (context,) = bindings.contexts
    assert (context.tenant, context.version.worker) == ("acme", "hello")


async def test_one_call_too_many_is_refused_and_not_made() -> None:
    bindings = FakeBindings()
    calls = some_calls(bindings, WorkerLimits(subrequests=2))
    for _ in range(2):
        await calls.call("KV", "get", ["key"], None)
    with pytest.raises(CallRefused, match="Too many subrequests"):
        await calls.call("KV", "get", ["key"], None)
    assert len(bindings.contexts) == 2


@pytest.mark.parametrize("way", ["read", "closed"])
async def test_a_fetch_waits_until_the_body_of_another_is_read_or_closed(way: str) -> None:
    bindings = FakeBindings(streams)
    calls = some_calls(bindings, WorkerLimits(connections=1))
    first = await stream_of(calls)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(stream_of, calls)
        await anyio.wait_all_tasks_blocked()
        assert len(bindings.contexts) == 1
        if way == "read":
            assert [piece async for piece in first] == [b"x"]
        else:
            await first.aclose()
    assert len(bindings.contexts) == 2


async def test_a_body_that_is_read_and_closed_gives_its_connection_back_once() -> None:
    calls = some_calls(FakeBindings(streams), WorkerLimits(connections=1))
    first = await stream_of(calls)
    assert [piece async for piece in first] == [b"x"]
    await first.aclose()
    await stream_of(calls)
    with anyio.move_on_after(0) as scope:
        await stream_of(calls)
    assert scope.cancelled_caught


async def test_a_fetch_that_fails_gives_its_connection_back() -> None:
    async def fails() -> HttpResponse:
        raise CallRefused("Error", "no such host")

    calls = some_calls(FakeBindings(fails), WorkerLimits(connections=1))
    for _ in range(3):
        with pytest.raises(CallRefused, match="no such host"):
            await calls.call(FETCH, "fetch", [], None)


async def test_calls_of_other_bindings_need_no_connection() -> None:
    calls = some_calls(FakeBindings(streams), WorkerLimits(connections=1))
    await stream_of(calls)
    assert isinstance(await calls.call("AI", "run", [], None), HttpResponse)
