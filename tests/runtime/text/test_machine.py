"""What holds for every family and every sequence of ids."""

from __future__ import annotations

import itertools
import json

import pytest
from hypothesis import given, strategies as st

from support.text import GLM_NANO, KIMI_NANO, WEATHER, Answer, a_text_model, a_tool, ids_of
from tenantry_runtime.core import (
    ContentDelta,
    FinishReason,
    OutputEvent,
    ReasoningDelta,
    ToolCallStart,
)
from tenantry_runtime.text import OutputState, TextModel

MODELS = {"kimi": a_text_model(KIMI_NANO), "glm": a_text_model(GLM_NANO)}
TOOLS = [
    WEATHER,
    a_tool("f", s={"type": "string"}, n={"type": ["string", "null"]}, a={"type": "array"}),
]

# what models say, whole and in pieces, and bytes that are no character by themselves
SAID = [
    *("functions.get_weather:0", "get_weather", "f", "s", "n", "a", "city", "nu", "null", " \n"),
    *(
        '{"city": ',
        '"Paris"}',
        "{}",
        "[1, ",
        "2]",
        '"',
        "\\",
        "é",
        "你好",
        "\U0001f469\u200d",
        "<|im_end|>",
    ),
]


def some_ids(model: TextModel) -> st.SearchStrategy[list[int]]:
    """Draw answers, well-formed or not, in which control tokens are common."""
    bytes_alone = [i for i in range(model.vocab_size) if len(model.tokenizer.token_bytes(i)) == 1]
    words = [tuple(model.tokenizer.encode(text)) for text in SAID]
    controls = [(i,) for i in model.tokenizer.controls.names]
    terminals = [(ids_of(model, name)[0],) for name in ("<think>", "</think>")] + [
        (model.tokenizer.controls.ids[name],)
        for name in model.tokenizer.controls.ids
        if "tool_call" in name or "arg_" in name
    ]
    pieces = (
        st.sampled_from(words)
        | st.sampled_from(terminals)
        | st.sampled_from([*controls, *((i,) for i in bytes_alone), (model.vocab_size + 5,)])
    )
    return st.lists(pieces, max_size=30).map(lambda drawn: [i for ids in drawn for i in ids])


answers = st.sampled_from(sorted(MODELS)).flatmap(
    lambda name: st.tuples(st.just(MODELS[name]), some_ids(MODELS[name]))
)
states = st.sampled_from([OutputState.REASONING, OutputState.CONTENT])
reasons = st.sampled_from([FinishReason.STOP, FinishReason.LENGTH])


