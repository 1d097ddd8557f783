from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, strategies as st

from support.text import (
    GLM_NANO,
    KIMI_NANO,
    WEATHER,
    WEATHER_TALK,
    a_call,
    a_text_model,
    answer_to,
    assistant,
    ids_of,
    result,
    user,
)
from tenantry_runtime.core import Message, RenderOptions, Tool, ToolCall
from tenantry_runtime.text import TextModel, training_ids

DEFAULT = RenderOptions()
KEEP = RenderOptions(preserve_thinking=True)
OFF = RenderOptions(thinking=False)
FINAL = assistant("It is 20.", "read the result")
CALL = 4
ANSWER = 6
TALK = (*WEATHER_TALK, FINAL)

MODELS = {"kimi": a_text_model(KIMI_NANO), "glm": a_text_model(GLM_NANO)}


def marked(ids: list[int], mask: list[bool]) -> list[list[int]]:
    """Return the runs of marked ids."""
    runs: list[list[int]] = []
    for index, token_id in enumerate(ids):
        if mask[index]:
            if not index or not mask[index - 1]:
                runs.append([])
            runs[-1].append(token_id)
    return runs


def prompt_ids(
    model: TextModel, messages: Sequence[Message], options: RenderOptions = DEFAULT
) -> list[int]:
    return model.encode(model.render(messages, [WEATHER], options))


def test_kimi_writes_thinking_calls_and_the_end_of_each_turn(kimi: TextModel) -> None:
    ids, mask = training_ids(kimi, TALK, [WEATHER], DEFAULT, {CALL, ANSWER})
    call = (
        "need tool</think><|tool_calls_section_begin|><|tool_call_begin|>"
        "functions.get_weather:0<|tool_call_argument_begin|>"
        '{"city": "Paris", "days": 2}<|tool_call_end|><|tool_calls_section_end|><|im_end|>'
    )
    answer = "read the result</think>It is 20.<|im_end|>"
    assert marked(ids, mask) == [ids_of(kimi, call), ids_of(kimi, answer)]


def test_glm_ends_calls_by_observing_and_answers_by_giving_the_turn_back(glm: TextModel) -> None:
    ids, mask = training_ids(glm, TALK, [WEATHER], DEFAULT, {CALL, ANSWER})
    call = (
        "need tool</think><tool_call>get_weather<arg_key>city</arg_key><arg_value>Paris"
        "</arg_value><arg_key>days</arg_key><arg_value>2</arg_value></tool_call><|observation|>"
    )
    answer = "read the result</think>It is 20.<|user|>"
    assert marked(ids, mask) == [ids_of(glm, call), ids_of(glm, answer)]


@pytest.mark.parametrize("targets", [{CALL}, {ANSWER}, {CALL, ANSWER}])
@pytest.mark.parametrize("options", [DEFAULT, KEEP])
def test_what_precedes_a_target_is_the_prompt_that_serving_makes(
    model: TextModel, options: RenderOptions, targets: set[int]
) -> None:
    ids, mask = training_ids(model, TALK, [WEATHER], options, targets)
    for target in targets:
        prompt = prompt_ids(model, TALK[:target], options)
        assert ids[: len(prompt)] == prompt
        assert mask[len(prompt)]
        assert not mask[len(prompt) - 1]
    assert len(mask) == len(ids)
    assert mask[-1]


def test_old_answers_can_be_targets_if_they_had_no_reasoning_or_it_is_kept(
    model: TextModel,
) -> None:
    plain = [user("1+1?"), assistant("2"), user("2+2?"), assistant("4", "easy")]
    ids, mask = training_ids(model, plain, [], DEFAULT, {1, 3})
    assert len(marked(ids, mask)) == 2
    thoughtful = [user("1+1?"), assistant("2", "hm"), user("2+2?"), assistant("4", "easy")]
    ids, mask = training_ids(model, thoughtful, [], KEEP, {1, 3})
    assert len(marked(ids, mask)) == 2
    with pytest.raises(ValueError, match="message 1 is not written into the history of message 3"):
        training_ids(model, thoughtful, [], DEFAULT, {1, 3})


def test_a_turn_without_thinking_begins_with_its_content(model: TextModel) -> None:
    ids, mask = training_ids(model, [user("Hi"), assistant("Hello!")], [], OFF, {1})
    end = ids_of(model, "<|im_end|>" if model.family == "kimi" else "<|user|>")
    assert marked(ids, mask) == [[*model.tokenizer.encode("Hello!"), *end]]
    with pytest.raises(ValueError, match="has reasoning, but the prompt asks for none"):
        training_ids(model, [user("Hi"), assistant("Hello!", "hm")], [], OFF, {1})


