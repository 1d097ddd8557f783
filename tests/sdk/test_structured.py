"""Answers of a type: the schema that is sent, the instance that comes back, and what prevents it."""

from __future__ import annotations

import json
import re
from decimal import Decimal
from typing import Any, assert_type

import httpx
import msgspec
import pytest

import tenantry
from support.answers import a_chunk, an_event_stream
from tenantry import (
    AI,
    AsyncAI,
    AsyncParsedStream,
    Completion,
    MockTransport,
    ParsedStream,
)


class Booking(msgspec.Struct):
    """A table."""

    city: str
    guests: int


class Tree(msgspec.Struct):
    label: str
    children: list[Tree] = []


PROMPT = {"prompt": "A table in Rome for 4."}
ROME = '{"city": "Rome", "guests": 4}'
SCHEMA = {
    "description": "A table.",
    "type": "object",
    "properties": {"city": {"type": "string"}, "guests": {"type": "integer"}},
    "required": ["city", "guests"],
    "additionalProperties": False,
}
FORMAT = {
    "type": "json_schema",
    "json_schema": {"name": "Booking", "schema": SCHEMA, "strict": True},
}


class Recorder:
    def __init__(self, text: str = ROME, finish_reason: str = "stop") -> None:
        self.body: Any = None
        self._text = text
        self._finish_reason = finish_reason

    def __call__(self, request: httpx.Request) -> Any:
        self.body = json.loads(request.content)
        if self.body["stream"]:
            half = len(self._text) // 2
            pieces = [self._text[:half], self._text[half:]]
            chunks = [a_chunk(content=piece) for piece in pieces]
            return [*chunks, a_chunk(self._finish_reason)]
        message = {"role": "assistant", "content": self._text}
        return {"choices": [{"message": message, "finish_reason": self._finish_reason}]}


def test_an_answer_is_an_instance_of_the_type() -> None:
    recorder = Recorder()
    with AI(transport=MockTransport(recorder)) as ai:
        booking = ai.run("kimi-k2.6", PROMPT, response_format=Booking)
    assert_type(booking, Booking)
    assert booking == Booking("Rome", 4)
    assert recorder.body["response_format"] == FORMAT


@pytest.mark.asyncio
async def test_an_asynchronous_answer_is_too() -> None:
    async with AsyncAI(transport=MockTransport(Recorder())) as ai:
        booking = await ai.run("kimi-k2.6", PROMPT, response_format=Booking)
    assert_type(booking, Booking)
    assert booking == Booking("Rome", 4)


