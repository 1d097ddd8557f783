from __future__ import annotations

import json
from typing import Any

import pytest

from support.text import (
    GLM_NANO,
    WEATHER,
    a_text_model,
    a_tool,
    answer_to,
    ids_of,
)
from tenantry_runtime.core import (
    ContentDelta,
    FinishReason,
    ReasoningDelta,
    ToolCallArguments,
    ToolCallStart,
)
from tenantry_runtime.text import OutputState, TextModel


def pair(key: str, value: str) -> str:
    return f"<arg_key>{key}</arg_key><arg_value>{value}</arg_value>"


def call(name: str, *pairs: str) -> str:
    return f"<tool_call>{name}{''.join(pairs)}</tool_call>"


def test_an_answer_with_thinking_text_and_two_calls() -> None:
    scripted = (
        "need both</think>Looking.\n"
        + call("get_weather", pair("city", "Paris"), pair("days", "2"))
        + call("get_weather", pair("city", "Rome"))
        + "<|observation|>"
    )
    glm = a_text_model(GLM_NANO)
    answer = answer_to(glm, scripted, initial=OutputState.REASONING, tools=[WEATHER])
    assert answer.events == [
        ReasoningDelta("need both"),
        ContentDelta("Looking.\n"),
        ToolCallStart(0, "call_0", "get_weather"),
        ToolCallArguments(0, '{"city": "Paris", "days": 2}'),
        ToolCallStart(1, "call_1", "get_weather"),
        ToolCallArguments(1, '{"city": "Rome"}'),
    ]
    assert answer.num_tool_calls == 2


def test_a_call_inside_thinking_ends_the_thinking(glm: TextModel) -> None:
    answer = answer_to(glm, "let me look" + call("f"), initial=OutputState.REASONING)
    assert answer.reasoning == "let me look"
    assert [start.name for start in answer.starts] == ["f"]


@pytest.mark.parametrize("scripted", ["<tool_call>f</tool_call>", "<tool_call>\nf\n</tool_call>"])
def test_a_call_without_arguments_gets_an_empty_object(glm: TextModel, scripted: str) -> None:
    answer = answer_to(glm, scripted)
    assert (answer.starts[0].name, answer.arguments(0)) == ("f", "{}")
    assert answer.num_tool_calls == 1


def test_strings_are_streamed_as_json_text(glm: TextModel) -> None:
    machine = glm.machine(OutputState.CONTENT, [WEATHER])
    assert machine.feed(ids_of(glm, "<tool_call>get_weather<arg_key>city</arg_key>"))[1:] == []
    assert machine.feed(ids_of(glm, "<arg_value>")) == [ToolCallArguments(0, '{"city": "')]
    for said, shown in (("Par", "Par"), ('"', '\\"'), ("\n", "\\n"), ("é\\", "é\\\\")):
        assert machine.feed(glm.tokenizer.encode(said)) == [ToolCallArguments(0, shown)]
    assert machine.feed(ids_of(glm, "</arg_value></tool_call>")) == [ToolCallArguments(0, '"}')]


def test_other_values_are_held_until_they_are_whole(glm: TextModel) -> None:
    machine = glm.machine(OutputState.CONTENT, [WEATHER])
    opening = "<tool_call>get_weather<arg_key>days</arg_key><arg_value>"
    assert machine.feed(ids_of(glm, opening))[-1] == ToolCallArguments(0, '{"days": ')
    assert machine.feed(glm.tokenizer.encode("12")) == []
    assert machine.feed(ids_of(glm, "</arg_value>")) == [ToolCallArguments(0, "12")]


def test_a_string_that_could_be_null_is_streamed_once_it_is_not(glm: TextModel) -> None:
    tools = [a_tool("f", x={"type": ["string", "null"]})]
    machine = glm.machine(OutputState.CONTENT, tools)
    machine.feed(ids_of(glm, "<tool_call>f<arg_key>x</arg_key><arg_value>"))
    assert machine.feed(glm.tokenizer.encode("nu")) == []
    assert machine.feed(glm.tokenizer.encode("m")) == [ToolCallArguments(0, '"num')]
    assert machine.feed(glm.tokenizer.encode("ber")) == [ToolCallArguments(0, "ber")]


STRING_OR_NULL = {"anyOf": [{"type": "string"}, {"type": "null"}]}


