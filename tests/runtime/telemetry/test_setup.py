from __future__ import annotations

import http.server
import threading
from collections.abc import Iterator

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import NoOpTracer

from tenantry_runtime.errors import ConfigurationError
from tenantry_runtime.telemetry import tracing


class Collector(http.server.ThreadingHTTPServer):
    """Keeps the bodies that an exporter posts."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.posted: list[tuple[str, bytes]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Handler(http.server.BaseHTTPRequestHandler):
    server: Collector

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        self.server.posted.append((self.path, body))
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def collector() -> Iterator[Collector]:
    with Collector() as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


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

    [(path, body)] = collector.posted
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
