"""OpenAI's Python client, at `/ai/v1` and at the root."""

from __future__ import annotations

import json
import math

import pytest

from support.clients import MODELS, Answers, AskClient

pytestmark = pytest.mark.conformance

BOOKING = {"city": "Rome", "guests": 4}


@pytest.fixture(scope="module")
def openai(client: AskClient) -> Answers:
    return client("openai_client.py")


def test_a_whole_answer_has_content_and_usage(openai: Answers) -> None:
    answer = openai["whole_answer"]
    assert answer["object"] == "chat.completion"
    assert (answer["content"], answer["finish_reason"]) == ("17 + 25 = 42", "stop")
    assert "42" in answer["reasoning"] or "12" in answer["reasoning"]
    assert answer["prompt_tokens"] > 0
    assert answer["total_tokens"] == answer["prompt_tokens"] + answer["completion_tokens"]
    assert 0 < answer["reasoning_tokens"] < answer["completion_tokens"]
    assert answer["cached_tokens"] >= 0


def test_a_streamed_answer_is_the_whole_one(openai: Answers) -> None:
    answer = openai["streamed_answer"]
    assert answer["content"] == "17 + 25 = 42"
    assert answer["finish_reasons"] == ["stop"]
    assert answer["usages"] == [openai["whole_answer"]["completion_tokens"]]
    assert answer["choices_of_last"] == 0
    assert answer["ids"] == 1


@pytest.mark.parametrize("scenario", ["short_name", "left_stream", "asynchronous_stream"])
def test_the_answer_is_the_same_in_each_way(openai: Answers, scenario: str) -> None:
    assert openai[scenario] == "17 + 25 = 42"


def test_thinking_can_be_turned_off(openai: Answers) -> None:
    content, reasoning = openai["without_thinking"]
    assert content == "31 + 46 = 77"
    assert not reasoning


def test_an_image_is_refused_not_dropped(openai: Answers) -> None:
    assert "image" in openai["image"]


def test_concurrent_answers_do_not_mix(openai: Answers) -> None:
    assert openai["concurrent_answers"] == ["17 + 25 = 42"] * 4


def test_the_root_serves_clients_that_insist_on_it(openai: Answers) -> None:
    assert openai["root_url"]["content"] == "17 + 25 = 42"
    assert set(MODELS) <= set(openai["root_url"]["models"])


def test_models_are_listed(openai: Answers) -> None:
    assert set(MODELS) <= set(openai["models"])


def test_content_may_be_text_parts_or_null(openai: Answers) -> None:
    assert openai["kinds_of_content"] == "stop"


def test_a_tool_is_called_and_its_result_told(openai: Answers) -> None:
    answer = openai["tool_round"]
    ((name, arguments),) = answer["calls"]
    assert (name, json.loads(arguments)) == ("book_table", BOOKING)
    assert answer["finish_reason"] == "tool_calls"
    assert answer["told"] == "The id of the table is b7k2."


def test_a_streamed_tool_call_is_whole_when_it_is_done(openai: Answers) -> None:
    answer = openai["streamed_tool_call"]
    assert answer["calls"] == openai["tool_round"]["calls"]
    assert answer["finish_reason"] == "tool_calls"
    assert answer["done"] == answer["calls"]


def test_several_tools_may_be_called_at_once_or_not(openai: Answers) -> None:
    answer = openai["several_tool_calls"]
    assert answer["names"] == ["find_hotel", "book_table"]
    assert len(set(answer["ids"])) == 2
    assert answer["not_parallel"] == ["find_hotel"]


def test_tool_choice_decides_what_is_called(openai: Answers) -> None:
    answer = openai["tool_choices"]
    assert answer["none"] == []
    assert {name for name, _ in answer["required"]} <= {"book_table", "find_hotel"}
    assert answer["required"]
    assert {name for name, _ in answer["named"]} == {"find_hotel"}


@pytest.mark.parametrize(
    "scenario", ["parsed_answer", "streamed_parsed_answer", "parsed_tool_call", "parsed_response"]
)
def test_an_answer_is_parsed_into_its_type(openai: Answers, scenario: str) -> None:
    assert openai[scenario] == BOOKING