@pytest.mark.parametrize(
    ("schema", "raw", "value"),
    [
        ({"type": "string"}, "5", "5"),
        ({"type": "string"}, "null", "null"),
        ({"type": "string"}, ' {"a": 1}\n', ' {"a": 1}\n'),
        ({"type": "string"}, "", ""),
        ({"type": "integer"}, "5", 5),
        ({"type": "integer"}, " 5\n", 5),
        ({"type": "number"}, "-1.5e3", -1500.0),
        ({"type": "number"}, "5", 5),
        ({"type": "boolean"}, "true", True),
        ({"type": "boolean"}, "True", "True"),
        ({"type": "null"}, "null", None),
        ({"type": "array", "items": {"type": "integer"}}, "[1, 2]", [1, 2]),
        ({"type": "array"}, "[1, 2", "[1, 2"),
        ({"type": "object"}, '{"a": {"b": "c"}}', {"a": {"b": "c"}}),
        ({"type": "integer"}, "five", "five"),
        ({"type": "integer"}, "", ""),
        ({"type": "number"}, "NaN", "NaN"),
        # beyond a double, and half a character: what no reader takes
        ({"type": "number"}, "1e999", "1e999"),
        ({"type": ["string", "number"]}, "1e999", "1e999"),
        ({"type": "object"}, '{"a": "\\ud800"}', '{"a": "\\ud800"}'),
        ({"type": "integer"}, '"5"', "5"),
        (STRING_OR_NULL, "null", None),
        (STRING_OR_NULL, "nul", "nul"),
        (STRING_OR_NULL, "5", "5"),
        ({"type": ["integer", "string"]}, "5", 5),
        ({"type": ["integer", "string"]}, "true", "true"),
        ({"enum": ["a", "b"]}, "5", "5"),
        ({"enum": [1, 2]}, "1", 1),
        ({"const": 7}, "7", 7),
        ({"$ref": "#/$defs/count"}, "5", 5),
        ({"$ref": "#/$defs/loop"}, "5", "5"),
        ({"$ref": "#/$defs/missing"}, "5", "5"),
        ({}, "5", "5"),
        ({"type": "uuid"}, "5", "5"),
        (True, "5", "5"),
    ],
)
def test_a_raw_value_gets_the_type_that_its_schema_says(
    glm: TextModel, schema: Any, raw: str, value: Any
) -> None:
    tool = a_tool("f", x=schema)
    tool.parameters["$defs"] = {
        "count": {"type": "integer"},
        "loop": {"$ref": "#/$defs/loop"},
    }
    answer = answer_to(glm, call("f", pair("x", raw)), tools=[tool])
    assert json.loads(answer.arguments(0)) == {"x": value}


def test_undeclared_tools_and_arguments_get_strings(glm: TextModel) -> None:
    for tools in ([], [a_tool("f", other={"type": "integer"})]):
        answer = answer_to(glm, call("f", pair("x", "5")), tools=tools)
        assert json.loads(answer.arguments(0)) == {"x": "5"}


def test_long_numbers_keep_their_digits(glm: TextModel) -> None:
    digits = "3.14159265358979323846264338327950288"
    answer = answer_to(glm, call("f", pair("x", digits)), tools=[a_tool("f", x={"type": "number"})])
    assert answer.arguments(0) == f'{{"x": {digits}}}'


@pytest.mark.parametrize(
    "scripted",
    [
        "<tool_call>f<arg_key>s</arg_key><arg_value>a</arg_value><arg_key>t</arg_key>"
        "<arg_value>b</tool_call>",
        "<tool_call>f<arg_key>s</arg_key><arg_value>a<arg_key>t</arg_key>"
        "<arg_value>b</arg_value></tool_call>",
        "<tool_call>f\n<arg_key>s<arg_value>a</arg_value>\n<arg_key>t</arg_key>\n"
        "<arg_value>b</arg_value>\n</tool_call>",
        "<tool_call>f" + pair("s", "a") + pair("t", "b"),
        "<tool_call>f" + pair("s", "a") + "<arg_value>stray</arg_value>" + pair("t", "b"),
    ],
)
def test_missing_and_stray_tags_are_forgiven(glm: TextModel, scripted: str) -> None:
    answer = answer_to(glm, scripted)
    assert json.loads(answer.arguments(0)) == {"s": "a", "t": "b"}
    assert answer.num_tool_calls == 1


@pytest.mark.parametrize(
    "scripted",
    [
        "<tool_call>f",
        "<tool_call>f<arg_key>s",
        "<tool_call>f<arg_key>s</arg_key>",
        "<tool_call>f<arg_key>s</arg_key><arg_value>a",
        "<tool_call></tool_call>",
    ],
)
@pytest.mark.parametrize("reason", [FinishReason.STOP, FinishReason.LENGTH])
def test_a_call_cut_short_does_not_count(
    glm: TextModel, scripted: str, reason: FinishReason
) -> None:
    assert answer_to(glm, scripted, reason=reason).num_tool_calls == 0


def test_a_call_without_its_closing_tag_does_not_count_after_the_limit(glm: TextModel) -> None:
    scripted = "<tool_call>f" + pair("s", "a")
    answer = answer_to(glm, scripted, reason=FinishReason.LENGTH)
    assert (answer.num_tool_calls, answer.arguments(0)) == (0, '{"s": "a"')


def test_white_space_between_calls_is_dropped_and_text_is_kept(glm: TextModel) -> None:
    scripted = "a\n" + call("f") + "\n" + call("g") + "\n\nand so on"
    answer = answer_to(glm, scripted)
    assert answer.content == "a\nand so on"
    assert [start.name for start in answer.starts] == ["f", "g"]
