"""Calls between workers as spans of one trace."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode, Tracer

from support.bindings import INVOCATION, TENANT, TRACE, whole
from support.byte_streams import Pieces
from support.called_workers import FakeEngine, a_caller
from tenantry_runtime.workers.bindings import TracedCalls
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


def span_id(span: ReadableSpan) -> str:
    context = span.get_span_context()
    assert context is not None
    assert format(context.trace_id, "032x") == TRACE
    return format(context.span_id, "016x")


def pair(exporter: InMemorySpanExporter) -> tuple[ReadableSpan, ReadableSpan]:
    """Return the one call's span, and that of the worker that was called."""
    called, call = exporter.get_finished_spans()
    assert (call.kind, called.kind) == (SpanKind.CLIENT, SpanKind.SERVER)
    return call, called


@pytest.mark.asyncio
async def test_the_called_workers_span_is_below_the_call_which_is_below_the_callers(
    tmp_path: Path, tracer: Tracer, exporter: InMemorySpanExporter
) -> None:
    engine = FakeEngine()
    async with a_caller(tmp_path, TracedCalls(engine, tracer)) as (_, caller):
        response = await caller.call("SVC", "fetch", "GET", "http://any/", [])
    assert response.status == 200
    call, called = pair(exporter)
    assert (call.name, called.name) == ("call callee", "GET callee")
    assert call.parent is not None
    assert called.parent is not None
    assert format(call.parent.span_id, "016x") == INVOCATION.traceparent.split("-")[2]
    assert format(called.parent.span_id, "016x") == span_id(call)
    [(_, _, invocation)] = engine.seen
    assert invocation.traceparent == f"00-{TRACE}-{span_id(called)}-01"
    assert dict(call.attributes or {}) == {"tenantry.worker": "callee", "tenantry.tenant": TENANT}
    assert dict(called.attributes or {}) == {
        "tenantry.worker": "callee",
        "tenantry.worker.version": "version-of-callee",
        "tenantry.worker.outcome": "ok",
        "tenantry.tenant": TENANT,
        "tenantry.request": invocation.id,
        "faas.trigger": "http",
        "faas.invocation_id": invocation.id,
        "faas.coldstart": False,
        "http.request.method": "GET",
        "http.response.status_code": 200,
    }


@pytest.mark.asyncio
async def test_a_method_has_its_name_in_the_span_and_a_failure_its_outcome(
    tmp_path: Path, tracer: Tracer, exporter: InMemorySpanExporter
) -> None:
    async with a_caller(tmp_path, TracedCalls(FakeEngine(), tracer)) as (_, caller):
        with pytest.raises(CallRefused, match="it broke"):
            await caller.call("SVC", "fails", [], {})
    call, called = pair(exporter)
    assert called.name == "rpc callee"
    seen = dict(called.attributes or {})
    assert (seen["rpc.method"], seen["faas.trigger"]) == ("fails", "other")
    assert seen["tenantry.worker.outcome"] == Outcome.EXCEPTION
    for span in (call, called):
        assert span.status.status_code is StatusCode.ERROR
        assert dict(span.attributes or {})["error.type"] == Outcome.EXCEPTION


@pytest.mark.asyncio
async def test_the_spans_last_until_the_answer_has_been_read(
    tmp_path: Path, tracer: Tracer, exporter: InMemorySpanExporter
) -> None:
    async def streams(*_: object) -> HttpResponse:
        return HttpResponse(status=200, body=Pieces(b"1", b"2"))

    engine = FakeEngine(streams)
    async with a_caller(tmp_path, TracedCalls(engine, tracer)) as (_, caller):
        response = await caller.call("SVC", "fetch", "GET", "http://any/", [])
        assert exporter.get_finished_spans() == ()
        assert await whole(response) == b"12"
    assert pair(exporter)[1].status.status_code is StatusCode.UNSET


@pytest.mark.asyncio
async def test_a_call_that_is_given_up_is_canceled(
    tmp_path: Path, tracer: Tracer, exporter: InMemorySpanExporter
) -> None:
    async def never(_: WorkerVersion, __: HttpRequest, ___: Invocation) -> HttpResponse:
        await anyio.sleep_forever()
        raise WorkerFailed(Outcome.CRASHED, "it cannot come to this")

    engine = FakeEngine(never)
    async with a_caller(tmp_path, TracedCalls(engine, tracer)) as (_, caller):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(caller.call, "SVC", "fetch", "GET", "http://x/", [])
            await engine.entered.wait()
            tasks.cancel_scope.cancel()
        with anyio.fail_after(PATIENCE_S):
            await engine.left.wait()
    assert dict(pair(exporter)[1].attributes or {})["tenantry.worker.outcome"] == "canceled"
