"""The span of one invocation of a worker: the parent of all that it asks models and other workers."""

from __future__ import annotations

from collections.abc import Mapping

from opentelemetry import context as contexts, trace
from opentelemetry.context import Context
from opentelemetry.trace import SpanKind, StatusCode, Tracer
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from tenantry_runtime.core import TenantId

from . import names

HTTP, TIMER, OTHER = "http", "timer", "other"
"""What began an invocation, as the conventions name it; `OTHER` is a worker that calls a method."""

_propagator = TraceContextTextMapPropagator()


class WorkerSpan:
    """Ends with `end`, once. Until then it is the current span of the task that makes it."""

    def __init__(
        self,
        tracer: Tracer,
        *,
        headers: Mapping[str, str],
        method: str,
        worker: str,
        tenant: TenantId,
        request_id: str,
        version_id: str = "",
        trigger: str = HTTP,
        rpc_method: str = "",
    ) -> None:
        """Continue the trace that the headers' `traceparent` names, or start one.

        `method` is empty, and `trigger` is another, for what no request began.
        """
        attributes = {
            names.WORKER: worker,
            names.TENANT: tenant,
            names.REQUEST: request_id,
            names.FAAS_TRIGGER: trigger,
            names.FAAS_INVOCATION: request_id,
        }
        if method:
            attributes[names.HTTP_METHOD] = method
        if version_id:
            attributes[names.WORKER_VERSION] = version_id
        if rpc_method:
            attributes[names.RPC_METHOD] = rpc_method
        self._is_http = trigger == HTTP
        self._span = tracer.start_span(
            f"{method or ('rpc' if rpc_method else trigger)} {worker}",
            context=_propagator.extract(headers),
            kind=SpanKind.SERVER,
            attributes=attributes,
        )
        context = trace.set_span_in_context(self._span)
        carrier = _carried(context)
        self.traceparent = carrier.get("traceparent", "")
        """What the invocation carries, so that its calls of models are children."""
        self.tracestate = carrier.get("tracestate", "")
        self._outer = contexts.get_current()
        if self._span.get_span_context().is_valid:
            contexts.attach(context)

    def responded(self, *, cold_start_ms: float | None) -> None:
        """Record that an isolate has answered, and what was waited for it; None: one was there."""
        self._span.set_attribute(names.FAAS_COLD_START, cold_start_ms is not None)
        if cold_start_ms is not None:
            self._span.set_attribute(names.WORKER_COLD_START_MS, cold_start_ms)

    def end(self, *, status: int | None, outcome: str) -> None:
        """End it; `status` is what a client was told, None if nothing, `outcome` "" if all went well."""
        if status is not None:
            self._span.set_attribute(names.HTTP_STATUS, status)
        self._span.set_attribute(names.WORKER_OUTCOME, outcome or "ok")
        if outcome:
            self._span.set_attribute(names.ERROR_TYPE, outcome)
        if outcome or (self._is_http and (status is None or status >= 500)):
            self._span.set_status(StatusCode.ERROR)
        self._span.end()
        contexts.attach(self._outer)


class CallSpan:
    """The caller's side of one call of a worker by another: the parent of the span of the one called."""

    def __init__(
        self, tracer: Tracer, *, headers: Mapping[str, str], worker: str, tenant: TenantId
    ) -> None:
        """Continue the trace of the worker that calls, which `headers` name; `worker` is called."""
        self._span = tracer.start_span(
            f"call {worker}",
            context=_propagator.extract(headers),
            kind=SpanKind.CLIENT,
            attributes={names.WORKER: worker, names.TENANT: tenant},
        )
        self.headers = _carried(trace.set_span_in_context(self._span))
        """What names it to the one that is called."""

    def end(self, *, outcome: str) -> None:
        """End it; `outcome` is "" if all went well."""
        if outcome:
            self._span.set_attribute(names.ERROR_TYPE, outcome)
            self._span.set_status(StatusCode.ERROR)
        self._span.end()


def _carried(context: Context) -> dict[str, str]:
    carrier: dict[str, str] = {}
    _propagator.inject(carrier, context)
    return carrier
