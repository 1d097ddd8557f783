"""Where spans go: nowhere, unless the standard environment variables name a collector."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import NoOpTracer, Tracer

from .endpoints import exporter_timeout_s, is_exporting, resource


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
    provider = TracerProvider(resource=resource(), shutdown_on_exit=False)
    for processor in used:
        provider.add_span_processor(processor)
    try:
        yield provider.get_tracer("tenantry")
    finally:
        provider.shutdown()


def _exporting(environ: Mapping[str, str]) -> list[SpanProcessor]:
    if not is_exporting(environ, "traces"):
        return []
    return [BatchSpanProcessor(OTLPSpanExporter(timeout=exporter_timeout_s(environ, "traces")))]
