"""The tracer that an edge's spans are made with, and what it knows beside how to make them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.sdk.trace import ReadableSpan, Span as SdkSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import Link, Span, SpanContext, Tracer
from opentelemetry.util._decorator import _AgnosticContextManager

from tenantry_runtime.core import TenantId

from .journey import Attributes
from .post import PostStatistics
from .sampling import SieveStatistics

SCOPE = "tenantry"


@dataclass(frozen=True, slots=True, kw_only=True)
class TracingStatistics:
    """What is held of spans now, and what has become of the others."""

    sieve: SieveStatistics
    operator: PostStatistics | None
    """None: there is no collector of the operator's."""
    tenants: Mapping[str, PostStatistics]


class EdgeTracer(Tracer):
    """Makes spans as the library does, and those that are past for a fifth of what that costs."""

    def __init__(
        self,
        provider: TracerProvider,
        processors: Sequence[SpanProcessor],
        *,
        shows_content: Callable[[TenantId], bool],
        statistics: Callable[[], TracingStatistics],
    ) -> None:
        """`processors` are the provider's own."""
        self._inner = provider.get_tracer(SCOPE)
        self._resource = provider.resource
        self._ids = provider.id_generator
        self._processors = tuple(processors)
        self._scope = InstrumentationScope(SCOPE)
        self._shows_content = shows_content
        self.statistics = statistics

    # Any: the arguments are the library's own, and passed on as they are
    def start_span(self, name: str, *args: Any, **options: Any) -> Span:
        return self._inner.start_span(name, *args, **options)

    def start_as_current_span(
        self, name: str, *args: Any, **options: Any
    ) -> _AgnosticContextManager[Span]:
        return self._inner.start_as_current_span(name, *args, **options)

    def past(
        self,
        name: str,
        parent: SpanContext,
        *,
        started_ns: int,
        ended_ns: int,
        attributes: Attributes,
        links: Sequence[Link] = (),
    ) -> SpanContext:
        """Make a span of what is over, below one that has not ended; return what links name it by."""
        context = SpanContext(
            parent.trace_id,
            self._ids.generate_span_id(),
            is_remote=False,
            trace_flags=parent.trace_flags,
            trace_state=parent.trace_state,
        )
        span = ReadableSpan(
            name=name,
            context=context,
            parent=parent,
            resource=self._resource,
            attributes=attributes,
            links=links,
            start_time=started_ns,
            end_time=ended_ns,
            instrumentation_scope=self._scope,
        )
        for processor in self._processors:
            # of a span they ask nothing at its start but its context
            processor.on_start(cast("SdkSpan", span))
            processor.on_end(span)
        return context

    def shows_content(self, tenant: TenantId) -> bool:
        """Say whether what the tenant's users and models say may be in the spans."""
        return self._shows_content(tenant)


def past(
    tracer: Tracer,
    name: str,
    parent: Context,
    *,
    started_ns: int,
    ended_ns: int,
    attributes: Attributes,
    links: Sequence[Link] = (),
) -> SpanContext:
    """Make a span of what is over, with any tracer."""
    if isinstance(tracer, EdgeTracer):
        return tracer.past(
            name,
            trace.get_current_span(parent).get_span_context(),
            started_ns=started_ns,
            ended_ns=ended_ns,
            attributes=attributes,
            links=links,
        )
    span = tracer.start_span(
        name, context=parent, start_time=started_ns, attributes=attributes, links=links
    )
    span.end(end_time=ended_ns)
    return span.get_span_context()


def shows_content(tracer: Tracer, tenant: TenantId) -> bool:
    """Say so of any tracer: never, where nobody was asked."""
    return isinstance(tracer, EdgeTracer) and tracer.shows_content(tenant)
