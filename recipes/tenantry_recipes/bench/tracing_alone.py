"""What the spans of one request cost an edge, by themselves: made on one thread, printed on another."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor
from opentelemetry.trace import NoOpTracer, Tracer

from tenantry_runtime.core import (
    FinishReason,
    GenerateRequest,
    Message,
    RequestId,
    Sampling,
    TenantId,
    Usage,
)
from tenantry_runtime.pool.messages import Timings
from tenantry_runtime.telemetry import Journey, MemberTold, RequestSpan, names, tracing

NUM_REQUESTS = 200
NUM_REPETITIONS = 15
BATCH = 512
"""Spans that are printed at once."""

MEMBER = MemberTold(
    name="unix:/run/tenantry/node.sock/benched",
    weights_format="bf16",
    cache_format="bf16",
    is_checked=True,
)
BESIDE = tuple(f"00-{number:032x}-{number:016x}-03" for number in range(1, 5))


class _Kept(SpanProcessor):
    def __init__(self) -> None:
        self.spans: list[ReadableSpan] = []

    def on_end(self, span: ReadableSpan) -> None:
        self.spans.append(span)


def request_s() -> float:
    """Return the added processor time of one request: of its spans, and of printing them."""
    kept = _Kept()
    with tracing({}, processors=[kept]) as tracer:
        made_s = _median_s(lambda: _make(tracer))
        spans = kept.spans[-8 * NUM_REQUESTS :]
        printed_s = _median_s(lambda: _print(spans))
    return (made_s - _median_s(lambda: _make(NoOpTracer())) + printed_s) / NUM_REQUESTS


def _median_s(work: Callable[[], None]) -> float:
    times = []
    for _ in range(NUM_REPETITIONS):
        started_s = time.thread_time()
        work()
        times.append(time.thread_time() - started_s)
    return statistics.median(times)


def _make(tracer: Tracer) -> None:
    for _ in range(NUM_REQUESTS):
        _one(tracer)


def _print(spans: list[ReadableSpan]) -> None:
    for at in range(0, len(spans), BATCH):
        encode_spans(spans[at : at + BATCH]).SerializeToString()


def _one(tracer: Tracer) -> None:
    """Do as an edge does for a request that goes well."""
    span = RequestSpan(
        tracer,
        headers={},
        method="POST",
        route="/client/v4/accounts/{account}/ai/run/{model:path}",
        server=("127.0.0.1", 8787),
        request_id=RequestId("request"),
    )
    request = GenerateRequest(
        model="benched",
        sampling=Sampling(seed=1, temperature=0.0, max_tokens=128),
        messages=(Message(role="user", content="hi"),),
        stream=True,
    )
    span.asked(request, model="benched", tenant=TenantId("dev"))
    with span.tokenizing():
        pass
    with span.stage("admit"):
        pass
    journey = Journey(members={"prefill": MEMBER, "decode": MEMBER})
    with journey.stage("route", {names.ROUTE_PHASE: "prefill"}):
        pass
    journey.has_token()
    span.follow([journey])
    now_ns = time.time_ns()
    timings = Timings(
        now_ns,
        now_ns,
        now_ns,
        now_ns,
        1,
        num_handoff_pages=2,
        num_steps=127,
        num_step_rows=8000,
        beside=BESIDE,
    )
    span.used(Usage(prompt_tokens=100, completion_tokens=128))
    span.finished([FinishReason.LENGTH], response_id="r", timings=timings)
    span.end(status=200)