def test_a_stream_has_the_instance_at_its_end() -> None:
    with (
        AI(transport=MockTransport(Recorder())) as ai,
        ai.run("kimi-k2.6", PROMPT, response_format=Booking, stream=True) as stream,
    ):
        assert_type(stream, ParsedStream[Booking])
        assert next(stream).text == ROME[: len(ROME) // 2]
        assert stream.parsed() == Booking("Rome", 4)
        assert stream.parsed() == Booking("Rome", 4)


@pytest.mark.asyncio
async def test_an_asynchronous_stream_has_too() -> None:
    async with AsyncAI(transport=MockTransport(Recorder())) as ai:
        stream = await ai.run("kimi-k2.6", PROMPT, response_format=Booking, stream=True)
        assert_type(stream, AsyncParsedStream[Booking])
        async with stream:
            assert await stream.parsed() == Booking("Rome", 4)


def test_a_type_among_the_inputs_is_sent_and_the_completion_can_be_parsed() -> None:
    recorder = Recorder()
    with AI(transport=MockTransport(recorder)) as ai:
        answer = ai.run("kimi-k2.6", {**PROMPT, "response_format": Booking})
    assert_type(answer, Completion)
    assert answer.parse(Booking) == Booking("Rome", 4)
    assert recorder.body["response_format"] == FORMAT


def test_a_format_given_twice_is_refused() -> None:
    with (
        AI(transport=MockTransport(Recorder())) as ai,
        pytest.raises(ValueError, match="twice"),
    ):
        ai.run("kimi-k2.6", {**PROMPT, "response_format": FORMAT}, response_format=Booking)


@pytest.mark.parametrize("stream", [False, True])
def test_an_answer_that_was_cut_is_an_error_with_its_text(stream: bool) -> None:
    cut = ROME[:-3]
    with (
        AI(transport=MockTransport(Recorder(cut, "length"))) as ai,
        pytest.raises(tenantry.AnswerCut, match="max_completion_tokens") as caught,
    ):
        if stream:
            ai.run("kimi-k2.6", PROMPT, response_format=Booking, stream=True).parsed()
        else:
            ai.run("kimi-k2.6", PROMPT, response_format=Booking)
    assert caught.value.text == cut


@pytest.mark.parametrize("text", ['{"city": "Rome"}', "I do not know.", ""])
def test_an_answer_of_another_type_is_an_error(text: str) -> None:
    with (
        AI(transport=MockTransport(Recorder(text))) as ai,
        pytest.raises(tenantry.InvalidResponse, match="is no Booking"),
    ):
        ai.run("kimi-k2.6", PROMPT, response_format=Booking)


def test_a_type_that_contains_itself_keeps_its_definition() -> None:
    recorder = Recorder('{"label": "a", "children": [{"label": "b"}]}')
    with AI(transport=MockTransport(recorder)) as ai:
        tree = ai.run("kimi-k2.6", PROMPT, response_format=Tree)
    assert tree == Tree("a", [Tree("b")])
    schema = recorder.body["response_format"]["json_schema"]["schema"]
    assert schema["properties"]["children"]["items"] == {"$ref": "#/$defs/Tree"}
    assert schema["$defs"]["Tree"]["properties"] == schema["properties"]


def test_a_stream_of_tool_calls_is_whole_at_its_end() -> None:
    def call(**fields: Any) -> dict[str, Any]:
        return {"index": fields.pop("index", 0), **fields}

    chunks = [
        a_chunk(role="assistant", reasoning="hm"),
        a_chunk(tool_calls=[call(id="a", type="function", function={"name": "add"})]),
        a_chunk(tool_calls=[call(function={"arguments": '{"a": '})]),
        a_chunk(tool_calls=[call(function={"arguments": "1}"})]),
        a_chunk(tool_calls=[call(index=1, id="b", function={"name": "sub", "arguments": "{}"})]),
        a_chunk("tool_calls"),
    ]
    with (
        AI(transport=MockTransport(lambda _: chunks)) as ai,
        ai.run("kimi-k2.6", PROMPT, stream=True) as stream,
    ):
        answer = stream.completion()
    assert [
        (each.id, each.function.name, each.function.arguments) for each in answer.tool_calls
    ] == [("a", "add", '{"a": 1}'), ("b", "sub", "{}")]
    assert (answer.finish_reason, answer.reasoning, answer.text) == ("tool_calls", "hm", "")
    assert answer.message.role == "assistant"


def test_choices_of_a_stream_are_kept_apart() -> None:
    def chunk(index: int, text: str) -> dict[str, Any]:
        entry = {"token": text, "logprob": -0.5, "bytes": [52], "top_logprobs": []}
        choice = {"index": index, "delta": {"content": text}, "logprobs": {"content": [entry]}}
        return {**a_chunk(), "choices": [choice]}

    chunks = [chunk(1, "a"), chunk(0, "4"), chunk(1, "b"), chunk(0, "2")]
    with (
        AI(transport=MockTransport(lambda _: chunks)) as ai,
        ai.run("kimi-k2.6", PROMPT, stream=True) as stream,
    ):
        choices = stream.completion().choices
    assert [choice.message.content for choice in choices] == ["42", "ab"]
    assert choices[0].logprobs is not None
    assert [entry.token for entry in choices[0].logprobs.content] == ["4", "2"]
    assert choices[0]["logprobs"]["content"][0]["logprob"] == -0.5


def test_a_stream_that_was_left_has_no_whole_answer() -> None:
    four = json.dumps(a_chunk(content="4"))
    with AI(transport=MockTransport(lambda _: an_event_stream(four))) as ai:
        stream = ai.run("kimi-k2.6", PROMPT, stream=True)
        next(stream)
        stream.close()
        with pytest.raises(tenantry.StreamTruncated, match="closed before"):
            stream.completion()


def test_exact_numbers_and_bytes_are_asked_for_as_text_of_their_form() -> None:
    class Bill(msgspec.Struct):
        total: Decimal
        scan: bytes

    recorder = Recorder('{"total": "12.50", "scan": "aGk="}')
    with AI(transport=MockTransport(recorder)) as ai:
        bill = ai.run("kimi-k2.6", PROMPT, response_format=Bill)
    assert bill == Bill(total=Decimal("12.50"), scan=b"hi")
    fields = recorder.body["response_format"]["json_schema"]["schema"]["properties"]
    for name, good, bad in (
        ("total", ("0", "-12.50"), ("1e5", "NaN", "", "1,5")),
        ("scan", ("", "aGk=", "aGkh"), ("a", "aGk", "a-_=")),
    ):
        assert fields[name].keys() == {"type", "pattern"}
        pattern = re.compile(fields[name]["pattern"])
        assert all(pattern.search(text) for text in good)
        assert not any(pattern.search(text) for text in bad)
