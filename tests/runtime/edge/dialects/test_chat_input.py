"""Conversations: what each message becomes, and which orders are refused."""

from __future__ import annotations

from typing import Any

import pytest

from support.requests import USER, a_call, parsed
from tenantry_runtime.core import Message, ToolCall
from tenantry_runtime.errors import InvalidInput

ASSISTANT = {"role": "assistant", "content": "hello"}
CALLING = {"role": "assistant", "content": None, "tool_calls": [a_call()]}
RESULT = {"role": "tool", "tool_call_id": "call_0", "content": "1"}


def read(*messages: dict[str, Any]) -> tuple[Message, ...]:
    return parsed(messages=list(messages)).messages


def test_every_role_is_read() -> None:
    assert read(
        {"role": "system", "content": "be brief"},
        {"role": "user", "content": "hi", "name": "ann"},
        {
            "role": "assistant",
            "content": None,
            "reasoning": "let me see",
            "tool_calls": [a_call(arguments='{"a": 1}')],
        },
        RESULT,
    ) == (
        Message(role="system", content="be brief"),
        Message(role="user", content="hi", name="ann"),
        Message(
            role="assistant",
            reasoning="let me see",
            tool_calls=(ToolCall(id="call_0", name="f", arguments='{"a": 1}'),),
        ),
        Message(role="tool", content="1", tool_call_id="call_0"),
    )


def test_a_developer_is_the_system() -> None:
    [developer, _] = read({"role": "developer", "content": "be brief"}, USER)

    assert developer == Message(role="system", content="be brief")


@pytest.mark.parametrize("role", ["system", "user", "assistant"])
@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("a", "a"),
        (None, ""),
        ([], ""),
        ([{"type": "text", "text": "a"}], "a"),
        ([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}], "ab"),
    ],
    ids=["string", "null", "no part", "one part", "two parts"],
)
def test_content_of_every_role_is_a_string_parts_or_null(
    role: str, content: Any, text: str
) -> None:
    assert read({"role": role, "content": content}, USER)[0].content == text


def test_content_of_a_tool_may_be_parts_in_the_same_request_as_strings() -> None:
    result = {**RESULT, "content": [{"type": "text", "text": "42"}]}

    assert [message.content for message in read(USER, CALLING, result)] == ["hi", "", "42"]


@pytest.mark.parametrize("name", ["reasoning", "reasoning_content"])
def test_earlier_reasoning_has_two_names(name: str) -> None:
    assert read({**ASSISTANT, name: "hm"}, USER)[0].reasoning == "hm"


def test_an_answer_of_this_api_may_come_back_as_it_is() -> None:
    answer = {
        "role": "assistant",
        "content": "hello",
        "refusal": None,
        "reasoning": "hm",
        "reasoning_content": "hm",
        "annotations": [],
        "audio": None,
        "function_call": None,
        "tool_calls": [{**a_call(), "index": 0}],
    }

    [message, _] = read(answer, RESULT)
    assert (message.content, message.reasoning, len(message.tool_calls)) == ("hello", "hm", 1)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [('{"a":  1}', '{"a":  1}'), ({"a": [1, "é"]}, '{"a": [1, "é"]}'), ("", "{}"), (None, "{}")],
    ids=["text", "object", "empty", "null"],
)
def test_arguments_are_json_text_whatever_their_form(arguments: Any, text: str) -> None:
    calling = {"role": "assistant", "tool_calls": [a_call(arguments=arguments)]}

    assert read(calling, RESULT)[0].tool_calls[0].arguments == text


def test_parallel_calls_are_answered_in_any_order_or_not_at_all() -> None:
    calls = [a_call("a"), a_call("b"), a_call("c")]
    read(
        {"role": "assistant", "tool_calls": calls},
        {**RESULT, "tool_call_id": "c"},
        {"role": "system", "content": "a reminder"},
        {**RESULT, "tool_call_id": "a"},
        USER,
    )


def test_ids_may_be_used_again_in_a_later_turn() -> None:
    read(CALLING, RESULT, CALLING, RESULT)


@pytest.mark.parametrize(
    ("field", "messages"),
    [
        ("messages", []),
        ("messages[0].role", [{"role": "robot", "content": "x"}]),
        ("messages[0].role", [{"content": "x"}]),
        ("messages[0].role", [{"role": 1, "content": "x"}]),
        ("messages[0].role", [{"role": "function", "name": "f", "content": "x"}]),
        ("messages[0]", ["hi"]),
        ("messages[0].content", [{"role": "user"}]),
        ("messages[0].content", [{"role": "user", "content": 5}]),
        ("messages[0].content", [{"role": "user", "content": {"type": "text"}}]),
        ("messages[0].content[0]", [{"role": "user", "content": ["x"]}]),
        ("messages[0].content[0].text", [{"role": "user", "content": [{"type": "text"}]}]),
        ("messages[0].content[0].type", [{"role": "user", "content": [{"type": "smell"}]}]),
        (
            "messages[0].content[1].type",
            [
                {
                    "role": "user",
                    "content": [
                        {"type": "text", "text": "look"},
                        {"type": "image_url", "image_url": {"url": "data:image/png;base64,"}},
                    ],
                }
            ],
        ),
        ("messages[0].mood", [{**USER, "mood": "good"}]),
        ("messages[0].tool_calls", [{**USER, "tool_calls": [a_call()]}]),
        ("messages[1].role", [USER, ASSISTANT]),
        ("messages[1].role", [USER, CALLING]),
        ("messages[1].tool_call_id", [USER, RESULT]),
        ("messages[1].tool_call_id", [ASSISTANT, RESULT]),
        ("messages[1].tool_call_id", [CALLING, {**RESULT, "tool_call_id": "other"}]),
        ("messages[1].tool_call_id", [CALLING, {"role": "tool", "content": "1"}]),
        ("messages[2].tool_call_id", [CALLING, RESULT, RESULT]),
        ("messages[2].tool_call_id", [CALLING, USER, RESULT]),
        ("messages[0].tool_calls[0].function.arguments", [{**CALLING, "tool_calls": [a_call(arguments="{")]}, RESULT]),
        ("messages[0].tool_calls[0].function.arguments", [{**CALLING, "tool_calls": [a_call(arguments="[]")]}, RESULT]),
        ("messages[0].tool_calls[0].function.arguments", [{**CALLING, "tool_calls": [a_call(arguments="[" * 10000)]}, RESULT]),
        ("messages[0].tool_calls[1].id", [{**CALLING, "tool_calls": [a_call(), a_call()]}, RESULT]),
        ("messages[0].tool_calls[0].id", [{**CALLING, "tool_calls": [a_call("")]}, RESULT]),
        ("messages[0].reasoning_content", [{**ASSISTANT, "reasoning": "a", "reasoning_content": "b"}, USER]),
        ("messages[0].refusal", [{**ASSISTANT, "refusal": "no"}, USER]),
        ("messages[0].function_call", [{**ASSISTANT, "function_call": {"name": "f"}}, USER]),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_a_message_that_is_wrong_or_out_of_place_is_named(field: str, messages: list[Any]) -> None:
    with pytest.raises(InvalidInput) as caught:
        parsed(messages=messages)

    assert caught.value.field == field


def test_an_image_is_refused_with_its_reason() -> None:
    image = {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}

    with pytest.raises(InvalidInput, match="reads text only"):
        read({"role": "user", "content": [image]})
