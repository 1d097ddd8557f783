from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import NoOpTracer, StatusCode

from support.collectors import (
    Collector,
    a_collector,
    a_hanging_collector,
    a_refusing_collector,
    attributes_of,
)
from tenantry_runtime.errors import ConfigurationError
from tenantry_runtime.telemetry import setup, tracing
from tenantry_runtime.telemetry.setup import CLOSE_S


@pytest.fixture
def collector() -> Iterator[Collector]:
    with a_collector() as server:
        yield server


def test_without_an_endpoint_no_span_is_made() -> None:
    with tracing({}) as tracer:
        assert isinstance(tracer, NoOpTracer)


@pytest.mark.parametrize(
    "variable", ["OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"]
)
def test_spans_reach_the_collector_that_the_variables_name(
    collector: Collector, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    # the exporter reads the process's environment itself
    monkeypatch.setenv(variable, collector.url)

    with tracing({variable: collector.url}) as tracer:
        tracer.start_span("a span").end()

    [(path, _, body)] = collector.posted
    assert path == ("/v1/traces" if variable.endswith("OTLP_ENDPOINT") else "/")
    [resource_spans] = ExportTraceServiceRequest.FromString(body).resource_spans
    [scope_spans] = resource_spans.scope_spans
    assert [span.name for span in scope_spans.spans] == ["a span"]
    names = {a.key: a.value.string_value for a in resource_spans.resource.attributes}
    assert names["service.name"] == "tenantry-edge"


def test_the_service_takes_the_name_that_a_variable_gives(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OTEL_SERVICE_NAME", "my-edge")
    exporter = InMemorySpanExporter()

    with tracing({}, processors=[SimpleSpanProcessor(exporter)]) as tracer:
        tracer.start_span("a span").end()

    [span] = exporter.get_finished_spans()
    assert span.resource.attributes["service.name"] == "my-edge"


@pytest.mark.parametrize(
    "switch", [{"OTEL_SDK_DISABLED": "true"}, {"OTEL_TRACES_EXPORTER": "none"}], ids=str
)
def test_tracing_can_be_switched_off(switch: dict[str, str]) -> None:
    with tracing({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1", **switch}) as tracer:
        assert isinstance(tracer, NoOpTracer)


def test_a_protocol_that_cannot_be_spoken_is_refused_by_name() -> None:
    environ = {
        "OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1",
        "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc",
    }

    with pytest.raises(ConfigurationError, match=r"OTEL_EXPORTER_OTLP_PROTOCOL is 'grpc'"):
        with tracing(environ):
            pass


TRACES = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"


def test_a_collector_that_hangs_delays_the_end_by_a_bounded_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with a_hanging_collector() as url:
        monkeypatch.setenv(TRACES, url)
        started_s = time.monotonic()
        with tracing({TRACES: url}) as tracer:
            tracer.start_span("a span").end()
        assert time.monotonic() - started_s < CLOSE_S + 5


@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_a_collector_that_refuses_breaks_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(setup, "CLOSE_S", 0.3)
    with a_refusing_collector() as url:
        monkeypatch.setenv(TRACES, url)
        with tracing({TRACES: url}) as tracer:
            for _ in range(5000):
                tracer.start_span("a span").end()


def test_a_collector_that_has_vanished_gets_what_follows_its_return(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    environ = {"OTEL_BSP_SCHEDULE_DELAY": "20"}
    with a_collector() as first:
        monkeypatch.setenv(TRACES, first.url)
        port = first.server_port
        environ[TRACES] = first.url
        closing = tracing(environ)
        tracer = closing.__enter__()
        tracer.start_span("before").end()
        first.wait_for(1)
    tracer.start_span("nobody is there").end()
    with a_collector(port) as second:
        tracer.start_span("after").end()
        closing.__exit__(None, None, None)
        assert "after" in [span.name for span in second.spans]


def test_a_trace_that_is_not_sampled_is_sent_all_the_same_when_it_failed(
    collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(TRACES, collector.url)
    environ = {TRACES: collector.url, "OTEL_TRACES_SAMPLER": "always_off"}
    with tracing(environ) as tracer:
        tracer.start_span("well").end()
        failed = tracer.start_span("failed")
        failed.set_status(StatusCode.ERROR)
        failed.end()
    assert [span.name for span in collector.spans] == ["failed"]


def test_a_tenants_spans_go_to_its_own_collector_with_no_header_of_the_operators(
    collector: Collector, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with a_collector() as tenants:
        file = tmp_path / "tenants.toml"
        file.write_text(
            f'[tenants.acme]\nendpoint = "{tenants.url}/otlp"\nheaders = {{ x-key = "acme\'s" }}\n'
        )
        monkeypatch.setenv(TRACES, collector.url)
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "authorization=the-operators")
        with tracing({TRACES: collector.url, "TENANTRY_TENANT_TRACES": str(file)}) as tracer:
            for tenant in ("acme", "other"):
                where = {"tenantry.tenant": tenant, "tenantry.decode.member": "grpc://n1"}
                tracer.start_span(f"of {tenant}", attributes=where).end()
            tracer.start_span("of nobody").end()
    [posted] = tenants.posted
    assert posted.path == "/otlp"
    assert posted.headers["x-key"] == "acme's"
    assert "authorization" not in posted.headers
    [span] = tenants.spans
    assert span.name == "of acme"
    assert attributes_of(span) == {"tenantry.tenant": "acme"}
    assert collector.posted[0].headers["authorization"] == "the-operators"
    assert [each.name for each in collector.spans] == ["of acme", "of other", "of nobody"]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("OTEL_TRACES_SAMPLER", "sometimes"),
        ("OTEL_TRACES_SAMPLER_ARG", "1.5"),
        ("OTEL_BSP_MAX_QUEUE_SIZE", "0"),
        ("TENANTRY_TRACE_SLOW_S", "soon"),
        ("TENANTRY_TENANT_TRACES", "/nowhere/at/all.toml"),
    ],
)
def test_a_variable_that_makes_no_sense_is_refused_with_its_value(name: str, value: str) -> None:
    with pytest.raises(ConfigurationError, match=value):
        with tracing({name: value}):
            pass
