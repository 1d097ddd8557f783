"""Answers in the form of older models of Workers AI."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from support.dialects import USAGE, finish, records
from support.edges import State, an_edge
from support.plain_text import ARGUMENTS, CALL, CALL_END, END, KIMI, an_offer
from support.requests import a_body, a_target
from support.token_source import FakeTokenSource
from tenantry_runtime.core import (
    ContentDelta,
    Event,
    ReasoningDelta,
    ToolCallArguments,
    ToolCallStart,
)
from tenantry_runtime.edge.dialects.dialect import Printer
from tenantry_runtime.edge.dialects.workers_ai import WorkersAI
from tenantry_runtime.errors import GenerationFailed

OLDER = msgspec.structs.replace(KIMI, result_shape="response")
PRINTED_USAGE = {
    "prompt_tokens": 10,
    "completion_tokens": 5,
    "total_tokens": 15,
    "prompt_tokens_details": {"cached_tokens": 3},
    "completion_tokens_details": {"reasoning_tokens": 2},
}
SAID: list[Event] = [
    ReasoningDelta("hm"),
    ContentDelta("wa"),
    ContentDelta("it"),
    ToolCallStart(0, "c0", "f"),
    ToolCallArguments(0, '{"a"'),
    ToolCallArguments(0, ": 1}"),
    ToolCallStart(1, "c1", "g"),
    ToolCallArguments(1, "{}"),
    finish(),
]


def a_printer(**fields: Any) -> Printer:
    dialect, target = WorkersAI(), a_target(OLDER)
    request = dialect.parse(a_body(**fields), target, session=None)
    return dialect.printer(request, target, response_id="x", created_s=0)


def result(*events: Event, **fields: Any) -> Any:
    return json.loads(a_printer(**fields).result([events]))["result"]


def test_text_and_calls_are_flat() -> None:
    assert result(*SAID) == {
        "response": "wait",
        "reasoning": "hm",
        "tool_calls": [{"name": "f", "arguments": {"a": 1}}, {"name": "g", "arguments": {}}],
        "usage": PRINTED_USAGE,
    }


def test_an_answer_of_text_has_nothing_else() -> None:
    assert result(ContentDelta("42"), finish()) == {"response": "42", "usage": PRINTED_USAGE}


def test_where_json_is_asked_for_the_response_is_the_value() -> None:
    asked = {"response_format": {"type": "json_object"}}

    assert result(ContentDelta('{"a": 1}'), finish(), **asked)["response"] == {"a": 1}
    # cut off
    assert result(ContentDelta('{"a": '), finish(), **asked)["response"] == '{"a": '
    assert result(ContentDelta('{"a": 1}'), finish())["response"] == '{"a": 1}'


def test_a_stream_has_text_as_it_comes_whole_calls_and_usage_last() -> None:
    printer = a_printer(stream=True)
    printed = [printer.opening(), *map(printer.event, SAID)]

    assert records(b"".join(printed)) == [
        {"response": "", "reasoning": "hm"},
        {"response": "wa"},
        {"response": "it"},
        {"response": "", "tool_calls": [{"name": "f", "arguments": {"a": 1}}]},
        {"response": "", "tool_calls": [{"name": "g", "arguments": {}}]},
        {"response": "", "usage": PRINTED_USAGE},
        "[DONE]",
    ]


def test_usage_is_left_out_on_request() -> None:
    printer = a_printer(stream=True, stream_options={"include_usage": False})

    assert records(printer.event(finish())) == ["[DONE]"]


def test_a_broken_stream_ends_with_an_error() -> None:
    [error] = records(a_printer(stream=True).broken(GenerationFailed("out of luck")))

    assert error["errors"] == [{"code": 3043, "message": "generation failed: out of luck"}]


@pytest.mark.asyncio
async def test_the_catalog_says_which_form_a_model_answers_in(state: State) -> None:
    script = f"42{CALL}f{ARGUMENTS}{{}}{CALL_END}{END}"
    offers = [an_offer(OLDER)]
    async with an_edge(state, FakeTokenSource(script), offers=offers) as edge:
        answer = (await edge.run(tools=[{"name": "f"}])).json()["result"]

    assert (answer["response"], answer["tool_calls"]) == ("42", [{"name": "f", "arguments": {}}])
    assert answer["usage"]["total_tokens"] > USAGE.reasoning_tokens
