"""What an answer looks like to clients of OpenAI's responses API."""

from __future__ import annotations

from typing import Any

import pytest

from support.dialects import CREATED_S, a_printer, finish, read, records, stream, whole
from tenantry_runtime.core import (
    ChosenLogprob,
    ContentDelta,
    Event,
    FinishReason,
    LogprobsDelta,
    ReasoningDelta,
    TokenLogprob,
    ToolCallArguments,
    ToolCallStart,
)
from tenantry_runtime.errors import GenerationFailed

ROUTE = "responses"

SAID: list[Event] = [
    ReasoningDelta("h"),
    ReasoningDelta("m"),
    ContentDelta("wa"),
    ContentDelta("it"),
    ToolCallStart(0, "functions.f:0", "f"),
    ToolCallArguments(0, '{"a"'),
    ToolCallArguments(0, ": 1}"),
    ToolCallStart(1, "functions.g:1", "g"),
    ToolCallArguments(1, "{}"),
    finish(FinishReason.TOOL_CALLS),
]
ITEMS = [
    {
        "id": "rs_1_0",
        "type": "reasoning",
        "status": "completed",
        "summary": [],
        "content": [{"type": "reasoning_text", "text": "hm"}],
    },
    {
        "id": "msg_1_1",
        "type": "message",
        "status": "completed",
        "role": "assistant",
        "content": [{"type": "output_text", "text": "wait", "annotations": [], "logprobs": []}],
    },
    {
        "id": "fc_1_2",
        "type": "function_call",
        "status": "completed",
        "call_id": "functions.f:0",
        "name": "f",
        "arguments": '{"a": 1}',
    },
    {
        "id": "fc_1_3",
        "type": "function_call",
        "status": "completed",
        "call_id": "functions.g:1",
        "name": "g",
        "arguments": "{}",
    },
]


def test_a_whole_answer_is_a_response_object() -> None:
    answer = whole(ROUTE, SAID, max_output_tokens=100, reasoning={"effort": "high"})

    assert answer == {
        "id": "resp_1",
        "object": "response",
        "created_at": CREATED_S,
        "status": "completed",
        "background": False,
        "error": None,
        "incomplete_details": None,
        "instructions": None,
        "max_output_tokens": 100,
        "model": "@cf/moonshotai/kimi-k2.6",
        "output": ITEMS,
        "parallel_tool_calls": True,
        "previous_response_id": None,
        "reasoning": {"effort": "high", "summary": None},
        "store": False,
        "temperature": 0.6,
        "text": {"format": {"type": "text"}},
        "tool_choice": "auto",
        "tools": [],
        "top_logprobs": 0,
        "top_p": 0.95,
        "truncation": "disabled",
        "usage": {
            "input_tokens": 10,
            "input_tokens_details": {"cached_tokens": 3},
            "output_tokens": 5,
            "output_tokens_details": {"reasoning_tokens": 2},
            "total_tokens": 15,
        },
        "metadata": {},
    }


def test_what_was_asked_is_repeated() -> None:
    schema = {"type": "object"}
    answer = whole(
        ROUTE,
        [finish()],
        tools=[{"type": "function", "name": "f", "parameters": schema}],
        tool_choice={"type": "function", "name": "f"},
        text={"format": {"type": "json_schema", "name": "x", "schema": schema}},
    )

    assert answer["tool_choice"] == {"type": "function", "name": "f"}
    assert answer["tools"] == [
        {"type": "function", "name": "f", "description": None, "parameters": schema, "strict": True}
    ]
    assert answer["text"]["format"] == {
        "type": "json_schema",
        "name": "x",
        "schema": schema,
        "strict": True,
    }


def test_an_answer_that_is_cut_off_is_incomplete() -> None:
    answer = whole(ROUTE, [ContentDelta("4"), finish(FinishReason.LENGTH)])

    assert answer["status"] == answer["output"][0]["status"] == "incomplete"
    assert answer["incomplete_details"] == {"reason": "max_output_tokens"}


@pytest.mark.parametrize("reason", list(FinishReason))
def test_a_stream_ends_with_the_whole_answer(reason: FinishReason) -> None:
    events = [*SAID[:-1], finish(reason)]
    *_, last = stream(ROUTE, events)

    answer = whole(ROUTE, events)
    assert last["type"] == f"response.{answer['status']}"
    assert last["response"] == answer


