"""The AI SDK, with Cloudflare's provider of Workers AI."""

from __future__ import annotations

import pytest

from support.clients import Answers, AskClient

pytestmark = pytest.mark.conformance

BOOKING = {"city": "Rome", "guests": 4}
TOLD = "The id of the table is b7k2."


@pytest.fixture(scope="module")
def ai_sdk(client: AskClient) -> Answers:
    return client("ai_sdk.mjs")


def test_text_is_generated_with_its_reasoning_and_usage(ai_sdk: Answers) -> None:
    answer = ai_sdk["generated_text"]
    assert (answer["text"], answer["finish_reason"]) == ("17 + 25 = 42", "stop")
    assert answer["reasoning"]
    assert answer["input_tokens"] > 0
    assert answer["output_tokens"] > 0


def test_text_is_streamed(ai_sdk: Answers) -> None:
    assert ai_sdk["streamed_text"] == {"text": "17 + 25 = 42", "finish_reason": "stop"}


def test_a_tool_is_executed_and_its_result_told(ai_sdk: Answers) -> None:
    assert ai_sdk["tool_round"] == {"told": TOLD, "bookings": [BOOKING], "num_steps": 2}


def test_a_tool_is_executed_in_a_stream(ai_sdk: Answers) -> None:
    assert ai_sdk["streamed_tool_round"] == {"told": TOLD, "bookings": [BOOKING]}


def test_a_required_tool_is_called(ai_sdk: Answers) -> None:
    assert ai_sdk["required_tool"] == [["book_table", BOOKING]]


@pytest.mark.parametrize(
    "scenario", ["generated_object", "object_as_output", "streamed_object_as_output"]
)
def test_an_object_is_of_its_schema(ai_sdk: Answers, scenario: str) -> None:
    assert ai_sdk[scenario] == BOOKING


def test_a_streamed_object_grows_to_the_whole_one(ai_sdk: Answers) -> None:
    assert ai_sdk["streamed_object"] == {"partial": BOOKING, "object": BOOKING}


def test_a_session_finds_its_prompt_in_the_cache(ai_sdk: Answers) -> None:
    cached_tokens, prompt_tokens = ai_sdk["session"]
    assert 0.9 * prompt_tokens < cached_tokens < prompt_tokens


def test_a_refused_parameter_is_an_error_that_names_it(ai_sdk: Answers) -> None:
    error = ai_sdk["refused_parameter"]
    assert (error["status"], error["is_retryable"]) == (400, False)
    assert "temperature" in error["body"]
