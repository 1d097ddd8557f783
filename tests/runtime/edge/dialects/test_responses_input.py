"""`/v1/responses`: its parameters and items, and what is refused with its name."""

from __future__ import annotations

import json
from typing import Any

import pytest

from support.dialects import RESPONSES, read
from support.requests import SEED
from tenantry_runtime.core import (
    JsonFormat,
    Message,
    RenderOptions,
    ResponseFormat,
    Sampling,
    TextFormat,
    Tool,
    ToolCall,
    ToolChoice,
)
from tenantry_runtime.errors import InvalidInput

ROUTE = "responses"
TOOL = {"type": "function", "name": "f", "parameters": {"type": "object"}, "strict": True}
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}}

USER = {"role": "user", "content": "hi"}
CALL = {"type": "function_call", "call_id": "c1", "name": "f", "arguments": '{"a": 1}'}
OUTPUT = {"type": "function_call_output", "call_id": "c1", "output": "42"}


def test_text_is_a_users_message() -> None:
    request = read(ROUTE)

    assert request.messages == (Message(role="user", content="hi"),)
    assert request.sampling == Sampling(seed=SEED, temperature=0.6, top_p=0.95)
    assert request.options == RenderOptions()


def test_instructions_come_first() -> None:
    messages = read(ROUTE, instructions="be brief").messages

    assert messages == (
        Message(role="system", content="be brief"),
        Message(role="user", content="hi"),
    )


@pytest.mark.parametrize(
    "content",
    [
        "hi",
        [{"type": "input_text", "text": "h"}, {"type": "input_text", "text": "i"}],
        [{"type": "text", "text": "hi"}],
        [{"type": "output_text", "text": "hi", "annotations": [], "logprobs": []}],
    ],
    ids=["text", "parts", "chat part", "output part"],
)
@pytest.mark.parametrize("role", ["system", "developer", "user"])
def test_messages_come_as_text_or_parts(role: str, content: Any) -> None:
    item = {
        "type": "message",
        "role": role,
        "content": content,
        "id": "msg_1",
        "status": "completed",
    }
    [message] = read(ROUTE, input=[item]).messages

    assert message == Message(role="user" if role == "user" else "system", content="hi")


def test_items_of_one_turn_of_the_assistant_are_one_message() -> None:
    items = [
        USER,
        {
            "type": "reasoning",
            "id": "rs_1",
            "summary": [],
            "content": [{"type": "reasoning_text", "text": "hm"}],
            "status": "completed",
        },
        {
            "type": "message",
            "role": "assistant",
            "id": "msg_1",
            "status": "completed",
            "content": [{"type": "output_text", "text": "wait", "annotations": []}],
        },
        CALL,
        {**CALL, "call_id": "c2", "id": "fc_2", "status": "completed"},
        OUTPUT,
        {**OUTPUT, "call_id": "c2", "output": [{"type": "input_text", "text": "43"}]},
    ]

    assert read(ROUTE, input=items).messages == (
        Message(role="user", content="hi"),
        Message(
            role="assistant",
            content="wait",
            reasoning="hm",
            tool_calls=(
                ToolCall(id="c1", name="f", arguments='{"a": 1}'),
                ToolCall(id="c2", name="f", arguments='{"a": 1}'),
            ),
        ),
        Message(role="tool", content="42", tool_call_id="c1"),
        Message(role="tool", content="43", tool_call_id="c2"),
    )


def test_tools_are_flat() -> None:
    request = read(
        ROUTE,
        tools=[TOOL],
        tool_choice={"type": "function", "name": "f"},
        parallel_tool_calls=False,
    )

    assert request.tools == (Tool(name="f", parameters={"type": "object"}),)
    assert request.tool_choice == ToolChoice(mode="required", name="f")
    assert not request.parallel_tool_calls


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ({"type": "text"}, TextFormat()),
        ({"type": "json_object"}, JsonFormat()),
        (
            {"type": "json_schema", "name": "x", "schema": SCHEMA, "strict": True},
            JsonFormat(schema=SCHEMA, name="x"),
        ),
    ],
    ids=["text", "object", "schema"],
)
def test_the_form_of_the_text_is_asked_for(asked: Any, expected: ResponseFormat) -> None:
    assert read(ROUTE, text={"format": asked}).response_format == expected


def test_parameters_arrive() -> None:
    request = read(
        ROUTE,
        temperature=0,
        top_p=0.5,
        max_output_tokens=5,
        reasoning={"effort": "low"},
        stream=True,
        top_logprobs=2,
    )

    assert request.sampling == Sampling(
        seed=SEED, temperature=0, top_p=0.5, max_tokens=5, top_logprobs=2
    )
    assert (request.stream, request.options.reasoning_effort) == (True, "low")


def test_log_probabilities_may_be_asked_for_without_alternatives() -> None:
    asked = read(ROUTE, include=["message.output_text.logprobs"])

    assert asked.sampling.top_logprobs == 0


