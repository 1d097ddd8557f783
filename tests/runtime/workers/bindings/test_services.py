"""Service bindings: the tenant's own workers, by what the version says, with the caller's context."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import pytest

from support.bindings import INVOCATION, TENANT, whole
from support.byte_streams import Pieces
from support.called_workers import FakeEngine, a_caller
from tenantry_runtime.workers.bindings.services import MAX_DEPTH
from tenantry_runtime.workers.interface import (
    CallRefused,
    HttpRequest,
    HttpResponse,
    Invocation,
    WorkerFailed,
)
from tenantry_runtime.workers.outcome import Outcome
from tenantry_runtime.workers.spec import WorkerVersion

PATIENCE_S = 30.0


@pytest.mark.asyncio
async def test_a_request_reaches_the_bound_worker_with_the_callers_context(tmp_path: Path) -> None:
    engine = FakeEngine()
    async with a_caller(tmp_path, engine) as (_, caller):
        caller = caller.with_(session="s", client_ip="192.0.2.7", depth=3)
        url, headers = "http://any/path?q=1", [["X-One", "1"], ["x-one", "2"]]
        response = await caller.call("SVC", "fetch", "post", url, headers, b"body")

    assert (response.status, response.body) == (200, b"POST http://any/path?q=1")
    [(version, request, invocation)] = engine.seen
    assert (version.tenant, version.worker) == (TENANT, "callee")
    assert (request.body, request.headers) == (b"body", [("x-one", "1"), ("x-one", "2")])
    assert invocation.id != INVOCATION.id
    assert invocation.traceparent == INVOCATION.traceparent
    assert (invocation.session, invocation.client_ip) == ("s", "192.0.2.7")
    assert (invocation.entrypoint, invocation.depth) == ("Admin", 4)


@pytest.mark.asyncio
async def test_bodies_stream_both_ways_and_are_closed(tmp_path: Path) -> None:
    sent, answered = Pieces(b"a", b"b"), Pieces(b"1", b"2")

    async def echo(_: WorkerVersion, request: HttpRequest, __: Invocation) -> HttpResponse:
        assert await whole(HttpResponse(status=200, body=request.body or b"")) == b"ab"
        return HttpResponse(status=201, body=answered)

    engine = FakeEngine(echo)
    async with a_caller(tmp_path, engine) as (_, caller):
        response = await caller.call("SVC", "fetch", "POST", "http://x/", [], None, body=sent)
        assert not engine.left.is_set()
        assert await whole(response) == b"12"
        with anyio.fail_after(PATIENCE_S):
            await engine.left.wait()
            while not sent.is_closed:
                await anyio.lowlevel.checkpoint()


@pytest.mark.asyncio
async def test_closing_the_answer_ends_the_worker_that_gives_it(tmp_path: Path) -> None:
    body = Pieces(b"1", b"2")

    async def slow(*_: object) -> HttpResponse:
        return HttpResponse(status=200, body=body)

    engine = FakeEngine(slow)
    async with a_caller(tmp_path, engine) as (_, caller):
        response = await caller.call("SVC", "fetch", "GET", "http://x/", [])
        await response.body.aclose()
        with anyio.fail_after(PATIENCE_S):
            await engine.left.wait()
    assert body.is_closed


@pytest.mark.asyncio
async def test_cancelling_the_call_ends_the_worker_that_is_called(tmp_path: Path) -> None:
    async def never(*_: object) -> HttpResponse:
        await anyio.sleep_forever()
        raise AssertionError

    engine = FakeEngine(never)
    async with a_caller(tmp_path, engine) as (_, caller):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(caller.call, "SVC", "fetch", "GET", "http://x/", [])
            await engine.entered.wait()
            tasks.cancel_scope.cancel()
        with anyio.fail_after(PATIENCE_S):
            await engine.left.wait()


@pytest.mark.asyncio
async def test_a_failure_of_the_worker_is_the_callers_error(tmp_path: Path) -> None:
    async def broken(*_: object) -> HttpResponse:
        raise WorkerFailed(Outcome.EXCEEDED_CPU, "too much CPU")

    async def defect(*_: object) -> HttpResponse:
        raise ZeroDivisionError

    engine = FakeEngine(broken)
    async with a_caller(tmp_path, engine) as (_, caller):
        body = Pieces(b"x")
        with pytest.raises(CallRefused, match="too much CPU"):
            await caller.call("SVC", "fetch", "PUT", "http://x/", [], None, body=body)
        with pytest.raises(CallRefused, match="it broke"):
            await caller.call("SVC", "fails", [], {})
        engine.handler = defect
        with pytest.raises(CallRefused, match="internal error"):
            await caller.call("SVC", "fetch", "GET", "http://x/", [])
        # and the next call is answered
        assert await caller.call("SVC", "add", [1], {}) == {"called": "add"}
        assert body.is_closed


@pytest.mark.asyncio
async def test_a_method_is_called_with_its_arguments(tmp_path: Path) -> None:
    engine = FakeEngine()
    async with a_caller(tmp_path, engine) as (_, caller):
        assert await caller.call("SVC", "add", [1, {"x": [2]}], {"k": None}) == {"called": "add"}

    [(_, called, invocation)] = engine.seen
    assert called == ("add", [1, {"x": [2]}], {"k": None})
    assert invocation.entrypoint == "Admin"


@pytest.mark.asyncio
async def test_private_names_and_handlers_are_no_methods(tmp_path: Path) -> None:
    names = ["_private", "__class__", "__init__", "__reduce_ex__", "scheduled", "alarm", "queue"]
    names += ["tail", "trace", "test", "connect", "dup", "constructor", "webSocketMessage"]
    names += ["", "a.b", "a b", "x" * 129, "fetch ", "añb", "a\n", "0a"]
    engine = FakeEngine()
    async with a_caller(tmp_path, engine) as (_, caller):
        for name in names:
            with pytest.raises(CallRefused, match="does not implement the method") as refused:
                await caller.call("SVC", name, [], {})
            assert refused.value.name == "TypeError"
    assert engine.seen == []


@pytest.mark.asyncio
async def test_hostile_arguments_reach_no_worker(tmp_path: Path) -> None:
    calls: list[tuple[str, list[Any]]] = [
        ("fetch", []),
        ("fetch", ["GET"]),
        ("fetch", ["GET", 7]),
        ("fetch", ["GE T", "http://x/", []]),
        ("fetch", ["GET", "file:///etc/passwd", []]),
        ("fetch", ["GET", "http://x/\r\nhost: y", []]),
        ("fetch", ["GET", "http://x/", [["a", "b\r\nc: d"]]]),
        ("fetch", ["GET", "http://x/", [["a\r\nb", "c"]]]),
        ("fetch", ["GET", "http://x/", [["a", "b", "c"]]]),
        ("fetch", ["GET", "http://x/", [["a", 7]]]),
        ("fetch", ["GET", "http://x/", [["a", "b"]] * 201]),
        ("fetch", ["GET", "http://x/", "a: b"]),
        ("fetch", ["GET", "http://x/", [], {"body": 1}]),
        ("fetch", ["GET", "http://x/", [], None, "more"]),
        ("add", ["not a list", {}]),
        ("add", [[], ["not a dict"]]),
        ("add", [[], {7: 7}]),
        ("add", [[], {}, "theirs"]),
    ]
    engine = FakeEngine()
    async with a_caller(tmp_path, engine) as (_, caller):
        for method, args in calls:
            with pytest.raises(CallRefused) as refused:
                await caller.call("SVC", method, *args)
            assert (args, refused.value.name) == (args, "TypeError")
    assert engine.seen == []


@pytest.mark.asyncio
async def test_another_tenants_worker_is_not_there(tmp_path: Path) -> None:
    engine = FakeEngine()
    async with a_caller(tmp_path, engine, service="theirs") as (_, caller):
        body = Pieces(b"x")
        with pytest.raises(CallRefused, match="'theirs' cannot be called"):
            await caller.call("SVC", "fetch", "POST", "http://theirs.other/", [], None, body=body)
        with pytest.raises(CallRefused, match="'theirs' cannot be called"):
            await caller.call("SVC", "add", [], {})
        assert body.is_closed
    assert engine.seen == []


@pytest.mark.asyncio
async def test_workers_call_each_other_only_so_deep(tmp_path: Path) -> None:
    engine = FakeEngine()
    async with a_caller(tmp_path, engine) as (_, caller):
        assert await caller.with_(depth=MAX_DEPTH - 1).call("SVC", "add", [], {})
        deep = caller.with_(depth=MAX_DEPTH)
        with pytest.raises(CallRefused, match="Subrequest depth limit exceeded"):
            await deep.call("SVC", "fetch", "GET", "http://x/", [])
        with pytest.raises(CallRefused, match="Subrequest depth limit exceeded"):
            await deep.call("SVC", "add", [], {})
    assert len(engine.seen) == 1
