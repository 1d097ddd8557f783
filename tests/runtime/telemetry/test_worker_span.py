from __future__ import annotations

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import NoOpTracer, SpanKind, StatusCode, Tracer

from tenantry_runtime.core import TenantId
from tenantry_runtime.telemetry import WorkerSpan


def a_worker_span(tracer: Tracer, method: str = "GET", trigger: str = "http") -> WorkerSpan:
    return WorkerSpan(
        tracer,
        headers={},
        method=method,
        worker="hello",
        tenant=TenantId("acme"),
        request_id="ray",
        version_id="v1",
        trigger=trigger,
    )


def test_an_invocation_says_which_worker_and_how_it_ended(
    tracer: Tracer, exporter: InMemorySpanExporter
) -> None:
    span = a_worker_span(tracer)
    span.responded(cold_start_ms=12.5)
    span.end(status=200, outcome="")
    [ended] = exporter.get_finished_spans()
    assert (ended.name, ended.kind) == ("GET hello", SpanKind.SERVER)
    assert ended.status.status_code is StatusCode.UNSET
    assert dict(ended.attributes or {}) == {
        "tenantry.worker": "hello",
        "tenantry.worker.version": "v1",
        "tenantry.worker.outcome": "ok",
        "tenantry.worker.cold_start_ms": 12.5,
        "tenantry.tenant": "acme",
        "tenantry.request": "ray",
        "faas.trigger": "http",
        "faas.invocation_id": "ray",
        "faas.coldstart": True,
        "http.request.method": "GET",
        "http.response.status_code": 200,
    }


def test_a_trigger_is_told_apart_from_a_request(
    tracer: Tracer, exporter: InMemorySpanExporter
) -> None:
    a_worker_span(tracer, method="", trigger="timer").end(status=None, outcome="exceededCpu")
    [ended] = exporter.get_finished_spans()
    assert ended.name == "timer hello"
    assert ended.status.status_code is StatusCode.ERROR
    seen = dict(ended.attributes or {})
    assert seen["error.type"] == "exceededCpu"
    assert "http.request.method" not in seen


@pytest.mark.parametrize(("trigger", "is_error"), [("timer", False), ("http", True)])
def test_only_a_request_has_to_be_told_something(
    tracer: Tracer, exporter: InMemorySpanExporter, trigger: str, is_error: bool
) -> None:
    a_worker_span(tracer, trigger=trigger).end(status=None, outcome="")
    [ended] = exporter.get_finished_spans()
    assert (ended.status.status_code is StatusCode.ERROR) == is_error


def test_it_is_the_current_span_until_it_ends(tracer: Tracer) -> None:
    span = a_worker_span(tracer)
    current = trace.get_current_span().get_span_context()
    assert format(current.span_id, "016x") == span.traceparent.split("-")[2]
    span.end(status=200, outcome="")
    assert not trace.get_current_span().get_span_context().is_valid


def test_where_nothing_is_traced_there_is_no_traceparent() -> None:
    span = a_worker_span(NoOpTracer())
    assert span.traceparent == ""
    span.end(status=200, outcome="")
