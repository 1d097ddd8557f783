"""The spans of one request, from its headers to its last byte.

| span | from | to |
|---|---|---|
| `chat MODEL` (root) | the request's headers | its end, however it ends |
| tokenize | the parsed request | its token ids |
| admit | the limits are asked | they have room |
| compile grammar | what constrains the answer | its grammar; only where something does |
| route | a member is looked for | it is chosen; once for each phase and attempt |
| reserve | the decode member is asked | it has pages; only where pages cross |
| queue | the node has it | its prefill starts |
| prefill | the first chunk | the first token |
| hand-off | the way is open | all pages are written and verified |
| decode | the first token | the last |

The last four are the nodes' clocks, and there are none where no node finished the sequence. Retries and
preemptions are events of the root.

The same object tells a `RequestMeter` what came of the request, so that the two agree.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import blake2b

from opentelemetry import context as contexts, trace
from opentelemetry.trace import SpanContext, SpanKind, StatusCode, Tracer
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from tenantry_runtime.core import Event, FinishReason, GenerateRequest, RequestId, TenantId, Usage
from tenantry_runtime.pool.messages import Timings

from . import names
from .content import Heard, printed_input
from .journey import Attributes, Journey
from .metrics import Ended, RequestMeter
from .stages import SequenceStages
from .tracer import past, shows_content

PROVIDER = "tenantry"

_propagator = TraceContextTextMapPropagator()


@dataclass(frozen=True, slots=True)
class ClientGone:
    """The client left before the answer was whole; no error of ours."""


class RequestSpan:
    """One request's root span and its children. Ends with `end`, once.

    It is the current span of the task that makes it, until it ends: logs say which it is.
    """

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
        # what differences are taken of: Unix time is set back and forth
        self._started_s = time.perf_counter()
        self._asked: tuple[str, str, TenantId] | None = None
        """Operation, model and tenant, once they are known."""
        self._common: Attributes = {}
        """Of all spans."""
        self._usage = Usage(prompt_tokens=0, completion_tokens=0)
        self._problem: BaseException | ClientGone | None = None
        self._journeys: Sequence[Journey] = ()
        self._timings: Sequence[Timings | None] = ()
        self._heard: Heard | None = None
        self._root = tracer.start_span(
            f"{method} {route}",
            context=_propagator.extract(headers),
            kind=SpanKind.SERVER,
            attributes={
                names.HTTP_METHOD: method,
                names.HTTP_ROUTE: route,
                names.PROVIDER: PROVIDER,
                names.REQUEST: request_id,
            },
        )
        self._context = trace.set_span_in_context(self._root)
        self._outer = contexts.get_current()
        if self._root.get_span_context().is_valid:
            contexts.attach(self._context)
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

    @property
    def traceparent(self) -> str:
        """What nodes are told; empty where nothing is traced."""
        carrier: dict[str, str] = {}
        _propagator.inject(carrier, self._context)
        return carrier.get("traceparent", "")

    def asked(self, request: GenerateRequest, *, model: str, tenant: TenantId) -> None:
        """Record what is asked, and by whom; `model` is the name that the request used."""
        operation = "chat" if request.prompt is None else "text_completion"
        self._asked = operation, request.model, tenant
        self._common = {names.TENANT: tenant}
        self._root.update_name(f"{operation} {request.model}")
        sampling = request.sampling
        session = None if request.session is None else session_hash(tenant, request.session)
        attributes: dict[str, str | float | None] = {
            names.OPERATION: operation,
            names.REQUEST_MODEL: model,
            names.RESPONSE_MODEL: request.model,
            names.REQUEST_STREAM: request.stream,
            names.REQUEST_MAX_TOKENS: sampling.max_tokens,
            names.REQUEST_TEMPERATURE: sampling.temperature,
            names.REQUEST_TOP_P: sampling.top_p,
            names.REQUEST_TOP_K: sampling.top_k,
            # what backends group by; the session itself may name a person
            names.CONVERSATION: session,
            names.SESSION: session,
            names.TENANT: tenant,
        }
        if shows_content(self._tracer, tenant):
            self._heard = Heard()
            attributes[names.INPUT_MESSAGES] = printed_input(request)
        self._root.set_attributes({k: v for k, v in attributes.items() if v is not None})

    @contextmanager
    def tokenizing(self) -> Iterator[None]:
        """Span the work from messages to token ids."""
        with self.stage("tokenize"):
            yield

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Span a part of the work. What it raises is named by its class: messages may say what users said."""
        started_ns = time.time_ns()
        problem: Attributes = {}
        try:
            yield
        except BaseException as error:
            problem = {names.ERROR_TYPE: type(error).__name__}
            raise
        finally:
            if self._root.is_recording():
                past(
                    self._tracer,
                    name,
                    self._context,
                    started_ns=started_ns,
                    ended_ns=time.time_ns(),
                    attributes={**self._common, **problem},
                )

    def follow(self, journeys: Sequence[Journey]) -> None:
        """Record at the end what comes of the request's sequences, one for each answer."""
        self._journeys = journeys

    def hear(self, events: Sequence[Event], choice: int) -> None:
        """Record what the model says, where the tenant wants that."""
        if self._heard is not None:
            self._heard.hear(events, choice)

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
        self,
        reasons: Sequence[FinishReason],
        *,
        response_id: str,
        timings: Timings | None,
        others: Sequence[Timings | None] = (),
    ) -> None:
        """Record that the answers are whole, and the nodes' stages: of the first, and of the others."""
        self._root.set_attribute(names.RESPONSE_ID, response_id)
        self._root.set_attribute(names.FINISH_REASONS, [reason.value for reason in reasons])
        self._timings = (timings, *others)

    def failed(self, problem: BaseException | ClientGone) -> None:
        """Record why there is no whole answer."""
        self._problem = problem
        self._root.set_attribute(names.ERROR_TYPE, type(problem).__name__)

    def end(self, *, status: int | None) -> None:
        """End the root span; `status` is what the client was told, None if nothing."""
        if status is not None:
            self._root.set_attribute(names.HTTP_STATUS, status)
        if self._root.is_recording():
            self._tell_stages()
        # of a server's span, what the client did wrong or gave up is no error: so the conventions
        is_clients = status is not None and 400 <= status < 500
        if isinstance(self._problem, BaseException) and not is_clients:
            self._root.set_status(StatusCode.ERROR, str(self._problem))
        self._root.end()
        contexts.attach(self._outer)
        self._record()

    def _tell_stages(self) -> None:
        journeys = self._journeys or [Journey()]
        for journey in journeys:
            for happened in journey.happened:
                self._root.add_event(happened.name, happened.attributes, happened.time_ns)
        self._tell_outcome(journeys)
        first: SpanContext | None = None
        for index, journey in enumerate(journeys):
            stages = SequenceStages(
                tracer=self._tracer,
                context=self._context,
                common=self._common if len(journeys) == 1 else self._of_choice(index),
                journey=journey,
                timings=self._timings[index] if index < len(self._timings) else None,
            )
            prefill = stages.emit(self._usage, first=first)
            first = first or prefill

    def _tell_outcome(self, journeys: Sequence[Journey]) -> None:
        told = [member for journey in journeys for member in journey.members.values()]
        if any(journey.has_mismatch for journey in journeys):
            self._root.set_attribute(names.PAGES_CHECK, "mismatch")
        elif told:
            is_checked = all(member.is_checked for member in told)
            self._root.set_attribute(names.PAGES_CHECK, "passed" if is_checked else "off")
        first_s = self._until_first_token_s
        if first_s is not None:
            self._root.set_attribute(names.FIRST_CHUNK_S, first_s)
        if self._heard is not None:
            self._root.set_attribute(names.OUTPUT_MESSAGES, self._heard.printed())

    def _of_choice(self, index: int) -> Attributes:
        return {**self._common, names.CHOICE: index}

    @property
    def _until_first_token_s(self) -> float | None:
        """As the edge saw it; else as the node told it."""
        seen = [at for journey in self._journeys if (at := journey.first_token_s) is not None]
        if seen:
            return min(seen) - self._started_s
        told_ns = next((timings.first_token_ns for timings in self._timings if timings), None)
        return None if told_ns is None else (told_ns - self._started_ns) / 1e9

    def _record(self) -> None:
        if self._meter is None or self._asked is None:
            return
        operation, model, tenant = self._asked
        error = None if self._problem is None else type(self._problem).__name__
        self._meter.ended(
            Ended(
                operation=operation,
                model=model,
                tenant=tenant,
                duration_s=time.perf_counter() - self._started_s,
                first_token_s=self._until_first_token_s,
                usage=self._usage,
                error=error,
            )
        )
        for journey in self._journeys:
            self._meter.retried(model, journey.num_retries)
        if error is not None and not self._usage.completion_tokens:
            self._meter.refused(model, error)


def session_hash(tenant: TenantId, session: str) -> str:
    """Return what stands for a session in traces: of two tenants' same session, two."""
    return blake2b(f"{tenant}\0{session}".encode(), digest_size=8).hexdigest()