def test_the_events_of_a_stream_are_numbered_and_in_openais_order() -> None:
    read_events = stream(ROUTE, SAID)

    assert [event["sequence_number"] for event in read_events] == [*range(len(read_events))]
    assert [event["type"].removeprefix("response.") for event in read_events] == [
        "created",
        "in_progress",
        "output_item.added",
        "content_part.added",
        "reasoning_text.delta",
        "reasoning_text.delta",
        "reasoning_text.done",
        "content_part.done",
        "output_item.done",
        "output_item.added",
        "content_part.added",
        "output_text.delta",
        "output_text.delta",
        "output_text.done",
        "content_part.done",
        "output_item.done",
        "output_item.added",
        "function_call_arguments.delta",
        "function_call_arguments.delta",
        "function_call_arguments.done",
        "output_item.done",
        "output_item.added",
        "function_call_arguments.delta",
        "function_call_arguments.done",
        "output_item.done",
        "completed",
    ]
    created, in_progress, *_ = read_events
    assert created["response"]["status"] == in_progress["response"]["status"] == "in_progress"
    assert created["response"]["output"] == []


def test_the_deltas_of_a_stream_add_up_to_its_items() -> None:
    texts = ["" for _ in ITEMS]
    done: list[Any] = [None for _ in ITEMS]
    for event in stream(ROUTE, SAID):
        if event["type"].endswith(".delta"):
            assert event["item_id"] == ITEMS[event["output_index"]]["id"]
            texts[event["output_index"]] += event["delta"]
        elif event["type"] == "response.output_item.done":
            done[event["output_index"]] = event["item"]

    assert texts == ["hm", "wait", '{"a": 1}', "{}"]
    assert done == ITEMS


def test_an_item_begins_with_nothing_in_it() -> None:
    added = [event["item"] for event in stream(ROUTE, SAID) if event["type"].endswith("item.added")]

    assert [item["status"] for item in added] == ["in_progress"] * 4
    assert [item.get("content", item.get("arguments")) for item in added] == [[], [], "", ""]


def test_each_answer_has_items_of_its_own() -> None:
    assert whole(ROUTE, SAID)["output"] == whole(ROUTE, SAID)["output"]
    assert whole(ROUTE, [finish()])["output"] == []


LIKELY: list[Event] = [
    ReasoningDelta("h"),
    LogprobsDelta((ChosenLogprob(TokenLogprob(ord("h"), -1.0)),)),
    ContentDelta("a"),
    LogprobsDelta((ChosenLogprob(TokenLogprob(ord("a"), -0.5), (TokenLogprob(98, -2.0),)),)),
    finish(),
]


def test_log_probabilities_are_those_of_the_text() -> None:
    expected = [
        {
            "token": "a",
            "logprob": -0.5,
            "bytes": [97],
            "top_logprobs": [{"token": "b", "logprob": -2.0, "bytes": [98]}],
        }
    ]
    answer = whole(ROUTE, LIKELY, top_logprobs=1)
    streamed = stream(ROUTE, LIKELY, top_logprobs=1)

    assert answer["output"][1]["content"][0]["logprobs"] == expected
    told = [
        each
        for event in streamed
        if event["type"] == "response.output_text.delta"
        for each in event["logprobs"]
    ]
    assert told == expected
    assert streamed[-1]["response"] == answer


def test_log_probabilities_of_text_that_is_held_back_are_told_with_it() -> None:
    early = LogprobsDelta((ChosenLogprob(TokenLogprob(ord("a"), -0.5)),))
    late = LogprobsDelta((ChosenLogprob(TokenLogprob(ord("b"), -1.5)),))
    events: list[Event] = [early, ContentDelta("ab"), late, finish()]

    answer = whole(ROUTE, events, top_logprobs=1)
    streamed = stream(ROUTE, events, top_logprobs=1)

    told = answer["output"][0]["content"][0]["logprobs"]
    assert [each["token"] for each in told] == ["a", "b"]
    deltas = [event for event in streamed if event["type"] == "response.output_text.delta"]
    assert [each for event in deltas for each in event["logprobs"]] == told


def test_a_broken_stream_ends_with_an_error_and_a_failed_answer() -> None:
    printer = a_printer(ROUTE, stream=True)
    printed = printer.opening() + printer.event(ContentDelta("4"))
    *_, error, failed = records(printed + printer.broken(GenerationFailed("out of luck")))

    message = "generation failed: out of luck"
    assert (error["type"], error["code"], error["message"]) == ("error", "internal_error", message)
    assert error["error"]["message"] == message
    assert error["errors"] == [{"code": 3043, "message": message}]
    assert failed["type"] == "response.failed"
    assert failed["response"]["status"] == "failed"
    assert failed["response"]["error"] == {"code": "server_error", "message": message}
    assert failed["sequence_number"] == error["sequence_number"] + 1


def test_an_answer_may_come_back_as_input() -> None:
    answer = whole(ROUTE, SAID)
    results = [
        {"type": "function_call_output", "call_id": item["call_id"], "output": "42"}
        for item in answer["output"]
        if item["type"] == "function_call"
    ]

    question = [{"role": "user", "content": "6*7"}]
    request = read(ROUTE, input=[*question, *answer["output"], *results])

    assistant = request.messages[1]
    assert (assistant.reasoning, assistant.content) == ("hm", "wait")
    assert [call.id for call in assistant.tool_calls] == ["functions.f:0", "functions.g:1"]
