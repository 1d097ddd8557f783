"""`/v1/chat/completions`: what differs from `/ai/run`, choices, and log probabilities."""

from __future__ import annotations

import math
from typing import Any

import pytest

from support.dialects import USAGE, finish, read, stream, whole
from support.requests import USER, parsed
from tenantry_runtime.core import (
    ChosenLogprob,
    ContentDelta,
    Event,
    FinishReason,
    LogprobsDelta,
    ReasoningDelta,
    TokenLogprob,
)
from tenantry_runtime.errors import InvalidInput

ROUTE = "chat/completions"


def likely(text: str, logprob: float, **others: float) -> ChosenLogprob:
    """Say of a token, a character, how likely it was, and what else was."""
    top = tuple(TokenLogprob(ord(char), value) for char, value in others.items())
    return ChosenLogprob(TokenLogprob(ord(text), logprob), top)


def test_a_body_means_what_it_means_to_workers_ai() -> None:
    fields: dict[str, Any] = {
        "temperature": 0.5,
        "n": 2,
        "stop": "a",
        "tools": [{"type": "function", "function": {"name": "f"}}],
        "tool_choice": "required",
        "response_format": {"type": "json_object"},
        "stream": True,
        "stream_options": {"include_usage": True},
        "reasoning_effort": "high",
    }

    assert read(ROUTE, **fields) == parsed(**fields)


def test_a_stream_carries_usage_only_if_asked_to() -> None:
    events: list[Event] = [ContentDelta("a"), finish()]

    *_, last, done = stream(ROUTE, events)
    assert (last["choices"][0]["finish_reason"], done) == ("stop", "[DONE]")
    *_, usage, done = stream(ROUTE, events, stream_options={"include_usage": True})
    assert (usage["choices"], done) == ([], "[DONE]")
    assert usage["usage"]["total_tokens"] == USAGE.total_tokens


@pytest.mark.parametrize(
    ("field", "fields"),
    [
        ("messages", {"messages": None}),
        ("prompt", {"prompt": "hi"}),
        ("input", {"input": "hi"}),
        ("max_output_tokens", {"max_output_tokens": 1}),
        ("requests", {"requests": []}),
    ],
    ids=str,
)
def test_what_is_no_parameter_of_chat_is_refused_by_name(
    field: str, fields: dict[str, Any]
) -> None:
    with pytest.raises(InvalidInput) as caught:
        read(ROUTE, **fields)

    assert caught.value.field == field


@pytest.mark.parametrize("kind", ["image_url", "input_audio", "file", "video_url"])
def test_what_a_model_cannot_read_is_refused_rather_than_dropped(kind: str) -> None:
    content = [{"type": "text", "text": "look"}, {"type": kind, kind: {"url": "data:image/png,"}}]

    with pytest.raises(InvalidInput, match="not supported yet") as caught:
        read(ROUTE, messages=[{**USER, "content": content}])

    assert caught.value.field == "messages[0].content[1].type"


def test_each_choice_has_its_own_index() -> None:
    first: list[Event] = [ContentDelta("a"), ContentDelta("b"), finish()]
    second: list[Event] = [ReasoningDelta("c"), finish(FinishReason.LENGTH)]

    choices = whole(ROUTE, first, second, n=2)["choices"]
    *chunks, done = stream(ROUTE, first, second, n=2)

    said = [
        (choice["index"], choice["message"]["content"], choice["finish_reason"])
        for choice in choices
    ]
    assert said == [(0, "ab", "stop"), (1, "", "length")]
    deltas = [(chunk["choices"][0]["index"], chunk["choices"][0]["delta"]) for chunk in chunks]
    opening = {"role": "assistant", "content": ""}
    assert deltas == [
        (0, opening),
        (1, opening),
        (0, {"content": "a"}),
        (1, {"reasoning": "c", "reasoning_content": "c"}),
        (0, {"content": "b"}),
        (0, {}),
        (1, {}),
    ]
    assert done == "[DONE]"


LIKELY: list[Event] = [
    ContentDelta("aé"),
    LogprobsDelta((likely("a", -0.5, a=-0.5, b=-1.5), likely("é", -math.inf))),
    finish(),
]
PRINTED = [
    {
        "token": "a",
        "logprob": -0.5,
        "bytes": [97],
        "top_logprobs": [
            {"token": "a", "logprob": -0.5, "bytes": [97]},
            {"token": "b", "logprob": -1.5, "bytes": [98]},
        ],
    },
    # OpenAI's documentation: -9999.0 stands for what is all but impossible
    {"token": "é", "logprob": -9999.0, "bytes": [195, 169], "top_logprobs": []},
]


def test_log_probabilities_are_of_each_token() -> None:
    [choice] = whole(ROUTE, LIKELY, logprobs=True)["choices"]

    assert choice["logprobs"] == {"content": PRINTED, "refusal": None}


def test_a_stream_has_the_same_log_probabilities() -> None:
    *chunks, _ = stream(ROUTE, LIKELY, logprobs=True)

    logprobs = [chunk["choices"][0]["logprobs"] for chunk in chunks]
    told = [each for each in logprobs if each is not None]
    assert told == [{"content": PRINTED, "refusal": None}]


def test_without_being_asked_nothing_is_said_of_them() -> None:
    [choice] = whole(ROUTE, [ContentDelta("a"), finish()])["choices"]

    assert choice["logprobs"] is None