@pytest.mark.parametrize("scenario", ["json_object", "schema_by_hand"])
def test_an_answer_in_json_is_json(openai: Answers, scenario: str) -> None:
    assert json.loads(openai[scenario]) == BOOKING


def test_log_probabilities_are_of_the_answers_tokens(openai: Answers) -> None:
    answer = openai["logprobs"]
    assert "".join(answer["tokens"]).endswith("17 + 25 = 42")
    assert all(-math.inf < logprob <= 0 for logprob in answer["logprobs"])
    # the answer is greedy, so each token is the most probable of its place
    assert [top[0] for top in answer["tops"]] == answer["tokens"]
    assert {len(top) for top in answer["tops"]} == {2}


def test_several_choices_are_as_many_answers(openai: Answers) -> None:
    answer = openai["several_choices"]
    assert answer["indexes"] == [0, 1, 2]
    assert answer["contents"] == answer["again"]
    assert answer["completion_tokens"] > 3 * 5


def test_a_seed_makes_an_answer_come_again(openai: Answers) -> None:
    first, again, other = openai["seeds"]
    assert first == again
    assert first != other


def test_an_answer_ends_at_its_stop_and_its_limit(openai: Answers) -> None:
    answer = openai["stops"]
    assert answer["string"] == "17 + 25"
    assert answer["limit"] == "length"


def test_penalties_bias_and_top_p_are_taken(openai: Answers) -> None:
    assert openai["penalties_and_bias"] == "stop"


def test_fields_that_cannot_change_the_answer_do_not(openai: Answers) -> None:
    assert openai["harmless_fields"] == "17 + 25 = 42"


def test_a_session_finds_its_prompt_in_the_cache(openai: Answers) -> None:
    cached_tokens, prompt_tokens = openai["session"]
    assert 0.9 * prompt_tokens < cached_tokens < prompt_tokens


def test_an_unknown_model_is_named_in_the_error(openai: Answers) -> None:
    error = openai["unknown_model"]
    assert (error["status"], error["type"]) == (404, "NotFoundError")
    assert "kimi-k2.7" in error["message"]


def test_an_unknown_key_is_an_authentication_error(openai: Answers) -> None:
    assert openai["unknown_key"]["status"] == 401


def test_a_refused_parameter_is_named_in_the_error(openai: Answers) -> None:
    error = openai["refused_parameter"]
    assert error["param"] == "temperature"
    assert "temperature" in error["body"]["message"]


def test_an_error_has_the_forms_of_both_apis(openai: Answers) -> None:
    assert {"error", "errors", "success"} <= set(openai["refused_parameter"]["whole_body"])


def test_a_response_has_text_and_usage(openai: Answers) -> None:
    answer = openai["response"]
    assert answer["text"] == "17 + 25 = 42"
    assert answer["status"] == "completed"
    assert answer["types"][-1] == "message"
    assert answer["output_tokens"] > 0


def test_a_streamed_response_is_numbered_and_complete(openai: Answers) -> None:
    answer = openai["streamed_response"]
    assert (answer["first"], answer["last"]) == ("response.created", "response.completed")
    assert answer["text"] == answer["final"] == "17 + 25 = 42"
    assert answer["numbers"] == list(range(len(answer["numbers"])))


def test_a_tool_is_called_from_a_response(openai: Answers) -> None:
    answer = openai["response_tool_round"]
    ((name, arguments),) = answer["calls"]
    assert (name, json.loads(arguments)) == ("book_table", BOOKING)
    assert answer["told"] == "The id of the table is b7k2."


def test_a_prompt_is_completed(openai: Answers) -> None:
    answer = openai["completion"]
    assert answer["object"] == "text_completion"
    assert answer["finish_reason"] in ("stop", "length")
    assert 0 < answer["completion_tokens"] <= 20


def test_a_completion_may_be_streamed_and_echo_its_prompt(openai: Answers) -> None:
    assert openai["streamed_completion"] == openai["completion"]["text"]
    assert openai["echoed_completion"].startswith("What is 17 + 25?")
