"""The spans of requests that come over HTTP."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import anyio
import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode, Tracer

from support.edges import RUN, AsgiCall, State, an_edge
from support.plain_text import END
from support.requests import a_body
from support.token_source import FakeTokenSource
from tenantry_runtime.errors import GenerationFailed
from tenantry_runtime.pool.messages import Timings

TIMINGS = Timings(1_000, 2_000, 5_000, 9_000, 1)


def the_root(exporter: InMemorySpanExporter) -> ReadableSpan:
    # ended last
    return exporter.get_finished_spans()[-1]


def attributes(span: ReadableSpan) -> Mapping[str, Any]:
    return span.attributes or {}


@pytest.mark.asyncio
async def test_a_request_is_one_trace_with_its_stages(
    state: State, tracer: Tracer, exporter: InMemorySpanExporter
) -> None:
    node = FakeTokenSource(f"42{END}", timings=TIMINGS, cached_tokens=3)
    async with an_edge(state, node, tracer=tracer) as edge:
        response = await edge.run(stream=True, prompt_cache_key="ses_1")

    names = [span.name for span in exporter.get_finished_spans()]
    assert names == [
        *("tokenize", "admit", "route", "queue", "prefill", "decode"),
        "chat @cf/moonshotai/kimi-k2.6",
    ]
    root = the_root(exporter)
    assert {span.context.trace_id for span in exporter.get_finished_spans()} == {
        root.context.trace_id
    }
    seen = attributes(root)
    assert seen["gen_ai.request.model"] == "kimi-k2.6"
    assert seen["gen_ai.response.model"] == "@cf/moonshotai/kimi-k2.6"
    # what stands for the session, never the session
    assert seen["gen_ai.conversation.id"] == "a21288b39788aba4"
    assert "ses_1" not in str([attributes(span) for span in exporter.get_finished_spans()])
    assert seen["gen_ai.response.finish_reasons"] == ("stop",)
    assert seen["gen_ai.response.id"] == f"chatcmpl-{response.headers['cf-ai-req-id']}"
    assert seen["gen_ai.usage.output_tokens"] == 3
    assert seen["gen_ai.usage.cache_read.input_tokens"] == 3
    assert seen["http.response.status_code"] == 200
    assert seen["tenantry.tenant"] == "dev"
    assert "error.type" not in seen


@pytest.mark.asyncio
async def test_a_refused_request_has_a_span_too(
    state: State, tracer: Tracer, exporter: InMemorySpanExporter
) -> None:
    async with an_edge(state, FakeTokenSource(END), tracer=tracer) as edge:
        await edge.run(max_tokens=0)

    root = the_root(exporter)
    assert root.name == "POST /client/v4/accounts/{account}/ai/run/{model:path}"
    assert root.status.status_code is StatusCode.UNSET
    assert attributes(root)["error.type"] == "InvalidInput"
    assert attributes(root)["http.response.status_code"] == 400


@pytest.mark.asyncio
async def test_a_broken_answer_keeps_the_usage_of_what_was_made(
    state: State, tracer: Tracer, exporter: InMemorySpanExporter
) -> None:
    node = FakeTokenSource("ab", GenerationFailed("lost"))
    async with an_edge(state, node, tracer=tracer) as edge:
        await edge.run(stream=True)

    root = the_root(exporter)
    assert attributes(root)["error.type"] == "GenerationFailed"
    assert attributes(root)["gen_ai.usage.output_tokens"] == 2
    assert attributes(root)["http.response.status_code"] == 200


@pytest.mark.asyncio
async def test_a_client_that_left_is_told_apart_from_errors(
    state: State, tracer: Tracer, exporter: InMemorySpanExporter
) -> None:
    node = FakeTokenSource("a", anyio.Event())
    async with an_edge(state, node, tracer=tracer) as edge:
        async with anyio.create_task_group() as tasks:
            call = AsgiCall(edge=edge, body=a_body(stream=True))
            tasks.start_soon(call)
            await call.has_sent.wait()
            call.leaves.set()

    root = the_root(exporter)
    assert attributes(root)["error.type"] == "ClientGone"
    assert attributes(root)["gen_ai.usage.output_tokens"] == 1


@pytest.mark.asyncio
async def test_the_callers_trace_goes_on(
    state: State, tracer: Tracer, exporter: InMemorySpanExporter
) -> None:
    trace_id = "0af7651916cd43dd8448eb211c80319c"
    async with an_edge(state, FakeTokenSource(END), tracer=tracer) as edge:
        async with edge.client() as client:
            headers = {"traceparent": f"00-{trace_id}-b7ad6b7169203331-01"}
            await client.post(RUN, content=a_body(), headers=headers)

    assert the_root(exporter).context.trace_id == int(trace_id, 16)


@pytest.mark.asyncio
async def test_nodes_are_told_the_requests_span(
    state: State, tracer: Tracer, exporter: InMemorySpanExporter
) -> None:
    node = FakeTokenSource(f"42{END}", timings=TIMINGS)
    async with an_edge(state, node, tracer=tracer) as edge:
        await edge.run()
    async with an_edge(state, node) as untraced:
        await untraced.run()

    context = the_root(exporter).context
    told, nothing = (submit.traceparent for submit in node.submits)
    assert told.split("-")[1:3] == [f"{context.trace_id:032x}", f"{context.span_id:016x}"]
    assert nothing == ""


@pytest.mark.asyncio
async def test_several_answers_are_told_apart(
    state: State, tracer: Tracer, exporter: InMemorySpanExporter
) -> None:
    node = FakeTokenSource(f"42{END}", timings=TIMINGS)
    async with an_edge(state, node, tracer=tracer) as edge:
        await edge.run(n=3)

    decodes = [span for span in exporter.get_finished_spans() if span.name == "decode"]
    assert [attributes(span)["tenantry.choice"] for span in decodes] == [0, 1, 2]
