from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import opentelemetry.semconv._incubating.attributes.gen_ai_attributes as gen_ai
import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.semconv.attributes import (
    error_attributes,
    http_attributes,
    server_attributes,
)
from opentelemetry.trace import SpanKind, StatusCode, Tracer

from tenantry_runtime.core import (
    ContentDelta,
    FinishReason,
    GenerateRequest,
    Message,
    ReasoningDelta,
    RequestId,
    Sampling,
    TenantId,
    ToolCallArguments,
    ToolCallStart,
    Usage,
)
from tenantry_runtime.errors import GenerationFailed, InvalidInput
from tenantry_runtime.pool.messages import Timings
from tenantry_runtime.telemetry import ClientGone, RequestSpan, tracing
from tenantry_runtime.telemetry.content import MAX_CHARS

MODEL = "@cf/moonshotai/kimi-k2.6"


def a_span(tracer: Tracer, headers: Mapping[str, str] | None = None) -> RequestSpan:
    return RequestSpan(
        tracer,
        headers=headers or {},
        method="POST",
        route="/ai/run/{model}",
        server=("127.0.0.1", 8787),
        request_id=RequestId("request-1"),
    )


def a_request(prompt: str | None = None) -> GenerateRequest:
    return GenerateRequest(
        model=MODEL,
        sampling=Sampling(seed=1, temperature=0.5, top_p=0.9, top_k=40, max_tokens=100),
        messages=() if prompt else (Message(role="user", content="hi"),),
        prompt=prompt,
        stream=True,
        session="ses_1",
    )


def by_name(spans: Sequence[ReadableSpan]) -> dict[str, ReadableSpan]:
    return {span.name: span for span in spans}


def test_the_root_span_carries_the_current_names_of_the_conventions(
    tracer: Tracer, exporter: InMemorySpanExporter
) -> None:
    span = a_span(tracer)
    span.asked(a_request(), model="kimi-k2.6", tenant=TenantId("dev"))
    span.used(Usage(prompt_tokens=10, completion_tokens=5, cached_tokens=3, reasoning_tokens=2))
    span.finished([FinishReason.TOOL_CALLS], response_id="chatcmpl-1", timings=None)
    span.end(status=200)

    [root] = exporter.get_finished_spans()
    assert root.name == f"chat {MODEL}"
    assert root.kind is SpanKind.SERVER
    assert root.status.status_code is StatusCode.UNSET
    assert dict(root.attributes or {}) == {
        gen_ai.GEN_AI_OPERATION_NAME: gen_ai.GenAiOperationNameValues.CHAT.value,
        gen_ai.GEN_AI_PROVIDER_NAME: "tenantry",
        gen_ai.GEN_AI_REQUEST_MODEL: "kimi-k2.6",
        gen_ai.GEN_AI_RESPONSE_MODEL: MODEL,
        gen_ai.GEN_AI_RESPONSE_ID: "chatcmpl-1",
        gen_ai.GEN_AI_REQUEST_STREAM: True,
        gen_ai.GEN_AI_REQUEST_MAX_TOKENS: 100,
        gen_ai.GEN_AI_REQUEST_TEMPERATURE: 0.5,
        gen_ai.GEN_AI_REQUEST_TOP_P: 0.9,
        gen_ai.GEN_AI_REQUEST_TOP_K: 40,
        # `printf 'dev\0ses_1' | b2sum -l 64`
        gen_ai.GEN_AI_CONVERSATION_ID: "a21288b39788aba4",
        "tenantry.session.hash": "a21288b39788aba4",
        gen_ai.GEN_AI_USAGE_INPUT_TOKENS: 10,
        gen_ai.GEN_AI_USAGE_OUTPUT_TOKENS: 5,
        gen_ai.GEN_AI_USAGE_CACHE_READ_INPUT_TOKENS: 3,
        gen_ai.GEN_AI_USAGE_REASONING_OUTPUT_TOKENS: 2,
        gen_ai.GEN_AI_RESPONSE_FINISH_REASONS: ("tool_calls",),
        server_attributes.SERVER_ADDRESS: "127.0.0.1",
        server_attributes.SERVER_PORT: 8787,
        http_attributes.HTTP_REQUEST_METHOD: "POST",
        http_attributes.HTTP_ROUTE: "/ai/run/{model}",
        http_attributes.HTTP_RESPONSE_STATUS_CODE: 200,
        "tenantry.tenant": "dev",
        "tenantry.request": "request-1",
    }


