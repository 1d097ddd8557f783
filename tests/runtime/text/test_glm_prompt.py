from __future__ import annotations

import re

import pytest

from support.text import (
    WEATHER,
    WEATHER_TALK,
    a_call,
    assistant,
    result,
    user,
    written,
)
from tenantry_runtime.core import Message, RenderOptions, Tool
from tenantry_runtime.errors import InvalidInput
from tenantry_runtime.text import OutputState, TextModel

DEFAULT = RenderOptions()

START = "[gMASK]<sop><|system|>Reasoning Effort: Max"
# the ellipsis stands for what the published rendering leaves out
TOOLS_TURN = (
    "<|system|>\n# Tools\n\nYou may call one or more functions to assist with the user query.\n\n"
    "You are provided with function signatures within <tools></tools> XML tags:\n<tools>\n"
    '{"name": "get_weather", "description": …, "parameters": …}\n</tools>\n\n'
    "For each function call, output the function name and arguments within the following XML "
    "format:\n<tool_call>{function-name}<arg_key>{arg-key-1}</arg_key>"
    "<arg_value>{arg-value-1}</arg_value>…</tool_call>"
)
SYSTEM_AND_HI = "<|system|>Be brief.<|user|>Hi"
HELLO = "<|assistant|><think></think>Hello!"
ASK = "<|user|>Weather in Paris?"
CALL = (
    "<|assistant|><think>need tool</think><tool_call>get_weather<arg_key>city</arg_key>"
    "<arg_value>Paris</arg_value><arg_key>days</arg_key><arg_value>2</arg_value></tool_call>"
)
RESULT = '<|observation|><tool_response>{"t": 20}</tool_response>'
TO_GO = "<|assistant|><think>"


def rendered(
    model: TextModel,
    *messages: Message,
    tools: tuple[Tool, ...] = (),
    options: RenderOptions = DEFAULT,
) -> str:
    return written(model, model.render(messages, tools, options))


def test_a_conversation_with_a_tool_round_trip(glm: TextModel) -> None:
    published = START + TOOLS_TURN + SYSTEM_AND_HI + HELLO + ASK + CALL + RESULT + TO_GO
    pattern = ".*?".join(map(re.escape, published.split("…")))
    text = rendered(glm, *WEATHER_TALK, tools=(WEATHER,))
    assert re.fullmatch(pattern, text, re.DOTALL)
    assert (
        '"description": "Weather of a city", "parameters": {"type": "object", "properties": '
        '{"city": {"type": "string", "description": "City"}, "days": {"type": "integer"}}, '
        '"required": ["city"]}}\n'
    ) in text


def test_preserved_thinking_keeps_old_reasoning(glm: TextModel) -> None:
    options = RenderOptions(preserve_thinking=True)
    hello = HELLO.replace("<think>", "<think>a greeting")
    assert rendered(glm, *WEATHER_TALK, options=options) == (
        START + SYSTEM_AND_HI + hello + ASK + CALL + RESULT + TO_GO
    )


def test_clearing_is_the_default(glm: TextModel) -> None:
    options = RenderOptions(preserve_thinking=False)
    assert rendered(glm, *WEATHER_TALK, options=options) == rendered(glm, *WEATHER_TALK)


@pytest.mark.parametrize(
    "options",
    [
        RenderOptions(thinking=False),
        RenderOptions(reasoning_effort="none"),
        RenderOptions(reasoning_effort="minimal"),
        RenderOptions(thinking=False, reasoning_effort="high"),
    ],
)
def test_without_thinking_there_is_no_effort_and_the_block_is_closed(
    glm: TextModel, options: RenderOptions
) -> None:
    prompt = glm.render([user("Hi")], (), options)
    assert written(glm, prompt) == "[gMASK]<sop><|user|>Hi<|assistant|><think></think>"
    assert prompt.initial is OutputState.CONTENT


@pytest.mark.parametrize(
    ("effort", "level"),
    [
        (None, "Max"),
        ("max", "Max"),
        ("xhigh", "Max"),
        ("high", "High"),
        ("medium", "High"),
        ("low", "High"),
    ],
)
def test_efforts_become_the_two_that_the_model_knows(
    glm: TextModel, effort: str | None, level: str
) -> None:
    prompt = glm.render([user("Hi")], (), RenderOptions(reasoning_effort=effort))
    assert written(glm, prompt) == (
        f"[gMASK]<sop><|system|>Reasoning Effort: {level}<|user|>Hi<|assistant|><think>"
    )
    assert prompt.initial is OutputState.REASONING


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (RenderOptions(reasoning_effort="huge"), "'huge' is not one of none, minimal"),
        (RenderOptions(thinking=True, reasoning_effort="minimal"), "'minimal' contradicts"),
    ],
)
def test_an_effort_that_cannot_be_had_is_refused(
    glm: TextModel, options: RenderOptions, problem: str
) -> None:
    with pytest.raises(InvalidInput, match=problem) as caught:
        glm.render([user("Hi")], (), options)
    assert caught.value.field == "reasoning_effort"


def test_results_of_parallel_calls_follow_the_order_of_the_calls(glm: TextModel) -> None:
    calls = assistant("", None, a_call("f", "{}", "1"), a_call("g", "{}", "2"))
    text = rendered(glm, user("go"), calls, result("of g", "2"), result("of f", "1"), user("on"))
    assert (
        "<tool_call>f</tool_call><tool_call>g</tool_call><|observation|>"
        "<tool_response>of f</tool_response><tool_response>of g</tool_response><|user|>on"
    ) in text


def test_values_that_are_not_strings_are_written_as_json(glm: TextModel) -> None:
    call = a_call("f", '{"a": [1, {"b": "é"}], "c": null, "d": true, "e": "null"}')
    assert (
        '<tool_call>f<arg_key>a</arg_key><arg_value>[1, {"b": "é"}]</arg_value>'
        "<arg_key>c</arg_key><arg_value>null</arg_value><arg_key>d</arg_key>"
        "<arg_value>true</arg_value><arg_key>e</arg_key><arg_value>null</arg_value></tool_call>"
    ) in rendered(glm, user("go"), assistant("", None, call))


def test_empty_arguments_are_an_empty_object(glm: TextModel) -> None:
    assert "<tool_call>f</tool_call>" in rendered(
        glm, user("go"), assistant("", None, a_call("f", ""))
    )


@pytest.mark.parametrize("arguments", ["{", "[]", "5", "[" * 100_000])
def test_arguments_that_are_no_object_are_refused(glm: TextModel, arguments: str) -> None:
    talk = [user("go"), assistant("", None, a_call("f", "{}"), a_call("f", arguments))]
    with pytest.raises(InvalidInput) as caught:
        glm.render(talk, (), DEFAULT)
    assert caught.value.field == "messages[1].tool_calls[1].function.arguments"
