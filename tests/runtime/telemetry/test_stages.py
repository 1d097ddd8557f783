from __future__ import annotations

from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import Tracer

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
from tenantry_runtime.telemetry import Journey, MemberTold, RequestSpan

USAGE = Usage(prompt_tokens=100, completion_tokens=20, cached_tokens=64)

PREFILL = MemberTold(name="grpc://p/m", weights_format="int4", cache_format="bf16", is_checked=True)
DECODE = MemberTold(name="grpc://d/m", weights_format="int4", cache_format="fp8", is_checked=True)

HANDED_OVER = Timings(
    queued_ns=1_000,
    prefill_started_ns=2_000,
    first_token_ns=5_000,
    finished_ns=9_000,
    num_prefill_chunks=2,
    handoff_started_ns=3_000,
    handoff_ended_ns=6_000,
    num_handoff_pages=2,
    num_handoff_bytes=4096,
    num_preemptions=1,
    num_steps=19,
    num_step_rows=57,
    beside=(f"00-{'c' * 32}-{'d' * 16}-01", "nonsense"),
)


def spans_of(
    tracer: Tracer,
    exporter: InMemorySpanExporter,
    *journeys: Journey,
    timings: Timings | None = HANDED_OVER,
) -> dict[str, ReadableSpan]:
    """Return what comes of a request, by name and answer."""
    span = RequestSpan(
        tracer,
        headers={},
        method="POST",
        route="/run",
        server=None,
        request_id=RequestId("r"),
    )
    request = GenerateRequest(
        model="m", sampling=Sampling(seed=1), messages=(Message(role="user", content="hi"),)
    )
    span.asked(request, model="m", tenant=TenantId("acme"))
    span.follow(journeys)
    span.used(USAGE)
    others = [timings] * (len(journeys) - 1)
    reasons = [FinishReason.STOP] * len(journeys)
    span.finished(reasons, response_id="r", timings=timings, others=others)
    span.end(status=200)
    return {
        f"{each.name} {choice}"
        if (choice := attributes(each).get("tenantry.choice"))
        else each.name: (each)
        for each in exporter.get_finished_spans()
    }


def attributes(span: ReadableSpan) -> dict[str, object]:
    return dict(span.attributes or {})


def test_each_stage_has_its_times_and_what_it_came_to(
    tracer: Tracer, exporter: InMemorySpanExporter
) -> None:
    journey = Journey(members={"prefill": PREFILL, "decode": DECODE})
    spans = spans_of(tracer, exporter, journey)
    assert {name: (span.start_time, span.end_time) for name, span in spans.items()} == {
        "queue": (1_000, 2_000),
        "prefill": (2_000, 5_000),
        "hand-off": (3_000, 6_000),
        "decode": (5_000, 9_000),
        "chat m": (spans["chat m"].start_time, spans["chat m"].end_time),
    }
    prefill = {
        "tenantry.tenant": "acme",
        "tenantry.prefill.member": "grpc://p/m",
        "tenantry.prefill.formats": "int4/bf16",
    }
    decode = {
        "tenantry.tenant": "acme",
        "tenantry.decode.member": "grpc://d/m",
        "tenantry.decode.formats": "int4/fp8",
        "tenantry.pages.check": "passed",
    }
    assert attributes(spans["queue"]) == prefill
    assert attributes(spans["prefill"]) == {
        **prefill,
        "tenantry.pages.check": "passed",
        "tenantry.prefill.chunks": 2,
        "tenantry.prefill.tokens": 36,
        "tenantry.prefill.cached_tokens": 64,
    }
    assert attributes(spans["hand-off"]) == {
        **prefill,
        **decode,
        "tenantry.handoff.direction": "sent",
        "tenantry.handoff.pages": 2,
        "tenantry.handoff.bytes": 4096,
    }
    assert attributes(spans["decode"]) == {
        **decode,
        "tenantry.decode.tokens": 20,
        "tenantry.decode.steps": 19,
        "tenantry.decode.mean_batch": 3.0,
        "tenantry.decode.preemptions": 1,
    }


