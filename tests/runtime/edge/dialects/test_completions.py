"""`/v1/completions`."""

from __future__ import annotations

from typing import Any

import pytest

from support.dialects import CREATED_S, finish, read, stream, whole
from support.requests import SEED
from tenantry_runtime.core import (
    ChosenLogprob,
    ContentDelta,
    Event,
    FinishReason,
    LogprobsDelta,
    ReasoningDelta,
    RenderOptions,
    Sampling,
    TokenLogprob,
)
from tenantry_runtime.errors import InvalidInput

ROUTE = "completions"


def test_a_prompt_is_one_message_that_is_answered_without_thinking() -> None:
    request = read(ROUTE)

    assert (request.prompt, request.messages) == ("hi", ())
    assert request.options == RenderOptions(thinking=False)
    assert request.sampling == Sampling(seed=SEED, temperature=0.6, top_p=0.95)
    assert not request.include_usage


def test_a_prompt_may_stand_in_a_list_by_itself() -> None:
    assert read(ROUTE, prompt=["hi"]) == read(ROUTE)


def test_parameters_arrive() -> None:
    request = read(
        ROUTE, max_tokens=5, n=2, best_of=2, logprobs=3, seed=7, top_k=4, logit_bias={"5": 1},
        presence_penalty=1, frequency_penalty=2, repetition_penalty=1.5, min_p=0.1, stop=["a"],
        temperature=0, top_p=0.5, stream=True, stream_options={"include_usage": True},
    )  # fmt: skip

    assert request.sampling == Sampling(
        seed=7, temperature=0, top_p=0.5, top_k=4, min_p=0.1, max_tokens=5, stop=("a",),
        frequency_penalty=2, presence_penalty=1, repetition_penalty=1.5, logit_bias=((5, 1),),
        top_logprobs=3,
    )  # fmt: skip
    assert (request.num_choices, request.stream, request.include_usage) == (2, True, True)


@pytest.mark.parametrize(
    "fields",
    [
        {"echo": False},
        {"suffix": None},
        {"suffix": ""},
        {"best_of": 1},
        {"user": "u"},
        {"store": True},
        {"metadata": {}},
    ],
    ids=str,
)
def test_what_cannot_change_the_answer_is_accepted(fields: dict[str, Any]) -> None:
    assert read(ROUTE, **fields) == read(ROUTE)


@pytest.mark.parametrize(
    ("field", "fields"),
    [
        ("prompt", {"prompt": ""}),
        ("prompt", {"prompt": []}),
        ("prompt", {"prompt": ["a", "b"]}),
        ("prompt[0]", {"prompt": [1]}),
        ("suffix", {"suffix": "a"}),
        ("best_of", {"best_of": 2}),
        ("best_of", {"best_of": 1, "n": 2}),
        ("logprobs", {"logprobs": 6}),
        ("logprobs", {"logprobs": True}),
        ("logprobs", {"logprobs": 1, "echo": True}),
        ("max_completion_tokens", {"max_completion_tokens": 5}),
        ("messages", {"messages": []}),
        ("tools", {"tools": []}),
        ("response_format", {"response_format": {"type": "text"}}),
    ],
    ids=str,
)
def test_a_bad_parameter_is_refused_by_name(field: str, fields: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput) as caught:
        read(ROUTE, **fields)

    assert caught.value.field == field


SAID: list[Event] = [ReasoningDelta("hm"), ContentDelta("4"), ContentDelta("2"), finish()]


def test_a_whole_answer_is_a_text_completion() -> None:
    assert whole(ROUTE, SAID) == {
        "id": "cmpl-1",
        "object": "text_completion",
        "created": CREATED_S,
        "model": "@cf/moonshotai/kimi-k2.6",
        "choices": [{"index": 0, "text": "42", "logprobs": None, "finish_reason": "stop"}],
        "usage": {
            "prompt_tokens": 10,
            "completion_tokens": 5,
            "total_tokens": 15,
            "prompt_tokens_details": {"cached_tokens": 3},
            "completion_tokens_details": {"reasoning_tokens": 2},
        },
        "system_fingerprint": None,
    }


@pytest.mark.parametrize("fields", [{}, {"echo": True}], ids=str)
def test_a_stream_adds_up_to_the_whole_answer(fields: dict[str, Any]) -> None:
    other: list[Event] = [ContentDelta("x"), finish(FinishReason.LENGTH)]
    usage = {"stream_options": {"include_usage": True}}
    answer = whole(ROUTE, SAID, other, n=2, **fields)
    *chunks, last, done = stream(ROUTE, SAID, other, n=2, **usage, **fields)

    texts, reasons = ["", ""], [None, None]
    for chunk in chunks:
        [choice] = chunk["choices"]
        texts[choice["index"]] += choice["text"]
        reasons[choice["index"]] = choice["finish_reason"] or reasons[choice["index"]]
    assert texts == [choice["text"] for choice in answer["choices"]]
    assert reasons == [choice["finish_reason"] for choice in answer["choices"]]
    assert (last["choices"], last["usage"], done) == ([], answer["usage"], "[DONE]")


def test_an_echo_is_the_prompt_before_the_answer() -> None:
    assert whole(ROUTE, SAID, prompt="6*7=", echo=True)["choices"][0]["text"] == "6*7=42"


LIKELY: list[Event] = [
    ContentDelta("éb"),
    LogprobsDelta(
        (
            ChosenLogprob(TokenLogprob(ord("é"), -1.0), (TokenLogprob(ord("a"), -0.5),)),
            ChosenLogprob(TokenLogprob(ord("b"), -0.25)),
        )
    ),
    ContentDelta("c"),
    LogprobsDelta((ChosenLogprob(TokenLogprob(ord("c"), -2.0)),)),
    finish(),
]


def test_log_probabilities_have_this_apis_older_form() -> None:
    assert whole(ROUTE, LIKELY, logprobs=1)["choices"][0]["logprobs"] == {
        "tokens": ["é", "b", "c"],
        "token_logprobs": [-1.0, -0.25, -2.0],
        "top_logprobs": [{"a": -0.5}, {}, {}],
        "text_offset": [0, 1, 2],
    }


def test_a_stream_has_the_same_log_probabilities() -> None:
    *chunks, _ = stream(ROUTE, LIKELY, logprobs=1)
    told = [chunk["choices"][0]["logprobs"] for chunk in chunks]

    joined = {
        name: [value for each in told if each for value in each[name]]
        for name in ("tokens", "token_logprobs", "top_logprobs", "text_offset")
    }
    assert joined == whole(ROUTE, LIKELY, logprobs=1)["choices"][0]["logprobs"]