@pytest.mark.parametrize(
    "fields",
    [
        {"store": True},
        {"store": False},
        {"metadata": {"a": "b"}},
        {"user": "u"},
        {"safety_identifier": "s"},
        {"service_tier": "auto"},
        {"prompt_cache_retention": "24h"},
        {"truncation": "disabled"},
        {"background": False},
        {"previous_response_id": None},
        {"conversation": None},
        {"include": ["reasoning.encrypted_content"]},
        {"reasoning": {"summary": "auto"}},
        {"reasoning": {"effort": None}},
        {"text": {"verbosity": "medium"}},
        {"text": {}},
        {"top_logprobs": 0},
        {"tool_choice": "auto"},
        {"parallel_tool_calls": True},
        {"stream_options": {"include_obfuscation": False}},
        {"input": [USER]},
    ],
    ids=str,
)
def test_what_cannot_change_the_answer_is_accepted(fields: dict[str, Any]) -> None:
    assert read(ROUTE, **fields) == read(ROUTE)


@pytest.mark.parametrize(
    ("field", "fields"),
    [
        ("previous_response_id", {"previous_response_id": "resp_1"}),
        ("conversation", {"conversation": "conv_1"}),
        ("prompt", {"prompt": {"id": "pmpt_1"}}),
        ("max_tool_calls", {"max_tool_calls": 1}),
        ("context_management", {"context_management": []}),
        ("truncation", {"truncation": "auto"}),
        ("background", {"background": True}),
        ("background", {"background": 0}),
        ("include[0]", {"include": ["file_search_call.results"]}),
        ("text.verbosity", {"text": {"verbosity": "low"}}),
        ("text.format.type", {"text": {"format": {"type": "grammar"}}}),
        ("text.format.schema", {"text": {"format": {"type": "json_schema", "name": "x"}}}),
        ("reasoning.budget", {"reasoning": {"budget": 1}}),
        ("stream_options.include_obfuscation", {"stream_options": {"include_obfuscation": True}}),
        ("max_output_tokens", {"max_output_tokens": 0}),
        ("max_tokens", {"max_tokens": 5}),
        ("n", {"n": 1}),
        ("messages", {"messages": []}),
        ("tools[0].type", {"tools": [{"type": "web_search"}]}),
        ("tools[0].type", {"tools": [{"type": "mcp"}]}),
        ("tool_choice", {"tool_choice": "any", "tools": [TOOL]}),
        ("tool_choice", {"tool_choice": "required"}),
        ("input", {"input": ""}),
        ("input", {"input": []}),
        ("input", {"input": None}),
        ("input[0]", {"input": ["hi"]}),
        ("input[0].type", {"input": [{"type": "item_reference", "id": "msg_1"}]}),
        ("input[0].type", {"input": [{"type": 1}]}),
        ("input[0].role", {"input": [{"content": "hi"}]}),
        ("input[0].role", {"input": [{"role": "robot", "content": "hi"}]}),
        ("input[0].text", {"input": [{**USER, "text": "x"}]}),
        (
            "input[0].content[1].type",
            {"input": [{"role": "user", "content": [
                {"type": "input_text", "text": "a"}, {"type": "input_image", "image_url": "data:,"},
            ]}]},
        ),
        ("input[1].call_id", {"input": [USER, {"type": "function_call", "name": "f", "arguments": "{}"}]}),
        (
            "input[1].tool_calls[0].function.arguments",
            {"input": [USER, {**CALL, "arguments": "nonsense"}, OUTPUT]},
        ),
        ("input[1].tool_call_id", {"input": [USER, OUTPUT]}),
        ("input[1].role", {"input": [USER, {"role": "assistant", "content": "hi"}]}),
        ("input[1].summary", {"input": [USER, {"type": "reasoning", "summary": [{"type": "summary_text"}]}]}),
        ("input[1].encrypted_content", {"input": [USER, {"type": "reasoning", "encrypted_content": "x"}]}),
    ],
    ids=str,
)  # fmt: skip
def test_a_bad_parameter_is_refused_by_name(field: str, fields: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput) as caught:
        read(ROUTE, **fields)

    assert caught.value.field == field
    assert caught.value.problem


@pytest.mark.parametrize(
    ("field", "own"),
    [
        ("response_format.json_schema", "text.format.schema"),
        ("response_format", "text.format"),
        ("reasoning_effort", "reasoning.effort"),
        ("messages[0].tool_call_id", "input[0].tool_call_id"),
        ("tools[1].function.parameters", "tools[1].parameters"),
        ("tools", "tools"),
        ("temperature", "temperature"),
    ],
)
def test_an_error_from_behind_the_dialect_names_this_apis_field(field: str, own: str) -> None:
    _, body = RESPONSES.error(InvalidInput(field, "is bad"))

    assert json.loads(body)["error"]["param"] == own
