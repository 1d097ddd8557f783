from __future__ import annotations

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

TOOLS_TURN = (
    "<|im_system|>tool_declare<|im_middle|># Tools\n\n## functions\nnamespace functions {\n"
    "// Weather of a city\ntype get_weather = (_: {\n  // City\n  city: string,\n  days?: number\n"
    "}) => any;\n}\n<|im_end|>"
)
SYSTEM_AND_HI = (
    "<|im_system|>system<|im_middle|>Be brief.<|im_end|><|im_user|>user<|im_middle|>Hi<|im_end|>"
)
HELLO = "<|im_assistant|>assistant<|im_middle|><think></think>Hello!<|im_end|>"
ASK = "<|im_user|>user<|im_middle|>Weather in Paris?<|im_end|>"
CALL = (
    "<|tool_calls_section_begin|><|tool_call_begin|>functions.get_weather:0"
    '<|tool_call_argument_begin|>{"city": "Paris", "days": 2}<|tool_call_end|>'
    "<|tool_calls_section_end|><|im_end|>"
)
CALL_TURN = "<|im_assistant|>assistant<|im_middle|><think>need tool</think>" + CALL
RESULT = '<|im_system|>tool<|im_middle|>## Return of functions.get_weather:0\n{"t": 20}<|im_end|>'
TO_GO = "<|im_assistant|>assistant<|im_middle|><think>"


def rendered(
    model: TextModel,
    *messages: Message,
    tools: tuple[Tool, ...] = (),
    options: RenderOptions = DEFAULT,
) -> str:
    return written(model, model.render(messages, tools, options))


def test_a_conversation_with_a_tool_round_trip(kimi: TextModel) -> None:
    assert rendered(kimi, *WEATHER_TALK, tools=(WEATHER,)) == (
        TOOLS_TURN + SYSTEM_AND_HI + HELLO + ASK + CALL_TURN + RESULT + TO_GO
    )


def test_preserved_thinking_keeps_old_reasoning(kimi: TextModel) -> None:
    options = RenderOptions(preserve_thinking=True)
    hello = HELLO.replace("<think>", "<think>a greeting")
    assert rendered(kimi, *WEATHER_TALK, options=options) == (
        SYSTEM_AND_HI + hello + ASK + CALL_TURN + RESULT + TO_GO
    )


@pytest.mark.parametrize(
    "options",
    [
        RenderOptions(thinking=False),
        RenderOptions(reasoning_effort="none"),
        RenderOptions(thinking=False, reasoning_effort="high"),
        RenderOptions(thinking=False, preserve_thinking=True),
    ],
)
def test_without_thinking_every_think_block_is_empty(
    kimi: TextModel, options: RenderOptions
) -> None:
    prompt = kimi.render(WEATHER_TALK, (), options)
    call = CALL_TURN.replace("need tool", "")
    assert written(kimi, prompt) == (
        SYSTEM_AND_HI + HELLO + ASK + call + RESULT + TO_GO + "</think>"
    )
    assert prompt.initial is OutputState.CONTENT


@pytest.mark.parametrize("effort", ["low", "medium", "high", "max"])
def test_every_other_effort_means_thinking(kimi: TextModel, effort: str) -> None:
    prompt = kimi.render([user("Hi")], (), RenderOptions(reasoning_effort=effort))
    assert written(kimi, prompt).endswith(TO_GO)
    assert prompt.initial is OutputState.REASONING


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (RenderOptions(reasoning_effort="xhigh"), "'xhigh' is not one of none, low"),
        (RenderOptions(thinking=True, reasoning_effort="none"), "'none' contradicts"),
    ],
)
def test_an_effort_that_cannot_be_had_is_refused(
    kimi: TextModel, options: RenderOptions, problem: str
) -> None:
    with pytest.raises(InvalidInput, match=problem) as caught:
        kimi.render([user("Hi")], (), options)
    assert caught.value.field == "reasoning_effort"


def test_nothing_follows_the_last_turn_where_no_answer_is_wanted(kimi: TextModel) -> None:
    prompt = kimi.render([user("Hi")], (), DEFAULT, add_generation_prompt=False)
    assert written(kimi, prompt) == "<|im_user|>user<|im_middle|>Hi<|im_end|>"
    assert prompt.initial is OutputState.CONTENT


def test_calls_are_renamed_and_counted_over_the_whole_conversation(kimi: TextModel) -> None:
    first = assistant("", None, a_call("f", "{}", "id_a"), a_call("g", '{"x":1}', "id_b"))
    second = assistant("", None, a_call("f", "{}", "id_a"))
    text = rendered(
        kimi,
        user("go"),
        first,
        result("of b", "id_b"),
        result("of a", "id_a"),
        second,
        result("of the second a", "id_a"),
    )
    assert "<|tool_call_begin|>functions.g:1<|tool_call_argument_begin|>" in text
    assert text.index("## Return of functions.g:1\nof b") < text.index(
        "## Return of functions.f:0\nof a"
    )
    assert "## Return of functions.f:2\nof the second a" in text
    assert "id_" not in text


def test_results_without_an_id_answer_the_open_calls_in_order(kimi: TextModel) -> None:
    calls = assistant("", None, a_call("f", "{}", "1"), a_call("g", "{}", "2"))
    text = rendered(kimi, user("go"), calls, result("one", None), result("two", None))
    assert "## Return of functions.f:0\none" in text
    assert "## Return of functions.g:1\ntwo" in text


def test_arguments_stay_as_they_were_written(kimi: TextModel) -> None:
    call = a_call(arguments='{ "city" :"Paris"}')
    text = rendered(kimi, user("go"), assistant("", None, call))
    assert '<|tool_call_argument_begin|>{ "city" :"Paris"}<|tool_call_end|>' in text


def test_names_of_speakers_replace_their_roles(kimi: TextModel) -> None:
    text = rendered(kimi, Message(role="user", content="Hi", name="alice"))
    assert text.startswith("<|im_user|>alice<|im_middle|>Hi<|im_end|>")


def test_a_result_that_answers_no_call_is_refused(model: TextModel) -> None:
    with pytest.raises(InvalidInput, match="'y' answers no earlier tool call") as caught:
        model.render([user("go"), assistant("", None, a_call()), result("1", "y")], (), DEFAULT)
    assert caught.value.field == "messages[2].tool_call_id"
