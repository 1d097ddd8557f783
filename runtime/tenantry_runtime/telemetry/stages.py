"""Spans of what came of one sequence: what the edge saw on its way, and what the nodes told at its end.

Nothing is made while the sequence runs: no step has a span. Where a batch is shared, a span links to
requests that shared it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

from opentelemetry.context import Context
from opentelemetry.trace import Link, SpanContext, TraceFlags, Tracer

from tenantry_runtime.core import Phase, Usage
from tenantry_runtime.pool.messages import Timings

from . import names
from .journey import Attributes, Journey
from .tracer import past

SENT, ADOPTED = "sent", "adopted"
"""Directions of hand-offs: pages crossed to another pool, or stayed and changed hands."""
BATCH, PREFIX = "batch", "prefix"
"""Why spans are linked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SequenceStages:
    """Makes the spans of one sequence."""

    tracer: Tracer
    context: Context
    """Of the request's span."""
    common: Attributes
    """Of every span: whose it is."""
    journey: Journey
    timings: Timings | None
    """None: the node did not finish it."""

    def emit(self, usage: Usage, *, first: SpanContext | None) -> SpanContext | None:
        """Make them all; return the prefill's. `first` is that of the request's first answer, if another."""
        for stage in self.journey.stages:
            self._span(stage.name, stage.started_ns, stage.ended_ns, stage.attributes)
        timings = self.timings
        if timings is None:
            return None
        queued_ns, started_ns, first_ns, finished_ns = _in_order(timings)
        self._span("queue", queued_ns, started_ns, self._member("prefill"))
        prefill = self._span(
            "prefill",
            started_ns,
            first_ns,
            {**self._member("prefill"), **self._check("prefill"), **_prefill(timings, usage)},
            links=() if first is None else (_link(first, PREFIX),),
        )
        self._hand_off(timings, first_ns)
        self._span(
            "decode",
            first_ns,
            finished_ns,
            {**self._member("decode"), **self._check("decode"), **_decode(timings, usage)},
            links=list(_links(timings.beside)),
        )
        return prefill

    def _hand_off(self, timings: Timings, first_ns: int) -> None:
        if not timings.num_handoff_pages:
            return
        has_crossed = timings.handoff_started_ns > 0
        # what changes hands where it is does so with the first token
        started_ns = timings.handoff_started_ns if has_crossed else first_ns
        ended_ns = timings.handoff_ended_ns if has_crossed else first_ns
        self._span(
            "hand-off",
            started_ns,
            # two nodes' clocks
            max(started_ns, ended_ns),
            {
                **self._member("prefill"),
                **self._member("decode"),
                **self._check("decode"),
                names.HANDOFF_DIRECTION: SENT if has_crossed else ADOPTED,
                names.HANDOFF_PAGES: timings.num_handoff_pages,
                names.HANDOFF_BYTES: timings.num_handoff_bytes,
            },
        )

    def _member(self, phase: Phase) -> Attributes:
        told = self.journey.members.get(phase)
        if told is None:
            return {}
        if phase == "prefill":
            return {names.PREFILL_MEMBER: told.name, names.PREFILL_FORMATS: told.formats}
        return {names.DECODE_MEMBER: told.name, names.DECODE_FORMATS: told.formats}

    def _check(self, phase: Phase) -> Attributes:
        told = self.journey.members.get(phase)
        if told is None:
            return {}
        # of a sequence that has finished: what does not pass never does
        return {names.PAGES_CHECK: "passed" if told.is_checked else "off"}

    def _span(
        self,
        name: str,
        started_ns: int,
        ended_ns: int,
        attributes: Attributes,
        links: Sequence[Link] = (),
    ) -> SpanContext:
        return past(
            self.tracer,
            name,
            self.context,
            started_ns=started_ns,
            ended_ns=ended_ns,
            attributes={**self.common, **attributes},
            links=links,
        )


def _in_order(timings: Timings) -> Iterator[int]:
    """Return when the stages began and the last ended, none before the one before it.

    Two nodes have two clocks.
    """
    return accumulate(
        (
            timings.queued_ns,
            timings.prefill_started_ns,
            timings.first_token_ns,
            timings.finished_ns,
        ),
        max,
    )


def _prefill(timings: Timings, usage: Usage) -> Mapping[str, int]:
    return {
        names.PREFILL_CHUNKS: timings.num_prefill_chunks,
        names.PREFILL_TOKENS: usage.prompt_tokens - usage.cached_tokens,
        names.PREFILL_CACHED_TOKENS: usage.cached_tokens,
    }


def _decode(timings: Timings, usage: Usage) -> Mapping[str, int | float]:
    attributes: dict[str, int | float] = {names.DECODE_TOKENS: usage.completion_tokens}
    if timings.num_steps:
        attributes[names.DECODE_STEPS] = timings.num_steps
        attributes[names.DECODE_MEAN_BATCH] = round(timings.num_step_rows / timings.num_steps, 2)
    if timings.num_preemptions:
        attributes[names.DECODE_PREEMPTIONS] = timings.num_preemptions
    return attributes


def _links(traceparents: Sequence[str]) -> Iterator[Link]:
    for traceparent in traceparents:
        parts = traceparent.split("-")
        try:
            _, trace_id, span_id, flags = parts
            context = SpanContext(
                int(trace_id, 16), int(span_id, 16), True, TraceFlags(int(flags, 16))
            )
        except ValueError:
            # a node's word: nothing depends on it
            continue
        if context.is_valid:
            yield _link(context, BATCH)


def _link(context: SpanContext, why: str) -> Link:
    return Link(context, {names.LINK: why})