def test_a_shared_batch_is_links_to_those_who_shared_it(
    tracer: Tracer, exporter: InMemorySpanExporter
) -> None:
    decode = spans_of(tracer, exporter, Journey())["decode"]
    [link] = decode.links
    assert (link.context.trace_id, link.context.span_id) == (int("c" * 32, 16), int("d" * 16, 16))
    assert dict(link.attributes or {}) == {"tenantry.link": "batch"}


def test_pages_that_stay_where_they_are_change_hands_with_the_first_token(
    tracer: Tracer, exporter: InMemorySpanExporter
) -> None:
    timings = Timings(1_000, 2_000, 5_000, 9_000, 1, num_handoff_pages=2)
    adopted = spans_of(tracer, exporter, Journey(), timings=timings)["hand-off"]
    assert (adopted.start_time, adopted.end_time) == (5_000, 5_000)
    seen = attributes(adopted)
    assert seen["tenantry.handoff.direction"] == "adopted"
    assert seen["tenantry.handoff.bytes"] == 0


def test_no_stage_ends_before_it_began_whatever_clocks_say(
    tracer: Tracer, exporter: InMemorySpanExporter
) -> None:
    timings = Timings(
        2_000,
        1_000,
        5_000,
        4_000,
        1,
        handoff_started_ns=7_000,
        handoff_ended_ns=6_000,
        num_handoff_pages=1,
    )
    spans = spans_of(tracer, exporter, Journey(), timings=timings)
    del spans["chat m"]
    assert {name: (span.start_time, span.end_time) for name, span in spans.items()} == {
        "queue": (2_000, 2_000),
        "prefill": (2_000, 5_000),
        "hand-off": (7_000, 7_000),
        "decode": (5_000, 5_000),
    }


def test_an_older_nodes_timings_make_the_stages_that_it_tells_of(
    tracer: Tracer, exporter: InMemorySpanExporter
) -> None:
    spans = spans_of(tracer, exporter, Journey(), timings=Timings(1_000, 2_000, 5_000, 9_000, 1))
    assert sorted(spans) == ["chat m", "decode", "prefill", "queue"]


def test_several_answers_have_stages_of_their_own_and_link_to_the_first_prompt(
    tracer: Tracer, exporter: InMemorySpanExporter
) -> None:
    spans = spans_of(tracer, exporter, Journey(), Journey())
    [link] = spans["prefill 1"].links
    context = spans["prefill"].get_span_context()
    assert context is not None
    assert link.context.span_id == context.span_id
    assert dict(link.attributes or {}) == {"tenantry.link": "prefix"}


def test_what_happened_on_the_way_is_told_by_the_root(
    tracer: Tracer, exporter: InMemorySpanExporter
) -> None:
    journey = Journey()
    journey.event("tenantry.retry", {"error.type": "NodeLost"})
    with journey.stage("route", {"tenantry.route.phase": "prefill"}):
        pass
    journey.has_mismatch = True
    spans = spans_of(tracer, exporter, journey, timings=None)
    root = spans["chat m"]
    assert [(event.name, dict(event.attributes or {})) for event in root.events] == [
        ("tenantry.retry", {"error.type": "NodeLost"})
    ]
    assert attributes(root)["tenantry.pages.check"] == "mismatch"
    assert attributes(spans["route"])["tenantry.route.phase"] == "prefill"


def test_a_sequence_that_is_preempted_for_ever_has_a_bounded_trace(
    tracer: Tracer, exporter: InMemorySpanExporter
) -> None:
    journey = Journey()
    for _ in range(1000):
        journey.event("tenantry.preempted", {})
        with journey.stage("route", {}):
            pass
    spans_of(tracer, exporter, journey, timings=None)
    spans = exporter.get_finished_spans()
    assert len(spans) == 65
    assert len(spans[-1].events) == 64
