"""Which traces are kept: those that the caller keeps, a share of the others, and all that went wrong.

| a trace | is kept |
|---|---|
| whose caller says so in its `traceparent` | always |
| whose caller says that it is not | by the tail rule |
| that begins here | for a share of ids, and by the tail rule |

The tail rule keeps what failed, what took long, and what met a page that was not its own. So spans of
traces that nobody keeps yet are held until all of a trace's open ones have ended: as many as the bounds
allow, the oldest traces are let go first.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from threading import Lock

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor
from opentelemetry.sdk.trace.sampling import Decision, Sampler, SamplingResult
from opentelemetry.trace import Link, SpanKind, StatusCode, TraceState
from opentelemetry.util.types import Attributes

from . import names

SLOW_S = 30.0
"""A request, unless the operator says otherwise."""
MAX_HELD_TRACES = 2048
MAX_HELD_SPANS = 8192
"""Some 2 KiB each."""
MAX_SPANS_OF_A_TRACE = 256
"""Held: a caller that puts all that it does into one trace takes nobody else's room."""
MAX_REMEMBERED = 4096
"""Traces that were kept by the tail rule, so that what comes later of them is kept too."""

_ID_BITS = 64
"""Of a trace's id, that decide: those that other samplers of shares look at."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """What the variables say (`settings.py`)."""

    ratio: float = 1.0
    """Of traces that begin here."""
    follows_parent: bool = True
    """False: the share is of all traces, whatever their callers say."""
    slow_s: float = SLOW_S


class HeadSampler(Sampler):
    """Decides at a span's beginning whether it is kept for sure; all are recorded."""

    def __init__(self, sampling: Sampling) -> None:
        self._follows_parent = sampling.follows_parent
        self._bound = round(sampling.ratio * (1 << _ID_BITS))
        self._ratio = sampling.ratio

    def should_sample(
        self,
        parent_context: Context | None,
        trace_id: int,
        name: str,
        kind: SpanKind | None = None,
        attributes: Attributes = None,
        links: Sequence[Link] | None = None,
        trace_state: TraceState | None = None,
    ) -> SamplingResult:
        parent = trace.get_current_span(parent_context).get_span_context()
        if parent.is_valid and (self._follows_parent or not parent.is_remote):
            is_kept = parent.trace_flags.sampled
        else:
            is_kept = trace_id & ((1 << _ID_BITS) - 1) < self._bound
        decision = Decision.RECORD_AND_SAMPLE if is_kept else Decision.RECORD_ONLY
        state = parent.trace_state if parent.is_valid else None
        return SamplingResult(decision, attributes, state)

    def get_description(self) -> str:
        return f"tenantry{{{self._ratio}}}"


@dataclass(slots=True, eq=False)
class _Held:
    """What waits of a trace."""

    num_open: int = 0
    is_kept: bool = False
    spans: list[ReadableSpan] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class SieveStatistics:
    num_traces: int
    num_spans: int
    """Held."""
    num_let_go: int
    """Spans of traces for which there was no room."""


class Sieve(SpanProcessor):
    """Passes on the spans of traces that are kept, when it is known that they are."""

    def __init__(
        self,
        pass_on: Callable[[ReadableSpan], None],
        *,
        slow_s: float = SLOW_S,
        max_traces: int = MAX_HELD_TRACES,
        max_spans: int = MAX_HELD_SPANS,
    ) -> None:
        self._pass_on = pass_on
        self._slow_ns = slow_s * 1e9
        self._max_traces = max_traces
        self._max_spans = max_spans
        self._lock = Lock()
        self._held: OrderedDict[int, _Held] = OrderedDict()
        """By trace id, the oldest first."""
        self._remembered: OrderedDict[int, None] = OrderedDict()
        self._num_spans = 0
        self._num_let_go = 0

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        context = span.get_span_context()
        if context.trace_flags.sampled:
            return
        with self._lock:
            held = self._held.get(context.trace_id)
            if held is None:
                if len(self._held) >= self._max_traces:
                    self._let_go()
                is_kept = context.trace_id in self._remembered
                held = self._held[context.trace_id] = _Held(is_kept=is_kept)
            held.num_open += 1

    def on_end(self, span: ReadableSpan) -> None:
        context = span.get_span_context()
        if context is None or context.trace_flags.sampled:
            self._pass_on(span)
            return
        with self._lock:
            kept = self._end(context.trace_id, span)
        for each in kept:
            self._pass_on(each)

    def statistics(self) -> SieveStatistics:
        with self._lock:
            return SieveStatistics(
                num_traces=len(self._held),
                num_spans=self._num_spans,
                num_let_go=self._num_let_go,
            )

    def _end(self, trace_id: int, span: ReadableSpan) -> Sequence[ReadableSpan]:
        """Hold a span that has ended, or return it with all that is held if its trace is kept."""
        held = self._held.get(trace_id)
        if held is None:
            # its trace was let go
            self._num_let_go += 1
            return ()
        held.num_open -= 1
        if held.num_open <= 0:
            del self._held[trace_id]
            self._num_spans -= len(held.spans)
        if held.is_kept or self._must_be_kept(span):
            return self._keep(trace_id, held, span)
        if held.num_open > 0:
            self._hold(held, span)
        return ()

    def _keep(self, trace_id: int, held: _Held, span: ReadableSpan) -> Sequence[ReadableSpan]:
        """Return what is held of a trace, and from here on nothing is."""
        self._remember(trace_id)
        if trace_id in self._held:
            self._num_spans -= len(held.spans)
        kept = [*held.spans, span]
        held.is_kept, held.spans = True, []
        return kept

    def _hold(self, held: _Held, span: ReadableSpan) -> None:
        if len(held.spans) >= MAX_SPANS_OF_A_TRACE:
            self._num_let_go += 1
            return
        held.spans.append(span)
        self._num_spans += 1
        while self._num_spans > self._max_spans:
            self._let_go()

    def _must_be_kept(self, span: ReadableSpan) -> bool:
        if span.status.status_code is StatusCode.ERROR:
            return True
        attributes = span.attributes or {}
        if attributes.get(names.PAGES_CHECK) == "mismatch":
            return True
        if span.kind is not SpanKind.SERVER or span.start_time is None or span.end_time is None:
            return False
        return span.end_time - span.start_time >= self._slow_ns

    def _let_go(self) -> None:
        _, held = self._held.popitem(last=False)
        self._num_spans -= len(held.spans)
        self._num_let_go += len(held.spans)

    def _remember(self, trace_id: int) -> None:
        self._remembered[trace_id] = None
        if len(self._remembered) > MAX_REMEMBERED:
            self._remembered.popitem(last=False)
