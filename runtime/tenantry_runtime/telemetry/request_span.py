"""The spans of one request, from its headers to its last byte.

| span | from | to |
|---|---|---|
| `chat MODEL` (root) | the request's headers | its end, however it ends |
| tokenize | the parsed request | its token ids |
| queue | the node has it | its prefill starts |
| prefill | the first chunk | the first token |
| decode | the first token | the last |

The last three are the node's clock, and there are none where the node did not finish the sequence.

The same object tells a `RequestMeter` what came of the request, so that the two agree.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from opentelemetry import trace
from opentelemetry.trace import SpanKind, StatusCode, Tracer
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from tenantry_runtime.core import FinishReason, GenerateRequest, RequestId, TenantId, Usage
from tenantry_runtime.pool.messages import Timings

from . import names
from .metrics import Ended, RequestMeter

PROVIDER = "tenantry"


@dataclass(frozen=True, slots=True)
class ClientGone:
    """The client left before the answer was whole; no error of ours."""


class RequestSpan:
    """One request's root span and its children. Ends with `end`, once."""

    def __init__(
        self,
        tracer: Tracer,
        *,
        headers: Mapping[str, str],
        method: str,
        route: str,
        server: tuple[str, int | None] | None,
        request_id: RequestId,
        meter: RequestMeter | None = None,
    ) -> None:
        """Continue the trace that the headers' `traceparent` names, or start one."""
        self._tracer = tracer
        self._meter = meter
        self._started_ns = time.time_ns()
        self._first_token_ns: int | None = None
        self._asked: tuple[str, str, TenantId] | None = None
        """Operation, model and tenant, once they are known."""
        self._usage = Usage(prompt_tokens=0, completion_tokens=0)
        self._problem: BaseException | ClientGone | None = None
        self._root = tracer.start_span(
            f"{method} {route}",
            context=TraceContextTextMapPropagator().extract(headers),
            kind=SpanKind.SERVER,
            attributes={
                names.HTTP_METHOD: method,
                names.HTTP_ROUTE: route,
                names.PROVIDER: PROVIDER,
                names.REQUEST: request_id,
            },
        )
        self._context = trace.set_span_in_context(self._root)
        if server is not None:
            address, port = server
            self._root.set_attribute(names.SERVER_ADDRESS, address)
            if port is not None:
                self._root.set_attribute(names.SERVER_PORT, port)

    @property
    def trace_id(self) -> str:
        """32 hexadecimal digits; empty where nothing is traced."""
        context = self._root.get_span_context()
        return format(context.trace_id, "032x") if context.is_valid else ""

    def asked(self, request: GenerateRequest, *, model: str, tenant: TenantId) -> None:
        """Record what is asked, and by whom; `model` is the name that the request used."""
        operation = "chat" if request.prompt is None else "text_completion"
        self._asked = operation, request.model, tenant
        self._root.update_name(f"{operation} {request.model}")
        sampling = request.sampling
        attributes: dict[str, str | float | None] = {
            names.OPERATION: operation,
            names.REQUEST_MODEL: model,
            names.RESPONSE_MODEL: request.model,
            names.REQUEST_STREAM: request.stream,
            names.REQUEST_MAX_TOKENS: sampling.max_tokens,
            names.REQUEST_TEMPERATURE: sampling.temperature,
            names.REQUEST_TOP_P: sampling.top_p,
            names.REQUEST_TOP_K: sampling.top_k,
            names.CONVERSATION: request.session,
            names.TENANT: tenant,
        }
        self._root.set_attributes({k: v for k, v in attributes.items() if v is not None})

    @contextmanager
    def tokenizing(self) -> Iterator[None]:
        """Span the work from messages to token ids."""
        with self._tracer.start_as_current_span("tokenize", context=self._context):
            yield

    def used(self, usage: Usage) -> None:
        """Record tokens, also those of an answer that broke off."""
        self._usage = usage
        self._root.set_attributes(
            {
                names.INPUT_TOKENS: usage.prompt_tokens,
                names.OUTPUT_TOKENS: usage.completion_tokens,
                names.CACHED_TOKENS: usage.cached_tokens,
                names.REASONING_TOKENS: usage.reasoning_tokens,
            }
        )

    def finished(
        self, reasons: Sequence[FinishReason], *, response_id: str, timings: Timings | None
    ) -> None:
        """Record that the answers are whole, and the node's stages of the first if it reported them."""
        self._root.set_attribute(names.RESPONSE_ID, response_id)
        self._root.set_attribute(names.FINISH_REASONS, [reason.value for reason in reasons])
        if timings is None:
            return
        self._first_token_ns = timings.first_token_ns
        chunks = {names.PREFILL_CHUNKS: timings.num_prefill_chunks}
        self._stage("queue", timings.queued_ns, timings.prefill_started_ns, {})
        self._stage("prefill", timings.prefill_started_ns, timings.first_token_ns, chunks)
        self._stage("decode", timings.first_token_ns, timings.finished_ns, {})

    def failed(self, problem: BaseException | ClientGone) -> None:
        """Record why there is no whole answer."""
        self._problem = problem
        self._root.set_attribute(names.ERROR_TYPE, type(problem).__name__)

    def end(self, *, status: int | None) -> None:
        """End the root span; `status` is what the client was told, None if nothing."""
        if status is not None:
            self._root.set_attribute(names.HTTP_STATUS, status)
        # of a server's span, what the client did wrong or gave up is no error: so the conventions
        is_clients = status is not None and 400 <= status < 500
        if isinstance(self._problem, BaseException) and not is_clients:
            self._root.set_status(StatusCode.ERROR, str(self._problem))
        self._root.end()
        self._record()

    def _record(self) -> None:
        if self._meter is None or self._asked is None:
            return
        operation, model, tenant = self._asked
        error = None if self._problem is None else type(self._problem).__name__
        first_ns = self._first_token_ns
        self._meter.ended(
            Ended(
                operation=operation,
                model=model,
                tenant=tenant,
                duration_s=(time.time_ns() - self._started_ns) / 1e9,
                first_token_s=None if first_ns is None else (first_ns - self._started_ns) / 1e9,
                usage=self._usage,
                error=error,
            )
        )
        if error is not None and not self._usage.completion_tokens:
            self._meter.refused(model, error)

    def _stage(self, name: str, start_ns: int, end_ns: int, attributes: Mapping[str, int]) -> None:
        span = self._tracer.start_span(
            name, context=self._context, start_time=start_ns, attributes=attributes
        )
        span.end(end_time=end_ns)
