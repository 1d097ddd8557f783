"""Where spans go: nowhere, unless variables name a collector, or a file those of tenants."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.trace import NoOpTracer, Tracer

from .endpoints import exporter_timeout_s, is_disabled, is_exporting, resource
from .post import Post, close_all
from .sampling import HeadSampler, Sieve
from .settings import TENANT_TRACES, read_limits, read_sampling
from .tenants import TenantPosts, read_tenant_traces, without_content
from .tracer import EdgeTracer, TracingStatistics

CLOSE_S = 5.0
"""How long the end waits, at most, for all collectors together."""


@contextmanager
def tracing(
    environ: Mapping[str, str], *, processors: Sequence[SpanProcessor] = ()
) -> Iterator[Tracer]:
    """Make a tracer; leaving the block sends what is still held, for `CLOSE_S` at most.

    Spans go to a collector by OTLP if `OTEL_EXPORTER_OTLP_ENDPOINT`, or the same for traces alone,
    is set; `settings.py` has the other variables, and those of the exporter work as documented.
    Without an endpoint, tenants' collectors and `processors` no span is even made.

    Raises `ConfigurationError` for what a variable or the tenants' file may not say.
    """
    tenants = read_tenant_traces(environ.get(TENANT_TRACES))
    sampling, limits = read_sampling(environ), read_limits(environ, "BSP")
    is_sent = is_exporting(environ, "traces")
    if is_disabled(environ) or not (is_sent or tenants.has_spans or processors):
        yield NoOpTracer()
        return
    posts = TenantPosts(tenants)
    operator: Post[ReadableSpan] | None = None
    if is_sent:
        exporter = OTLPSpanExporter(timeout=exporter_timeout_s(environ, "traces"))
        operator = Post(exporter, name="traces", limits=limits, prepare=without_content)

    def pass_on(span: ReadableSpan) -> None:
        if operator is not None:
            operator.take(span)
        posts.take(span)

    def statistics() -> TracingStatistics:
        return TracingStatistics(
            sieve=sieve.statistics(),
            operator=None if operator is None else operator.statistics(),
            tenants=posts.statistics(),
        )

    provider = TracerProvider(
        sampler=HeadSampler(sampling), resource=resource(), shutdown_on_exit=False
    )
    sieve = Sieve(pass_on, slow_s=sampling.slow_s)
    used = [*processors, sieve]
    for processor in used:
        provider.add_span_processor(processor)
    try:
        yield EdgeTracer(
            provider,
            used,
            shows_content=posts.shows_content,
            statistics=statistics,
        )
    finally:
        provider.shutdown()
        close_all([*([] if operator is None else [operator]), *posts.posts], CLOSE_S)
