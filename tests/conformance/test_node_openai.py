"""OpenAI's client for Node."""

from __future__ import annotations

import json

import pytest

from support.clients import MODELS, Answers, AskClient

pytestmark = pytest.mark.conformance

BOOKING = {"city": "Rome", "guests": 4}


@pytest.fixture(scope="module")
def openai(client: AskClient) -> Answers:
    return client("openai.mjs")


def test_a_whole_answer_has_content_and_usage(openai: Answers) -> None:
    answer = openai["whole_answer"]
    assert (answer["content"], answer["finish_reason"]) == ("17 + 25 = 42", "stop")
    assert answer["total_tokens"] > 0


def test_a_streamed_answer_is_the_whole_one(openai: Answers) -> None:
    assert openai["streamed_answer"] == "17 + 25 = 42"


def test_the_tool_runner_calls_a_tool_and_ends(openai: Answers) -> None:
    assert openai["tool_runner"] == {"told": "The id of the table is b7k2.", "seen": [BOOKING]}


def test_a_streamed_tool_call_is_whole_at_the_end(openai: Answers) -> None:
    ((name, arguments),) = openai["streamed_tool_call"]["calls"]
    assert (name, json.loads(arguments)) == ("book_table", BOOKING)
    assert openai["streamed_tool_call"]["finish_reason"] == "tool_calls"


@pytest.mark.parametrize("scenario", ["parsed_answer", "parsed_response"])
def test_an_answer_is_parsed_into_its_type(openai: Answers, scenario: str) -> None:
    assert openai[scenario] == BOOKING


def test_a_response_is_complete(openai: Answers) -> None:
    assert openai["response"] == {"text": "17 + 25 = 42", "status": "completed"}
    assert openai["streamed_response"] == "17 + 25 = 42"


def test_models_are_listed(openai: Answers) -> None:
    assert set(MODELS) <= set(openai["models"])


def test_a_refused_parameter_is_named_in_the_error(openai: Answers) -> None:
    error = openai["refused_parameter"]
    assert (error["status"], error["param"]) == (400, "temperature")
