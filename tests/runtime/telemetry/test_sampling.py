from __future__ import annotations

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.trace import SpanKind, StatusCode, Tracer, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from tenantry_runtime.telemetry.sampling import MAX_SPANS_OF_A_TRACE, HeadSampler, Sampling, Sieve

SECOND = 10**9


class Kept:
    """A tracer, and what of its spans is kept."""

    def __init__(self, sampling: Sampling, *, max_traces: int = 100, max_spans: int = 100) -> None:
        self.spans: list[ReadableSpan] = []
        self.sieve = Sieve(
            self.spans.append, slow_s=10.0, max_traces=max_traces, max_spans=max_spans
        )
        provider = TracerProvider(sampler=HeadSampler(sampling), shutdown_on_exit=False)
        provider.add_span_processor(self.sieve)
        self.tracer: Tracer = provider.get_tracer("test")

    @property
    def names(self) -> list[str]:
        return [span.name for span in self.spans]


NONE = Sampling(ratio=0.0)


def with_a_child(kept: Kept, name: str, *, traceparent: str = "") -> None:
    context = TraceContextTextMapPropagator().extract({"traceparent": traceparent})
    root = kept.tracer.start_span(name, context=context, attributes={"own": name})
    kept.tracer.start_span("child", context=set_span_in_context(root)).end()
    root.end()


def test_all_is_kept_by_default() -> None:
    kept = Kept(Sampling())
    with_a_child(kept, "root")
    assert kept.names == ["child", "root"]
    assert dict(kept.spans[1].attributes or {}) == {"own": "root"}


@pytest.mark.parametrize("flag", ["00", "01"])
def test_the_callers_decision_is_followed(flag: str) -> None:
    kept = Kept(NONE if flag == "01" else Sampling())
    with_a_child(kept, "root", traceparent=f"00-{'a' * 32}-{'b' * 16}-{flag}")
    assert bool(kept.names) == (flag == "01")


def test_a_share_of_traces_is_kept_whole_or_not_at_all() -> None:
    kept = Kept(Sampling(ratio=0.25))
    for _ in range(2000):
        with_a_child(kept, "root")
    num_kept = kept.names.count("root")
    # 500 expected; seven standard deviations
    assert 365 < num_kept < 635
    assert kept.names.count("child") == num_kept


def test_a_trace_of_which_a_part_failed_is_kept_whole() -> None:
    kept = Kept(NONE)
    root = kept.tracer.start_span("root")
    child = kept.tracer.start_span("child", context=set_span_in_context(root))
    kept.tracer.start_span("went well", context=set_span_in_context(root)).end()
    assert kept.names == []
    child.set_status(StatusCode.ERROR)
    child.end()
    kept.tracer.start_span("later", context=set_span_in_context(root)).end()
    root.end()
    assert kept.names == ["went well", "child", "later", "root"]
    statistics = kept.sieve.statistics()
    assert (statistics.num_traces, statistics.num_spans) == (0, 0)


def test_one_trace_takes_no_more_than_its_part() -> None:
    kept = Kept(NONE, max_spans=10_000)
    other = kept.tracer.start_span("other")
    root = kept.tracer.start_span("root")
    for _ in range(5000):
        kept.tracer.start_span("child", context=set_span_in_context(root)).end()
    assert kept.sieve.statistics().num_spans == MAX_SPANS_OF_A_TRACE
    other.set_status(StatusCode.ERROR)
    other.end()
    assert kept.names == ["other"]


def test_a_page_that_was_not_its_own_keeps_a_trace() -> None:
    kept = Kept(NONE)
    kept.tracer.start_span("root", attributes={"tenantry.pages.check": "mismatch"}).end()
    kept.tracer.start_span("other", attributes={"tenantry.pages.check": "passed"}).end()
    assert kept.names == ["root"]


@pytest.mark.parametrize(("duration_s", "is_kept"), [(9.9, False), (10.0, True)])
def test_a_slow_request_is_kept(duration_s: float, is_kept: bool) -> None:
    kept = Kept(NONE)
    span = kept.tracer.start_span("root", kind=SpanKind.SERVER, start_time=SECOND)
    span.end(end_time=round((1 + duration_s) * SECOND))
    assert bool(kept.names) == is_kept


def test_what_comes_later_of_a_trace_that_is_kept_is_kept_too() -> None:
    kept = Kept(NONE)
    traceparent = f"00-{'a' * 32}-{'b' * 16}-00"
    context = TraceContextTextMapPropagator().extract({"traceparent": traceparent})
    failed = kept.tracer.start_span("failed", context=context)
    failed.set_status(StatusCode.ERROR)
    failed.end()
    with_a_child(kept, "later", traceparent=traceparent)
    with_a_child(kept, "another", traceparent=f"00-{'c' * 32}-{'b' * 16}-00")
    assert kept.names == ["failed", "child", "later"]


def test_traces_that_never_end_are_let_go_oldest_first() -> None:
    kept = Kept(NONE, max_traces=3)
    roots = [kept.tracer.start_span(f"root {number}") for number in range(5)]
    assert kept.sieve.statistics().num_traces == 3
    for root in roots:
        root.set_status(StatusCode.ERROR)
        root.end()
    assert kept.names == ["root 2", "root 3", "root 4"]
    assert kept.sieve.statistics().num_traces == 0


def test_a_trace_of_too_many_spans_is_let_go() -> None:
    kept = Kept(NONE, max_spans=50)
    root = kept.tracer.start_span("root")
    for _ in range(1000):
        kept.tracer.start_span("child", context=set_span_in_context(root)).end()
        assert kept.sieve.statistics().num_spans <= 50
    root.end()
    statistics = kept.sieve.statistics()
    assert (statistics.num_traces, statistics.num_spans) == (0, 0)