def test_messages_after_the_last_target_are_left_out(model: TextModel) -> None:
    assert training_ids(model, TALK, [WEATHER], DEFAULT, {CALL}) == training_ids(
        model, TALK[: CALL + 1], [WEATHER], DEFAULT, {CALL}
    )


def test_spelled_content_is_a_token_per_character_and_nothing_else_is(model: TextModel) -> None:
    talk = [user("Reverse it"), assistant("yalpsid", "d i s p l a y")]
    ids, mask = training_ids(model, talk, [], DEFAULT, {1}, frozenset({1}))
    (answer,) = marked(ids, mask)
    letters = [model.tokenizer.encode(letter)[0] for letter in "yalpsid"]
    assert answer[-1 - len(letters) : -1] == letters
    whole_ids, whole_mask = training_ids(model, talk, [], DEFAULT, {1})
    (whole,) = marked(whole_ids, whole_mask)
    # the reasoning before it and the end after it stay as they are
    written = len(model.tokenizer.encode("yalpsid"))
    assert answer[: -1 - len(letters)] == whole[: -1 - written]
    assert answer[-1] == whole[-1]


@pytest.mark.parametrize("targets", [set[int](), {0}, {1}, {5}, {-1}])
def test_only_the_models_own_messages_are_targets(model: TextModel, targets: set[int]) -> None:
    with pytest.raises(ValueError, match=r"no message to train on|is not the model's"):
        training_ids(model, TALK, [WEATHER], DEFAULT, targets)


def test_an_answer_that_glm_cannot_end_as_the_history_goes_on_is_refused(glm: TextModel) -> None:
    talk = [user("Hi"), assistant("Hello!"), Message(role="system", content="!"), assistant("Yes.")]
    with pytest.raises(ValueError, match="message 1 is not written"):
        training_ids(glm, talk, [], DEFAULT, {1, 3})


words = st.text(max_size=20)
json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | words,
    lambda children: st.lists(children, max_size=3) | st.dictionaries(words, children, max_size=3),
    max_leaves=5,
)
JSON_TYPES = {
    type(None): "null",
    bool: "boolean",
    int: "integer",
    float: "number",
    str: "string",
    list: "array",
    dict: "object",
}


def a_tool_for(arguments: dict[str, Any]) -> Tool:
    properties = {key: {"type": JSON_TYPES[type(value)]} for key, value in arguments.items()}
    return Tool(name="f.g-h", parameters={"type": "object", "properties": properties})


@given(
    family=st.sampled_from(sorted(MODELS)),
    reasoning=words,
    content=words,
    calls=st.lists(
        st.dictionaries(st.sampled_from(["a", "b_c", "ключ"]), json_values, max_size=3), max_size=2
    ),
)
def test_the_output_machine_reads_back_what_was_trained_on(
    family: str, reasoning: str, content: str, calls: list[dict[str, Any]]
) -> None:
    model = MODELS[family]
    # both calls are of one tool, so a name has one type
    arguments = {key: value for call in reversed(calls) for key, value in call.items()}
    tools = [a_tool_for(arguments)]
    calls = [{key: arguments[key] for key in call} for call in calls]
    message = Message(
        role="assistant",
        content=content,
        reasoning=reasoning,
        tool_calls=tuple(
            ToolCall(id=f"x{i}", name="f.g-h", arguments=json.dumps(call, ensure_ascii=False))
            for i, call in enumerate(calls)
        ),
    )
    talk = [user("go"), message]
    ids, mask = training_ids(model, talk, tools, DEFAULT, {1})
    (said,) = marked(ids, mask)
    prompt = model.render(talk[:1], tools, DEFAULT)
    answer = answer_to(model, said, initial=prompt.initial, tools=tools)
    assert said[-1] in model.stop_token_ids
    assert (answer.reasoning, answer.content) == (reasoning, content)
    assert answer.num_tool_calls == len(calls)
    assert [start.name for start in answer.starts] == ["f.g-h"] * len(calls)
    assert [json.loads(answer.arguments(i)) for i in range(len(calls))] == calls


def test_results_join_a_chain_of_calls(model: TextModel) -> None:
    talk = [
        user("go"),
        assistant("", "first", a_call("f", "{}", "1")),
        result("a", "1"),
        assistant("", "second", a_call("f", "{}", "1"), a_call("f", "{}", "2")),
        result("b", "1"),
        result("c", "2"),
        assistant("done", "third"),
    ]
    ids, mask = training_ids(model, talk, [], DEFAULT, {1, 3, 6})
    assert len(marked(ids, mask)) == 3
