"""Streams: chunks as they come, and one of two ends."""

from __future__ import annotations

import json

import httpx
import pytest

import tenantry
from support.answers import a_chunk, a_usage_chunk, an_event_stream
from support.callers import KINDS, Kind, a_caller
from tenantry import AI, AsyncAI, MockTransport, TenantryError

PROMPT = {"prompt": "What is 17 + 25?"}
REASONING, FORTY, TWO, STOP = (
    json.dumps(a_chunk(**delta))
    for delta in (
        {"role": "assistant", "reasoning": "hm"},
        {"content": "4"},
        {"content": "2"},
        {"finish_reason": "stop"},
    )
)
USAGE = json.dumps(a_usage_chunk())


def an_ai(*events: str) -> AI:
    return AI(transport=MockTransport(lambda _: an_event_stream(*events)))


def an_async_ai(*events: str) -> AsyncAI:
    return AsyncAI(transport=MockTransport(lambda _: an_event_stream(*events)))


def test_chunks_come_in_order_and_then_usage_is_known() -> None:
    ai = an_ai(REASONING, FORTY, TWO, STOP, USAGE, "[DONE]")
    with ai.run("kimi-k2.6", PROMPT, stream=True) as stream:
        chunks = list(stream)
    assert [chunk.text for chunk in chunks] == ["", "4", "2", "", ""]
    assert "".join(chunk.reasoning for chunk in chunks) == "hm"
    assert stream.finish_reason == "stop"
    assert stream.usage is not None
    assert stream.usage.prompt_tokens_details.cached_tokens == 3
    assert stream.request_id == "req-7"


@pytest.mark.asyncio
async def test_an_asynchronous_stream_is_the_same() -> None:
    ai = an_async_ai(REASONING, FORTY, TWO, STOP, USAGE, "[DONE]")
    async with await ai.run("kimi-k2.6", PROMPT, stream=True) as stream:
        texts = [chunk.text async for chunk in stream]
    assert texts == ["", "4", "2", "", ""]
    assert stream.finish_reason == "stop"
    assert stream.usage is not None
    assert stream.usage.total_tokens == 15
    assert stream.request_id == "req-7"


def test_nothing_after_done_is_read() -> None:
    with an_ai(FORTY, "[DONE]", TWO, "garbage").run("kimi-k2.6", PROMPT, stream=True) as stream:
        assert [chunk.text for chunk in stream] == ["4"]


def test_a_finished_stream_stays_finished() -> None:
    stream = an_ai(FORTY, "[DONE]").run("kimi-k2.6", PROMPT, stream=True)
    assert len(list(stream)) == 1
    assert list(stream) == []
    stream.close()
    stream.close()


def test_a_closed_stream_yields_nothing_more() -> None:
    stream = an_ai(FORTY, TWO, "[DONE]").run("kimi-k2.6", PROMPT, stream=True)
    assert next(stream).text == "4"
    stream.close()
    assert list(stream) == []


@pytest.mark.asyncio
async def test_a_closed_asynchronous_stream_yields_nothing_more() -> None:
    stream = await an_async_ai(FORTY, TWO, "[DONE]").run("kimi-k2.6", PROMPT, stream=True)
    assert (await anext(stream)).text == "4"
    await stream.aclose()
    await stream.aclose()
    assert [chunk async for chunk in stream] == []


ENDS: list[tuple[list[str], type[TenantryError], str]] = [
    ([], tenantry.StreamTruncated, "before the answer was whole"),
    ([FORTY, STOP, USAGE], tenantry.StreamTruncated, "before the answer was whole"),
    (
        [FORTY, '{"errors": [{"code": 3040, "message": "full"}], "success": false}'],
        tenantry.CapacityExceeded,
        "full",
    ),
    (
        [FORTY, '{"error": {"code": 5021, "message": "too long"}}'],
        tenantry.ContextExceeded,
        "too long",
    ),
    (
        [FORTY, '{"error": {"code": "internal_error", "message": "node died"}}', "[DONE]"],
        tenantry.ServerError,
        "node died",
    ),
    ([FORTY, '{"choices": [{"del'], tenantry.InvalidResponse, "not an object"),
    ([FORTY, "[1]"], tenantry.InvalidResponse, "not an object"),
]


@pytest.mark.asyncio
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("events", "expected", "words"), ENDS)
async def test_a_stream_that_is_not_whole_raises(
    kind: Kind, events: list[str], expected: type[TenantryError], words: str
) -> None:
    caller = a_caller(kind, lambda _: an_event_stream(*events))
    with pytest.raises(expected, match=words) as caught:
        await caller.stream("kimi-k2.6", PROMPT)
    assert caught.value.request_id == "req-7"
    assert caller.waits_s == []


def test_chunks_before_an_error_are_handed_out_first() -> None:
    stream = an_ai(FORTY, TWO, '{"error": {"message": "x"}}').run("m", PROMPT, stream=True)
    assert [next(stream).text, next(stream).text] == ["4", "2"]
    with pytest.raises(tenantry.ServerError):
        next(stream)
    assert list(stream) == []


def test_an_event_named_error_is_one_whatever_it_holds() -> None:
    headers = {"content-type": "text/event-stream"}
    events = b"event: error\ndata: out of memory\n\n"
    response = httpx.Response(200, headers=headers, content=events)
    ai = AI(transport=MockTransport(lambda _: response))
    with pytest.raises(tenantry.ServerError, match="out of memory"):
        list(ai.run("kimi-k2.6", PROMPT, stream=True))


def test_a_stream_that_cannot_be_decoded_is_an_invalid_response() -> None:
    headers = {"content-type": "text/event-stream", "content-encoding": "gzip"}
    response = httpx.Response(200, headers=headers, stream=httpx.ByteStream(b"no gzip"))
    ai = AI(transport=MockTransport(lambda _: response))
    with pytest.raises(tenantry.InvalidResponse, match="cannot be decoded"):
        list(ai.run("kimi-k2.6", PROMPT, stream=True))


def test_the_word_error_in_an_answer_is_no_error() -> None:
    text = 'log "error": {"message": 1}'
    ai = an_ai(json.dumps(a_chunk(content=text)), "[DONE]")
    assert [chunk.text for chunk in ai.run("kimi-k2.6", PROMPT, stream=True)] == [text]
