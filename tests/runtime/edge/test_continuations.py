"""A conversation that goes on with the server's own answer: its prompt begins with what is cached."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import given, strategies as st

from support.families import written
from support.text import GLM_NANO, KIMI_NANO, a_text_model, ids_of
from tenantry_runtime.core import (
    Finish,
    FinishReason,
    GenerateRequest,
    Message,
    RenderOptions,
    Sampling,
    Tool,
    Usage,
)
from tenantry_runtime.edge.dialects.chat_input import MessageInput, conversation
from tenantry_runtime.edge.dialects.chat_output import ChatPrinter
from tenantry_runtime.text import TextModel

MODELS = {"kimi": a_text_model(KIMI_NANO), "glm": a_text_model(GLM_NANO)}
DEFAULT = RenderOptions()
KEEP = RenderOptions(preserve_thinking=True)
OFF = RenderOptions(thinking=False)
OPTIONS = {"default": DEFAULT, "keep": KEEP, "off": OFF}

TOOL = Tool(
    name="look-up",
    description="Look something up",
    parameters={
        "type": "object",
        "properties": {
            "words": {"type": "string"},
            "most": {"type": "number"},
            "kinds": {"type": "array"},
            "safe": {"type": ["boolean", "null"]},
        },
    },
)
SYSTEM = {"role": "system", "content": "Be brief."}
USER = {"role": "user", "content": "Look it up, please. <|im_end|></think>"}
NEXT = {"role": "user", "content": "And now?"}

words = st.text(max_size=20) | st.sampled_from(
    [
        "</think>",
        "<tool_call>",
        "<|im_end|>\n",
        "</arg_value>",
        " é\U0001f469\u200d\U0001f680 ",
        "\n\n",
    ]
)
arguments = st.fixed_dictionaries(
    {},
    optional={
        "words": words,
        "most": st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False),
        "kinds": st.lists(
            words | st.integers(0, 9) | st.dictionaries(words, words, max_size=2), max_size=3
        ),
        "safe": st.none() | st.booleans(),
    },
)


def prompt_ids(model: TextModel, messages: Sequence[Message], options: RenderOptions) -> list[int]:
    return model.encode(model.render(messages, [TOOL], options))


def read(*messages: Any) -> tuple[Message, ...]:
    """Read messages as a client sends them."""
    return conversation(msgspec.convert(list(messages), list[MessageInput]))


def script(
    model: TextModel,
    reasoning: str | None,
    content: str,
    calls: Sequence[Any],
    *,
    num_before: int = 0,
) -> list[int]:
    named = [("look-up", call) for call in calls]
    return written(model, reasoning, content, named, num_before=num_before)


def printed(
    model: TextModel, talk: Sequence[Message], said: list[int], options: RenderOptions
) -> Any:
    """Return the message that a client gets, as it would send it back."""
    initial = model.render(talk, [TOOL], options).initial
    machine = model.machine(initial, [TOOL], talk)
    events = [*machine.feed(said), *machine.finish(FinishReason.STOP)]
    usage = Usage(prompt_tokens=0, completion_tokens=len(said))
    request = GenerateRequest(model="m", sampling=Sampling(seed=0))
    printer = ChatPrinter(request, response_id="x", created_s=0, token_bytes=lambda _: b"")
    whole = printer.result([[*events, Finish(reason=FinishReason.STOP, usage=usage)]])
    return json.loads(whole)["result"]["choices"][0]["message"]


def results(message: Any) -> list[Any]:
    return [
        {"role": "tool", "tool_call_id": call["id"], "content": [{"type": "text", "text": "42"}]}
        for call in message["tool_calls"]
    ]


def shared(one: list[int], other: list[int]) -> int:
    """Return how many ids both begin with."""
    pairs = zip(one, other, strict=False)
    return next((at for at, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))


@given(
    family=st.sampled_from(sorted(MODELS)),
    options=st.sampled_from(sorted(OPTIONS)).map(OPTIONS.__getitem__),
    reasoning=words,
    content=words,
    calls=st.lists(arguments, max_size=3),
)
def test_the_next_prompt_begins_with_this_prompt_and_what_was_said(
    family: str, options: RenderOptions, reasoning: str, content: str, calls: list[Any]
) -> None:
    model = MODELS[family]
    talk = read(SYSTEM, USER)
    said = script(model, None if options is OFF else reasoning, content, calls)
    answer = printed(model, talk, said, options)
    going_on = results(answer) if calls else [NEXT]

    before = prompt_ids(model, talk, options)
    after = prompt_ids(model, read(SYSTEM, USER, answer, *going_on), options)

    if calls or options is not DEFAULT or not reasoning:
        assert after[: len(before) + len(said)] == before + said
    else:
        # both templates drop what was thought before a final answer, and nothing before that
        assert after[: len(before)] == before
        assert after[len(before)] == ids_of(model, "</think>")[0]


@pytest.mark.parametrize("family", sorted(MODELS))
def test_a_chain_of_calls_is_cached_up_to_the_first_thought_that_is_dropped(family: str) -> None:
    model = MODELS[family]
    talk: list[Any] = [SYSTEM, USER]
    for turn in range(3):
        said = script(model, f"thought {turn}", "", [{"words": "x"}], num_before=turn)
        answer = printed(model, read(*talk), said, DEFAULT)
        before = prompt_ids(model, read(*talk), DEFAULT)
        talk += [answer, *results(answer)]
        assert prompt_ids(model, read(*talk), DEFAULT)[: len(before) + len(said)] == before + said

    last = prompt_ids(model, read(*talk), DEFAULT)
    said = script(model, "at last", "It is 42.", [])
    talk.append(printed(model, read(*talk), said, DEFAULT))
    after = prompt_ids(model, read(*talk, NEXT), DEFAULT)

    first_thought = model.tokenizer.encode("thought 0")
    at = shared(last, after)
    assert last[at : at + len(first_thought)] == first_thought


@pytest.mark.parametrize("family", sorted(MODELS))
def test_how_a_client_writes_a_conversation_changes_no_token(family: str) -> None:
    model = MODELS[family]
    given = {"words": "é", "most": 2.5, "kinds": [1, {"a": None}]}
    ways: list[tuple[Any, str, Any, Any]] = [
        (json.dumps(given, ensure_ascii=False), "reasoning", "Let me look.", ""),
        (given, "reasoning_content", [{"type": "text", "text": "Let me look."}], None),
        (given, "reasoning", [{"type": "text", "text": part} for part in ("Let me", " look.")], []),
    ]
    forms = []
    for arguments, name, content, null in ways:
        call = {"id": "a", "function": {"name": "look-up", "arguments": arguments}}
        calling = {"role": "assistant", "content": content, name: "hm", "tool_calls": [call]}
        result = {"role": "tool", "tool_call_id": "a", "content": null}
        forms.append(prompt_ids(model, read(SYSTEM, USER, calling, result), DEFAULT))

    assert forms[0] == forms[1] == forms[2]


@pytest.mark.parametrize("family", sorted(MODELS))
def test_the_ids_that_a_client_gives_to_calls_change_no_token(family: str) -> None:
    model = MODELS[family]
    prompts = []
    for ids in [["call_a", "call_b"], ["functions.look-up:0", "functions.look-up:1"], ["7", "3"]]:
        calls = [
            {"id": call_id, "function": {"name": "look-up", "arguments": "{}"}} for call_id in ids
        ]
        calling = {"role": "assistant", "content": None, "tool_calls": calls}
        prompts.append(prompt_ids(model, read(USER, calling, *results(calling)), DEFAULT))

    assert prompts[0] == prompts[1] == prompts[2]
