"""LangChain's chat model of Workers AI, over both of its endpoints."""

from __future__ import annotations

import pytest

from support.clients import Answers, AskClient

pytestmark = pytest.mark.conformance

BOOKING = {"city": "Rome", "guests": 4}


@pytest.fixture(scope="module")
def langchain(client: AskClient) -> Answers:
    return client("langchain_client.py")


@pytest.mark.parametrize("scenario", ["invoked", "invoked_compatibly"])
def test_a_model_is_invoked(langchain: Answers, scenario: str) -> None:
    answer = langchain[scenario]
    assert answer["text"] == "17 + 25 = 42"
    assert answer["usage"]["input_tokens"] > 0
    assert answer["usage"]["output_tokens"] > 0


@pytest.mark.parametrize(
    "scenario",
    [
        "streamed",
        "streamed_compatibly",
        "invoked_asynchronously",
        "streamed_asynchronously",
        "reject_if_busy",
    ],
)
def test_the_answer_is_the_same_in_each_way(langchain: Answers, scenario: str) -> None:
    assert langchain[scenario] == "17 + 25 = 42"


@pytest.mark.parametrize("scenario", ["tool_round", "tool_round_compatibly"])
def test_a_bound_tool_is_called_and_its_result_told(langchain: Answers, scenario: str) -> None:
    answer = langchain[scenario]
    assert answer["calls"] == [["book_table", BOOKING]]
    assert answer["told"] == "The id of the table is b7k2."


def test_a_required_tool_is_called(langchain: Answers) -> None:
    assert langchain["required_tool"]
    assert set(langchain["required_tool"]) <= {"book_table", "find_hotel"}


@pytest.mark.parametrize(
    "scenario", ["structured_by_tool", "structured_by_schema", "structured_by_mode"]
)
def test_structured_output_is_of_its_type(langchain: Answers, scenario: str) -> None:
    assert langchain[scenario] == BOOKING


def test_a_session_finds_its_prompt_in_the_cache(langchain: Answers) -> None:
    cached_tokens, prompt_tokens = langchain["session"]
    assert 0.9 * prompt_tokens < cached_tokens < prompt_tokens