def test_a_prompt_is_a_text_completion(tracer: Tracer, exporter: InMemorySpanExporter) -> None:
    span = a_span(tracer)
    span.asked(a_request(prompt="hi"), model=MODEL, tenant=TenantId("dev"))
    span.end(status=200)

    [root] = exporter.get_finished_spans()
    assert root.name == f"text_completion {MODEL}"


def test_the_nodes_stages_become_children_with_its_times(
    tracer: Tracer, exporter: InMemorySpanExporter
) -> None:
    timings = Timings(
        queued_ns=1_000,
        prefill_started_ns=2_000,
        first_token_ns=5_000,
        finished_ns=9_000,
        num_prefill_chunks=3,
    )
    span = a_span(tracer)
    with span.tokenizing():
        pass
    span.finished([FinishReason.STOP], response_id="r", timings=timings)
    span.end(status=200)

    spans = by_name(exporter.get_finished_spans())
    root = spans.pop("POST /ai/run/{model}")
    assert set(spans) == {"tokenize", "queue", "prefill", "decode"}
    for child in spans.values():
        assert child.parent is not None
        assert child.parent.span_id == root.context.span_id
    times = {name: (span.start_time, span.end_time) for name, span in spans.items()}
    assert times["queue"] == (1_000, 2_000)
    assert times["prefill"] == (2_000, 5_000)
    assert times["decode"] == (5_000, 9_000)
    assert (spans["prefill"].attributes or {})["tenantry.prefill.chunks"] == 3


def test_an_incoming_traceparent_is_continued(
    tracer: Tracer, exporter: InMemorySpanExporter
) -> None:
    trace_id, parent_id = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"

    a_span(tracer, {"traceparent": f"00-{trace_id}-{parent_id}-01"}).end(status=200)

    [root] = exporter.get_finished_spans()
    assert root.context.trace_id == int(trace_id, 16)
    assert root.parent is not None
    assert root.parent.span_id == int(parent_id, 16)


@pytest.mark.parametrize("traceparent", ["", "nonsense", "00-0-0-01"])
def test_a_malformed_traceparent_starts_a_trace(
    tracer: Tracer, exporter: InMemorySpanExporter, traceparent: str
) -> None:
    a_span(tracer, {"traceparent": traceparent}).end(status=200)

    [root] = exporter.get_finished_spans()
    assert root.parent is None


def test_a_failure_is_named_by_its_class(tracer: Tracer, exporter: InMemorySpanExporter) -> None:
    span = a_span(tracer)
    span.failed(GenerationFailed("out of luck"))
    span.end(status=500)

    [root] = exporter.get_finished_spans()
    assert root.status.status_code is StatusCode.ERROR
    assert root.status.description == "generation failed: out of luck"
    assert (root.attributes or {})[error_attributes.ERROR_TYPE] == "GenerationFailed"


def test_what_the_client_did_wrong_is_no_error_of_the_server(
    tracer: Tracer, exporter: InMemorySpanExporter
) -> None:
    span = a_span(tracer)
    span.failed(InvalidInput("max_tokens", "is bad"))
    span.end(status=400)

    [root] = exporter.get_finished_spans()
    assert root.status.status_code is StatusCode.UNSET
    assert (root.attributes or {})[error_attributes.ERROR_TYPE] == "InvalidInput"


def test_a_stream_that_broke_is_an_error_although_it_began_well(
    tracer: Tracer, exporter: InMemorySpanExporter
) -> None:
    span = a_span(tracer)
    span.failed(GenerationFailed("out of luck"))
    span.end(status=200)

    [root] = exporter.get_finished_spans()
    assert root.status.status_code is StatusCode.ERROR


def test_a_client_that_left_is_told_apart(tracer: Tracer, exporter: InMemorySpanExporter) -> None:
    span = a_span(tracer)
    span.failed(ClientGone())
    span.end(status=None)

    [root] = exporter.get_finished_spans()
    assert root.status.status_code is StatusCode.UNSET
    assert (root.attributes or {})[error_attributes.ERROR_TYPE] == "ClientGone"
    assert http_attributes.HTTP_RESPONSE_STATUS_CODE not in (root.attributes or {})


