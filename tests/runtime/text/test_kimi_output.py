from __future__ import annotations

import pytest

from support.text import WEATHER, a_call, a_tool, answer_to, assistant, ids_of, user
from tenantry_runtime.core import (
    ContentDelta,
    FinishReason,
    ReasoningDelta,
    ToolCallArguments,
    ToolCallStart,
)
from tenantry_runtime.text import OutputState, TextModel

SECTION = "<|tool_calls_section_begin|>"
END = "<|tool_calls_section_end|>"


def call(head: str, arguments: str) -> str:
    return f"<|tool_call_begin|>{head}<|tool_call_argument_begin|>{arguments}<|tool_call_end|>"


def test_an_answer_with_thinking_text_and_two_calls(kimi: TextModel) -> None:
    scripted = (
        "need both</think>Looking.\n"
        + SECTION
        + call("functions.get_weather:3", '{"city": "Paris"}')
        + call("functions.get_weather:4", '{"city": "Rome"}')
        + END
        + "<|im_end|>"
    )
    answer = answer_to(kimi, scripted, initial=OutputState.REASONING, tools=[WEATHER])
    assert answer.events == [
        ReasoningDelta("need both"),
        ContentDelta("Looking.\n"),
        ToolCallStart(0, "functions.get_weather:3", "get_weather"),
        ToolCallArguments(0, '{"city": "Paris"}'),
        ToolCallStart(1, "functions.get_weather:4", "get_weather"),
        ToolCallArguments(1, '{"city": "Rome"}'),
    ]
    assert answer.num_tool_calls == 2


@pytest.mark.parametrize("opening", [SECTION, SECTION + "\n", ""])
def test_a_call_inside_thinking_ends_the_thinking(kimi: TextModel, opening: str) -> None:
    scripted = "let me look" + opening + call("functions.get_weather:0", "{}") + END
    answer = answer_to(kimi, scripted, initial=OutputState.REASONING)
    assert answer.reasoning == "let me look"
    assert answer.starts == [ToolCallStart(0, "functions.get_weather:0", "get_weather")]
    assert answer.num_tool_calls == 1


@pytest.mark.parametrize(
    ("head", "name", "call_id"),
    [
        ("functions.get-weather:0", "get-weather", "functions.get-weather:0"),
        ("functions.mcp.files.read:12", "mcp.files.read", "functions.mcp.files.read:12"),
        ("functions.a:b:1", "a:b", "functions.a:b:1"),
        ("get_weather:5", "get_weather", "functions.get_weather:5"),
        (" functions.get_weather:5\n", "get_weather", "functions.get_weather:5"),
        ("functions.get_weather", "get_weather", "functions.get_weather:0"),
        ("functions.functions.x:0", "functions.x", "functions.functions.x:0"),
        ("f:99999999999", "f:99999999999", "functions.f:99999999999:0"),
    ],
)
def test_the_name_is_found_in_the_models_id(
    kimi: TextModel, head: str, name: str, call_id: str
) -> None:
    answer = answer_to(kimi, SECTION + call(head, "{}") + END)
    assert answer.starts == [ToolCallStart(0, call_id, name)]


def test_a_repeated_id_is_counted_on(kimi: TextModel) -> None:
    scripted = SECTION + call("functions.f:7", "{}") * 2 + call("functions.g", "{}") + END
    ids = [start.id for start in answer_to(kimi, scripted).starts]
    assert ids == ["functions.f:7", "functions.f:8", "functions.g:9"]


@pytest.mark.parametrize(
    ("earlier", "said", "expected"),
    [
        # the model counts on where the prompt, which counts the conversation's calls, ended
        (["functions.f:0"], "functions.f:1", "functions.f:1"),
        (["functions.f:0"], "functions.f:0", "functions.f:1"),
        (["call_a", "call_b"], "functions.f:0", "functions.f:2"),
        (["functions.f:5"], "functions.f:5", "functions.f:6"),
        (["functions.f:1"], "f", "functions.f:2"),
        (["functions.f:1", "functions.f:2"], "functions.f:2", "functions.f:3"),
        (["functions.f:1234567890"], "functions.f:1234567890", "functions.f:1234567890:1"),
    ],
)
def test_an_id_of_an_earlier_turn_is_not_used_again(
    kimi: TextModel, earlier: list[str], said: str, expected: str
) -> None:
    calling = assistant("", None, *(a_call("f", "{}", call_id) for call_id in earlier))
    machine = kimi.machine(OutputState.CONTENT, (), [user("go"), calling])
    events = machine.feed(ids_of(kimi, SECTION + call(said, "{}") + END))
    assert [e.id for e in events if isinstance(e, ToolCallStart)] == [expected]


