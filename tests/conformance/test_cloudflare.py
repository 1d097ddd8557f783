"""Cloudflare's Python client: `client.ai`."""

from __future__ import annotations

import json

import pytest

from support.clients import MODELS, Answers, AskClient

pytestmark = pytest.mark.conformance

BOOKING = {"city": "Rome", "guests": 4}


@pytest.fixture(scope="module")
def cloudflare(client: AskClient) -> Answers:
    return client("cloudflare_client.py")


def test_a_prompt_is_answered_with_its_usage(cloudflare: Answers) -> None:
    answer = cloudflare["prompt"]
    assert (answer["content"], answer["finish_reason"]) == ("17 + 25 = 42", "stop")
    assert answer["usage"]["prompt_tokens_details"]["cached_tokens"] >= 0
    assert answer["usage"]["neurons"] > 0


def test_messages_are_answered(cloudflare: Answers) -> None:
    assert cloudflare["messages"] == "17 + 25 = 42"


def test_a_stream_has_the_answer_and_an_end(cloudflare: Answers) -> None:
    answer = cloudflare["streamed"]
    assert answer == {"last": "data: [DONE]", "content": "17 + 25 = 42"}


def test_a_tool_is_called_and_its_result_told(cloudflare: Answers) -> None:
    answer = cloudflare["tool_round"]
    ((name, arguments),) = answer["calls"]
    assert (name, json.loads(arguments)) == ("book_table", BOOKING)
    assert answer["told"] == "The id of the table is b7k2."


def test_a_bare_schema_is_filled(cloudflare: Answers) -> None:
    assert json.loads(cloudflare["bare_schema"]) == BOOKING


def test_thinking_can_be_turned_off_by_an_extra_parameter(cloudflare: Answers) -> None:
    content, reasoning = cloudflare["extra_parameters"]
    assert content == "31 + 46 = 77"
    assert not reasoning


def test_a_session_finds_its_prompt_in_the_cache(cloudflare: Answers) -> None:
    cached_tokens, prompt_tokens = cloudflare["session"]
    assert 0.9 * prompt_tokens < cached_tokens < prompt_tokens


def test_models_are_listed(cloudflare: Answers) -> None:
    assert cloudflare["models"] == sorted(MODELS)


def test_a_models_schema_has_input_and_output(cloudflare: Answers) -> None:
    assert {"input", "output"} <= set(cloudflare["model_schema"])


def test_tasks_and_authors_are_listed(cloudflare: Answers) -> None:
    assert "Text Generation" in cloudflare["tasks"]
    assert cloudflare["authors"] >= 2


def test_an_unknown_model_has_its_code(cloudflare: Answers) -> None:
    assert cloudflare["unknown_model"] == {"status": 400, "codes": [5007]}


def test_an_unknown_token_has_its_code(cloudflare: Answers) -> None:
    assert cloudflare["unknown_token"] == {"status": 401, "codes": [10000]}


def test_a_batch_is_queued_and_polled(cloudflare: Answers) -> None:
    ticket, polled = cloudflare["batch"]["ticket"], cloudflare["batch"]["polled"]
    assert ticket["status"] == "queued"
    assert ticket["request_id"]
    assert polled.get("status") in ("queued", "running") or polled["responses"]