def test_an_error_on_the_way_is_named_and_never_quoted(
    tracer: Tracer, exporter: InMemorySpanExporter
) -> None:
    span = a_span(tracer)
    with pytest.raises(InvalidInput):
        with span.tokenizing():
            raise InvalidInput("messages", "says: my secret")
    span.end(status=400)

    tokenize, _ = exporter.get_finished_spans()
    assert dict(tokenize.attributes or {}) == {error_attributes.ERROR_TYPE: "InvalidInput"}
    assert "secret" not in tokenize.to_json()


def test_what_nodes_are_told_is_the_root_span(
    tracer: Tracer, exporter: InMemorySpanExporter
) -> None:
    span = a_span(tracer)
    traceparent = span.traceparent
    span.end(status=200)

    [root] = exporter.get_finished_spans()
    context = root.context
    named = f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"
    assert traceparent == named
    assert context.trace_flags.sampled


def test_where_nothing_is_traced_nodes_are_told_nothing() -> None:
    with tracing({}) as tracer:
        span = a_span(tracer)
        assert (span.traceparent, span.trace_id) == ("", "")
        span.end(status=200)


def test_what_was_said_is_in_no_span(tracer: Tracer, exporter: InMemorySpanExporter) -> None:
    span = a_span(tracer)
    span.asked(a_request(), model=MODEL, tenant=TenantId("dev"))
    span.hear([ContentDelta("the answer")], 0)
    span.end(status=200)

    [root] = exporter.get_finished_spans()
    assert "the answer" not in root.to_json()
    assert "gen_ai.input.messages" not in (root.attributes or {})


def test_what_was_said_is_in_the_spans_of_a_tenant_that_wants_it(
    exporter: InMemorySpanExporter, tmp_path: Path
) -> None:
    file = tmp_path / "tenants.toml"
    file.write_text('[tenants.dev]\nendpoint = "http://127.0.0.1:9"\ncontent = true\n')
    environ = {"TENANTRY_TENANT_TRACES": str(file)}
    with tracing(environ, processors=[SimpleSpanProcessor(exporter)]) as tracer:
        span = a_span(tracer)
        span.asked(a_request(), model=MODEL, tenant=TenantId("dev"))
        span.hear([ReasoningDelta("hm"), ContentDelta("the "), ContentDelta("answer")], 0)
        span.hear([ToolCallStart(0, "c1", "f"), ToolCallArguments(0, "{}")], 0)
        span.end(status=200)

    [root] = exporter.get_finished_spans()
    attributes = root.attributes or {}
    assert json.loads(str(attributes["gen_ai.input.messages"])) == [
        {"role": "user", "parts": [{"type": "text", "content": "hi"}]}
    ]
    assert json.loads(str(attributes["gen_ai.output.messages"])) == [
        {
            "role": "assistant",
            "parts": [
                {"type": "reasoning", "content": "hm"},
                {"type": "text", "content": "the answer"},
                {"type": "tool_call", "id": "c1", "name": "f", "arguments": "{}"},
            ],
        }
    ]


def test_a_long_conversation_is_cut(exporter: InMemorySpanExporter, tmp_path: Path) -> None:
    file = tmp_path / "tenants.toml"
    file.write_text('[tenants.dev]\nendpoint = "http://127.0.0.1:9"\ncontent = true\n')
    environ = {"TENANTRY_TENANT_TRACES": str(file)}
    with tracing(environ, processors=[SimpleSpanProcessor(exporter)]) as tracer:
        span = a_span(tracer)
        span.asked(a_request(prompt="x" * 100_000), model=MODEL, tenant=TenantId("dev"))
        for _ in range(100):
            span.hear([ContentDelta("y" * 1000)], 0)
        span.end(status=200)

    [root] = exporter.get_finished_spans()
    attributes = root.attributes or {}
    for name in ("gen_ai.input.messages", "gen_ai.output.messages"):
        assert len(str(attributes[name])) <= MAX_CHARS + 1