def is_object(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except ValueError:
        return False


def without_random_ids(events: list[OutputEvent]) -> list[OutputEvent]:
    return [
        ToolCallStart(e.index, "", e.name) if isinstance(e, ToolCallStart) else e for e in events
    ]


@given(drawn=answers, initial=states, reason=reasons, cuts=st.lists(st.integers(0, 60)))
def test_how_the_ids_are_split_changes_nothing(
    drawn: tuple[TextModel, list[int]],
    initial: OutputState,
    reason: FinishReason,
    cuts: list[int],
) -> None:
    model, ids = drawn
    whole, pieces = model.machine(initial, TOOLS), model.machine(initial, TOOLS)
    expected = Answer([*whole.feed(ids), *whole.finish(reason)], whole.num_tool_calls)
    events: list[OutputEvent] = []
    bounds = [0, *sorted(cut for cut in cuts if cut < len(ids)), len(ids)]
    for start, end in itertools.pairwise(bounds):
        events += pieces.feed(ids[start:end])
    events += pieces.finish(reason)
    assert without_random_ids(Answer(events, 0).events) == without_random_ids(expected.events)
    assert pieces.num_tool_calls == expected.num_tool_calls
    assert pieces.reasoning_tokens == whole.reasoning_tokens


@given(drawn=answers, initial=states, reason=reasons)
def test_calls_are_well_formed_whatever_the_model_says(
    drawn: tuple[TextModel, list[int]], initial: OutputState, reason: FinishReason
) -> None:
    model, ids = drawn
    machine = model.machine(initial, TOOLS)
    events = [*machine.feed(ids), *machine.finish(reason)]
    answer = Answer(events, machine.num_tool_calls)
    assert [start.index for start in answer.starts] == list(range(len(answer.starts)))
    assert all(start.name for start in answer.starts)
    assert len({start.id for start in answer.starts}) == len(answer.starts)
    whole = [is_object(answer.arguments(start.index)) for start in answer.starts]
    # only the last call can have been cut short, be it with whole arguments
    assert answer.num_tool_calls in (sum(whole), sum(whole[:-1]))
    if model.family == "glm":
        # whatever the model says, its arguments are ours
        assert all(whole[:-1])


@given(drawn=answers, initial=states)
def test_no_control_token_leaks_and_no_half_character_is_shown(
    drawn: tuple[TextModel, list[int]], initial: OutputState
) -> None:
    model, ids = drawn
    machine = model.machine(initial, TOOLS)
    said = b"".join(map(model.tokenizer.token_bytes, ids)).decode(errors="replace")
    shown = "".join(
        event.text
        for event in [*machine.feed(ids), *machine.finish(FinishReason.STOP)]
        if isinstance(event, ContentDelta | ReasoningDelta)
    )
    shown.encode()
    # a control token in the middle of a character leaves a replacement character of its own
    assert set(shown) <= set(said) | {"\ufffd"}


@given(data=st.data())
def test_a_character_in_several_tokens_is_shown_once_and_whole(data: st.DataObject) -> None:
    model = MODELS[data.draw(st.sampled_from(sorted(MODELS)))]
    text = data.draw(st.text())
    single = {model.tokenizer.token_bytes(i): i for i in range(model.vocab_size)}
    machine = model.machine(OutputState.CONTENT, ())
    shown: list[str] = []
    for byte in text.encode():
        events = machine.feed([single[bytes([byte])]])
        shown += [e.text for e in events if isinstance(e, ContentDelta)]
    assert machine.finish(FinishReason.STOP) == []
    assert shown == list(text)


def test_bytes_that_never_become_a_character_are_replaced_at_the_end(model: TextModel) -> None:
    single = {model.tokenizer.token_bytes(i): i for i in range(model.vocab_size)}
    machine = model.machine(OutputState.CONTENT, ())
    assert machine.feed([single[b"a"], single[b"\xe4"], single[b"\xbd"]]) == [ContentDelta("a")]
    assert machine.finish(FinishReason.LENGTH) == [ContentDelta("\ufffd")]


def test_what_a_control_token_cuts_in_half_belongs_before_it(model: TextModel) -> None:
    single = {model.tokenizer.token_bytes(i): i for i in range(model.vocab_size)}
    machine = model.machine(OutputState.REASONING, ())
    events = machine.feed([single[b"\xe4"], *ids_of(model, "</think>a")])
    assert events == [ReasoningDelta("\ufffd"), ContentDelta("a")]


def test_reasoning_tokens_include_the_closing_tag(model: TextModel) -> None:
    machine = model.machine(OutputState.REASONING, ())
    thought = model.tokenizer.encode("Let me think.")
    events = machine.feed([*thought, *ids_of(model, "</think>Done.")])
    assert events == [ReasoningDelta("Let me think."), ContentDelta("Done.")]
    assert machine.reasoning_tokens == len(thought) + 1


def test_thinking_that_the_model_opens_itself_counts_without_the_opening_tag(
    model: TextModel,
) -> None:
    machine = model.machine(OutputState.CONTENT, ())
    assert machine.feed(ids_of(model, "<think>a</think>b")) == [
        ReasoningDelta("a"),
        ContentDelta("b"),
    ]
    assert machine.reasoning_tokens == 2


@pytest.mark.parametrize("reason", list(FinishReason))
def test_thinking_cut_short_stays_thinking(model: TextModel, reason: FinishReason) -> None:
    machine = model.machine(OutputState.REASONING, ())
    ids = model.tokenizer.encode("I wonder")
    assert [*machine.feed(ids), *machine.finish(reason)] == [ReasoningDelta("I wonder")]
    assert machine.reasoning_tokens == len(ids)


def test_stop_tokens_yield_nothing(model: TextModel) -> None:
    for initial in (OutputState.REASONING, OutputState.CONTENT):
        machine = model.machine(initial, ())
        assert machine.feed(sorted(model.stop_token_ids)) == []
        assert machine.finish(FinishReason.STOP) == []


def test_special_strings_written_as_text_are_content(model: TextModel) -> None:
    machine = model.machine(OutputState.CONTENT, ())
    for name in model.tokenizer.controls.ids:
        assert machine.feed(model.tokenizer.encode(name)) == [ContentDelta(name)]


def test_machines_share_nothing(model: TextModel) -> None:
    one, other = model.machine(OutputState.REASONING, ()), model.machine(OutputState.CONTENT, ())
    one.feed(model.tokenizer.encode("a"))
    assert other.feed(model.tokenizer.encode("b")) == [ContentDelta("b")]
    assert (one.reasoning_tokens, other.reasoning_tokens) == (1, 0)
