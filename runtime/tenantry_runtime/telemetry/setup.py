"""Where spans go: nowhere, unless the standard environment variables name a collector."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import NoOpTracer, Tracer

from tenantry_runtime.errors import ConfigurationError

SERVICE_NAME = "tenantry-edge"

ENDPOINT_VARIABLES = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
PROTOCOL_VARIABLES = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
PROTOCOL = "http/protobuf"
"""The one that the exporter of this package's dependencies speaks."""
TIMEOUT_VARIABLES = ("OTEL_EXPORTER_OTLP_TRACES_TIMEOUT", "OTEL_EXPORTER_OTLP_TIMEOUT")
TIMEOUT_S = 3.0
"""Unless a variable says otherwise. It bounds how long an unreachable collector delays the end."""


@contextmanager
def tracing(
    environ: Mapping[str, str], *, processors: Sequence[SpanProcessor] = ()
) -> Iterator[Tracer]:
    """Make a tracer; leaving the block sends what is still held.

    Spans go to a collector by OTLP if `OTEL_EXPORTER_OTLP_ENDPOINT`, or the same for traces alone,
    is set; the other `OTEL_` variables of the SDK and of the exporter work as documented. Without
    an endpoint and without `processors` no span is even made.
    """
    used = [*processors, *_exporting(environ)]
    if not used:
        yield NoOpTracer()
        return
    # the variables beat the program's own name
    resource = Resource.create({"service.name": SERVICE_NAME}).merge(
        OTELResourceDetector().detect()
    )
    provider = TracerProvider(resource=resource, shutdown_on_exit=False)
    for processor in used:
        provider.add_span_processor(processor)
    try:
        yield provider.get_tracer("tenantry")
    finally:
        provider.shutdown()


def _exporting(environ: Mapping[str, str]) -> list[SpanProcessor]:
    if environ.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return []
    if environ.get("OTEL_TRACES_EXPORTER", "otlp") == "none":
        return []
    if not any(environ.get(name) for name in ENDPOINT_VARIABLES):
        return []
    for name in PROTOCOL_VARIABLES:
        if environ.get(name, PROTOCOL) != PROTOCOL:
            raise ConfigurationError(f"{name} is {environ[name]!r}; only {PROTOCOL} is supported")
    has_timeout = any(environ.get(name) for name in TIMEOUT_VARIABLES)
    return [BatchSpanProcessor(OTLPSpanExporter(timeout=None if has_timeout else TIMEOUT_S))]