def test_calls_of_one_answer_have_ids_of_their_own_in_a_shortened_conversation(
    kimi: TextModel,
) -> None:
    # a client that leaves out what is oldest: the prompt has its calls as the first and the second
    earlier = (a_call("f", "{}", f"functions.f:{number}") for number in (2, 3))
    machine = kimi.machine(OutputState.CONTENT, (), [user("go"), assistant("", None, *earlier)])
    scripted = SECTION + call("functions.f:2", "{}") + call("functions.f:3", "{}") + END
    events = machine.feed(ids_of(kimi, scripted))
    ids = [event.id for event in events if isinstance(event, ToolCallStart)]
    assert ids == ["functions.f:4", "functions.f:5"]


@pytest.mark.parametrize(
    "arguments",
    # white space for Python, but not for JSON, is among them
    ['{"a": ', "[1]", "null", '{"a": 1}}', "Paris", '{"a": NaN}', "[" * 9999, "\u2028", "\x0b"],
)
def test_a_closed_call_whose_arguments_are_no_object_does_not_count(
    kimi: TextModel, arguments: str
) -> None:
    answer = answer_to(kimi, SECTION + call("f:0", arguments) + call("f:1", "{}") + END)
    # what has been streamed stays as it is
    assert [answer.arguments(0), answer.arguments(1)] == [arguments, "{}"]
    assert answer.num_tool_calls == 1


def test_arguments_are_streamed_as_they_come(kimi: TextModel) -> None:
    machine = kimi.machine(OutputState.CONTENT, [WEATHER])
    machine.feed(
        ids_of(kimi, SECTION + "<|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>")
    )
    for piece in ('{"city', '": ', '"Par'):
        assert machine.feed(kimi.tokenizer.encode(piece)) == [ToolCallArguments(0, piece)]


def test_a_call_without_arguments_gets_an_empty_object(kimi: TextModel) -> None:
    unopened = "<|tool_call_begin|>functions.f:0<|tool_call_end|>"
    scripted = SECTION + unopened + call("g:1", "") + call("2", " \n") + END
    answer = answer_to(kimi, scripted, tools=[WEATHER])
    assert [answer.arguments(place) for place in range(3)] == ["{}", "{}", "{}"]
    assert answer.num_tool_calls == 3


def test_a_bare_number_is_the_only_tool(kimi: TextModel) -> None:
    answer = answer_to(kimi, SECTION + call("3", '{"city": "Rome"}') + END, tools=[WEATHER])
    assert answer.events == [
        ToolCallStart(0, "functions.get_weather:3", "get_weather"),
        ToolCallArguments(0, '{"city": "Rome"}'),
    ]


def test_a_bare_number_is_the_tool_that_takes_the_arguments(kimi: TextModel) -> None:
    tools = [a_tool("f", x={}, y={}), a_tool("g", y={}, z={}), WEATHER]
    answer = answer_to(kimi, SECTION + call("0", '{"z": 1}') + END, tools=tools)
    assert answer.starts == [ToolCallStart(0, "functions.g:0", "g")]
    ambiguous = answer_to(kimi, SECTION + call("0", '{"y": 1}') + END, tools=tools)
    assert (ambiguous.events, ambiguous.num_tool_calls) == ([], 0)


@pytest.mark.parametrize("reason", [FinishReason.STOP, FinishReason.LENGTH])
def test_a_call_cut_in_its_arguments_does_not_count(kimi: TextModel, reason: FinishReason) -> None:
    scripted = SECTION + "<|tool_call_begin|>f:0<|tool_call_argument_begin|>" + '{"city": "Pa'
    answer = answer_to(kimi, scripted, reason=reason)
    assert answer.arguments(0) == '{"city": "Pa'
    assert answer.num_tool_calls == 0


@pytest.mark.parametrize(("reason", "count"), [(FinishReason.STOP, 1), (FinishReason.LENGTH, 0)])
def test_whole_arguments_without_a_closing_tag_count_if_the_turn_ended(
    kimi: TextModel, reason: FinishReason, count: int
) -> None:
    scripted = SECTION + '<|tool_call_begin|>f:0<|tool_call_argument_begin|>{"a": 1}<|im_end|>'
    assert answer_to(kimi, scripted, reason=reason).num_tool_calls == count


def test_a_name_cut_short_shows_nothing(kimi: TextModel) -> None:
    answer = answer_to(kimi, SECTION + "<|tool_call_begin|>functions.get_w")
    assert (answer.events, answer.num_tool_calls) == ([], 0)


def test_text_after_the_section_is_content_without_leading_space(kimi: TextModel) -> None:
    scripted = SECTION + " junk " + call("f:0", "{}") + "\n" + END + "\n\nDone.\n"
    assert answer_to(kimi, scripted).content == "Done.\n"


def test_control_tokens_inside_a_call_are_dropped(kimi: TextModel) -> None:
    scripted = SECTION + call("fun<think>ctions.f:0", '{"a":<|im_middle|> 1}') + END
    answer = answer_to(kimi, scripted)
    assert answer.events == [
        ToolCallStart(0, "functions.f:0", "f"),
        ToolCallArguments(0, '{"a": 1}'),
    ]
