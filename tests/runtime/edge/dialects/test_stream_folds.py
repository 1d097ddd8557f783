"""Whatever a model says, and in whatever pieces: a stream adds up to the whole answer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hypothesis import given, strategies as st

from support.dialects import finish, stream, whole
from tenantry_runtime.core import (
    ChosenLogprob,
    ContentDelta,
    Event,
    FinishReason,
    LogprobsDelta,
    ReasoningDelta,
    TokenLogprob,
    ToolCallArguments,
    ToolCallStart,
)

TEXT = st.text(min_size=1, max_size=5)
LIKELY = st.builds(
    lambda token, logprob: LogprobsDelta((ChosenLogprob(TokenLogprob(token, logprob)),)),
    st.integers(32, 1000),
    st.floats(-20, 0),
)


@st.composite
def answers(draw: st.DrawFn) -> list[Event]:
    """Thinking, text and calls in any order and in pieces, and how likely some tokens were."""
    events: list[Event] = []
    num_calls = 0
    for kind in draw(st.lists(st.sampled_from(["think", "write", "call", "tell"]), max_size=8)):
        match kind:
            case "think":
                events += [ReasoningDelta(text) for text in draw(st.lists(TEXT, max_size=3))]
            case "write":
                events += [ContentDelta(text) for text in draw(st.lists(TEXT, max_size=3))]
            case "call":
                events.append(ToolCallStart(num_calls, f"call_{num_calls}", "f"))
                pieces = draw(st.lists(TEXT, max_size=3))
                events += [ToolCallArguments(num_calls, text) for text in pieces]
                num_calls += 1
            case _:
                events.append(draw(LIKELY))
    return [*events, finish(draw(st.sampled_from(FinishReason)))]


CHOICES = st.lists(answers(), min_size=1, max_size=3)


@given(CHOICES)
def test_streamed_chat_adds_up(choices: list[list[Event]]) -> None:
    fields = {"n": len(choices), "logprobs": True}
    folded = [_empty_choice(index) for index in range(len(choices))]
    for chunk in stream("chat/completions", *choices, **fields)[:-1]:
        [choice] = chunk["choices"]
        _fold_choice(folded[choice["index"]], choice)

    assert folded == [
        _bare(choice) for choice in whole("chat/completions", *choices, **fields)["choices"]
    ]


@given(CHOICES)
def test_streamed_completions_add_up(choices: list[list[Event]]) -> None:
    fields = {"n": len(choices), "logprobs": 0}
    folded: list[dict[str, Any]] = [
        {"text": "", "finish_reason": None, "tokens": []} for _ in choices
    ]
    for chunk in stream("completions", *choices, **fields)[:-1]:
        [choice] = chunk["choices"]
        known = folded[choice["index"]]
        known["text"] += choice["text"]
        known["tokens"] += (choice["logprobs"] or {"tokens": []})["tokens"]
        known["finish_reason"] = choice["finish_reason"]

    assert folded == [
        {
            "text": choice["text"],
            "finish_reason": choice["finish_reason"],
            "tokens": choice["logprobs"]["tokens"],
        }
        for choice in whole("completions", *choices, **fields)["choices"]
    ]


@given(answers())
def test_a_streamed_response_adds_up(events: list[Event]) -> None:
    answer = whole("responses", events, top_logprobs=1)
    streamed = stream("responses", events, top_logprobs=1)

    assert streamed[-1]["response"] == answer
    assert _items(streamed) == answer["output"]
    assert [_item_text(item) for item in answer["output"]] == _texts(streamed, answer["output"])
    likely = [
        each
        for event in streamed
        if event["type"] == "response.output_text.delta"
        for each in event["logprobs"]
    ]
    assert likely == [
        each
        for item in answer["output"]
        if item["type"] == "message"
        for each in item["content"][0]["logprobs"]
    ]


def _empty_choice(index: int) -> dict[str, Any]:
    return {
        "index": index,
        "content": "",
        "reasoning": "",
        "calls": {},
        "likely": [],
        "finish_reason": None,
    }


def _fold_choice(known: dict[str, Any], choice: Any) -> None:
    delta = choice["delta"]
    known["content"] += delta.get("content", "")
    known["reasoning"] += delta.get("reasoning", "")
    for call in delta.get("tool_calls", ()):
        empty = {"id": call.get("id"), "name": call["function"].get("name"), "arguments": ""}
        begun = known["calls"].setdefault(call["index"], empty)
        begun["arguments"] += call["function"]["arguments"]
    known["likely"] += (choice["logprobs"] or {"content": []})["content"]
    known["finish_reason"] = choice["finish_reason"]


def _bare(choice: Any) -> dict[str, Any]:
    message = choice["message"]
    return {
        "index": choice["index"],
        "content": message["content"] or "",
        "reasoning": message.get("reasoning", ""),
        "calls": {
            index: {"id": call["id"], **call["function"]}
            for index, call in enumerate(message.get("tool_calls", ()))
        },
        "likely": choice["logprobs"]["content"],
        "finish_reason": choice["finish_reason"],
    }


def _items(streamed: Sequence[Any]) -> list[Any]:
    return [event["item"] for event in streamed if event["type"] == "response.output_item.done"]


def _item_text(item: Any) -> str:
    if item["type"] == "function_call":
        return str(item["arguments"])
    return str(item["content"][0]["text"])


def _texts(streamed: Sequence[Any], items: Sequence[Any]) -> list[str]:
    texts = ["" for _ in items]
    for event in streamed:
        if event["type"].endswith(".delta"):
            texts[event["output_index"]] += event["delta"]
    return texts
