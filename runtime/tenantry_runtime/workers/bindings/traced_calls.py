"""Calls between workers as spans: the caller's side, a child of its worker's span, and below it the other's.

| span | of |
|---|---|
| the caller's worker | who began it: an edge's route, a trigger, another call |
| `call WORKER` | the call, until its answer has been read |
| `METHOD WORKER`, `rpc WORKER` | the worker that is called, as if a client had |
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from typing import Any

from opentelemetry.trace import Tracer

from tenantry_runtime.telemetry import CallSpan, WorkerSpan
from tenantry_runtime.telemetry.worker_span import HTTP, OTHER
from tenantry_runtime.workers.interface import (
    CalledEngine,
    HttpRequest,
    HttpResponse,
    Invocation,
    outcome_of,
)
from tenantry_runtime.workers.spec import WorkerVersion


@dataclass(slots=True)
class _Traced:
    """A call whose spans are open."""

    span: WorkerSpan
    invocation: Invocation
    """In the span of the worker that is called."""
    status: int | None = None
    """Of its response."""


class TracedCalls:
    """What service bindings call instead of the engine, which it calls."""

    def __init__(self, engine: CalledEngine, tracer: Tracer) -> None:
        self._engine = engine
        self._tracer = tracer

    @asynccontextmanager
    async def fetch(
        self, version: WorkerVersion, request: HttpRequest, invocation: Invocation
    ) -> AsyncIterator[HttpResponse]:
        with self._traced(version, invocation, method=request.method) as traced:
            async with self._engine.fetch(version, request, traced.invocation) as response:
                traced.status = response.status
                traced.span.responded(cold_start_ms=response.cold_start_ms)
                yield response

    async def rpc(
        self,
        version: WorkerVersion,
        method: str,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        invocation: Invocation,
    ) -> object:
        with self._traced(version, invocation, rpc_method=method) as traced:
            return await self._engine.rpc(version, method, args, kwargs, traced.invocation)

    @contextmanager
    def _traced(
        self,
        version: WorkerVersion,
        invocation: Invocation,
        *,
        method: str = "",
        rpc_method: str = "",
    ) -> Iterator[_Traced]:
        """Make the spans of a call; `invocation` is still in the caller's."""
        caller = {"traceparent": invocation.traceparent, "tracestate": invocation.tracestate}
        call = CallSpan(self._tracer, headers=caller, worker=version.worker, tenant=version.tenant)
        span = WorkerSpan(
            self._tracer,
            headers=call.headers,
            method=method,
            worker=version.worker,
            version_id=version.version_id,
            tenant=version.tenant,
            request_id=invocation.id,
            trigger=HTTP if method else OTHER,
            rpc_method=rpc_method,
        )
        inside = replace(invocation, traceparent=span.traceparent, tracestate=span.tracestate)
        traced = _Traced(span, inside)
        outcome = ""
        try:
            yield traced
        except BaseException as error:
            outcome = outcome_of(error)
            raise
        finally:
            span.end(status=traced.status, outcome=outcome)
            call.end(outcome=outcome)
