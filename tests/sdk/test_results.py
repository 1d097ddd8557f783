"""Results read as attributes and as the JSON that they came from."""

from __future__ import annotations

import json
import pickle
from typing import Any

import msgspec
import pytest

from support.answers import a_chunk, a_completion, a_model, a_usage_chunk
from tenantry import Chunk, Completion, Coverage, InvalidResponse, Model, Usage
from tenantry._response import RecordT, parse_record, read_envelope

A_CALL = {
    "id": "functions.add:0",
    "type": "function",
    "function": {"name": "add", "arguments": '{"a": null}'},
}


def read(value: Any, type: type[RecordT]) -> RecordT:
    return parse_record(json.dumps(value).encode(), type, request_id="req-7")


def test_attributes_and_keys_lead_to_the_same() -> None:
    result = read(a_completion("42"), Completion)
    assert result.choices[0].message.content == "42"
    assert result["choices"][0]["message"]["content"] == "42"
    assert result.usage.prompt_tokens_details.cached_tokens == 3
    assert result["usage"]["prompt_tokens_details"]["cached_tokens"] == 3
    assert result.usage.completion_tokens_details.reasoning_tokens == 2


def test_a_result_behaves_like_a_mapping() -> None:
    usage = read(a_completion(), Completion).usage
    assert "prompt_tokens" in usage
    assert "cost" not in usage
    assert usage.get("cost") is None
    assert usage.get("cost", 0.5) == 0.5
    assert dict(usage)["total_tokens"] == 15
    assert list(usage) == list(usage.keys())
    assert len(usage) == 6
    with pytest.raises(KeyError, match="cost"):
        usage["cost"]


def test_usage_says_what_it_cost_where_the_model_has_a_price() -> None:
    completion = a_completion()
    assert read(completion, Completion).usage.neurons is None
    completion["usage"]["neurons"] = 1.25
    assert read(completion, Completion).usage.neurons == 1.25


def test_shortcuts_lead_to_the_first_choice() -> None:
    result = read(a_completion("42", reasoning="17 + 25", tool_calls=[A_CALL]), Completion)
    assert result.text == "42"
    assert result.reasoning == "17 + 25"
    assert result.tool_calls[0].function.name == "add"
    assert result.finish_reason == "stop"


def test_reasoning_is_found_under_either_name() -> None:
    assert read(a_completion(reasoning_content="hm"), Completion).reasoning == "hm"
    assert read(a_chunk(reasoning_content="hm"), Chunk).reasoning == "hm"
    assert read(a_chunk(reasoning="hm"), Chunk).reasoning == "hm"


def test_an_answer_of_tool_calls_alone_has_empty_text() -> None:
    result = read(a_completion(None, tool_calls=[A_CALL]), Completion)
    assert result.text == ""
    assert result.choices[0].message.content is None


def test_unknown_fields_are_ignored() -> None:
    answer = a_completion()
    answer["usage"]["neurons"] = 1.25
    answer["choices"][0]["message"]["mood"] = {"good": True}
    assert read(answer, Completion).text == "42"


def test_null_stands_for_nothing() -> None:
    answer = a_completion(tool_calls=None)
    answer["usage"] = None
    result = read(answer, Completion)
    assert result.tool_calls == []
    assert result.usage == Usage()


def test_a_null_inside_arguments_stays() -> None:
    result = read(a_completion(None, tool_calls=[A_CALL]), Completion)
    assert json.loads(result.tool_calls[0].function.arguments) == {"a": None}


def test_a_message_goes_back_into_the_next_request_without_empty_fields() -> None:
    message = read(a_completion("42", reasoning="hm"), Completion).choices[0].message
    assert msgspec.to_builtins(message) == {
        "role": "assistant",
        "content": "42",
        "reasoning": "hm",
    }


def test_a_message_with_tool_calls_goes_back_as_it_came() -> None:
    message = read(a_completion(None, tool_calls=[A_CALL]), Completion).choices[0].message
    assert msgspec.to_builtins(message) == {"role": "assistant", "tool_calls": [A_CALL]}


@pytest.mark.parametrize(
    "answer", [None, [], "text", {}, {"choices": [{"message": "42"}]}, {"choices": [{}]}]
)
def test_another_shape_is_an_invalid_response(answer: object) -> None:
    with pytest.raises(InvalidResponse) as caught:
        read(answer, Completion)
    assert caught.value.request_id == "req-7"


@pytest.mark.parametrize("text", [b"", b"{", b"[" * 100_000, b'{"a":' * 100_000, b"\xff"])
def test_what_is_no_json_is_an_invalid_response(text: bytes) -> None:
    with pytest.raises(InvalidResponse, match="not an object"):
        parse_record(text, Completion, request_id=None)
    assert read_envelope(text) is None


def test_a_chunk_of_usage_has_no_text() -> None:
    chunk = read(a_usage_chunk(), Chunk)
    assert (chunk.text, chunk.reasoning, chunk.tool_calls, chunk.finish_reason) == (
        "",
        "",
        [],
        None,
    )
    assert chunk.usage is not None
    assert chunk.usage.total_tokens == 15


def test_tool_calls_come_in_pieces() -> None:
    begin = a_chunk(tool_calls=[{**A_CALL, "index": 0, "function": {"name": "add"}}])
    more = a_chunk(tool_calls=[{"index": 0, "function": {"arguments": '{"a"'}}])
    end = a_chunk(tool_calls=[{"index": 0, "id": None, "type": None, "function": {"name": None}}])
    deltas = [read(chunk, Chunk).tool_calls[0] for chunk in (begin, more, end)]
    assert [delta.id for delta in deltas] == ["functions.add:0", None, None]
    assert [delta.function.name for delta in deltas] == ["add", None, None]
    assert "".join(delta.function.arguments for delta in deltas) == '{"a"'


def test_a_models_properties_are_found_by_name() -> None:
    model = read(a_model(context_window="262144", price=[{"price": 0.95}]), Model)
    assert model.property_value("context_window") == "262144"
    assert model.property_value("price") == [{"price": 0.95}]
    assert model.property_value("vision") is None


def test_a_result_can_be_pickled_and_compared() -> None:
    result = read(a_completion(), Completion)
    assert pickle.loads(pickle.dumps(result)) == result


def test_a_result_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        read(a_completion(), Completion).model = "other"  # type: ignore[misc]  # frozen


def test_a_report_of_coverage_says_what_is_not_checked() -> None:
    op = {"model": "m", "phase": "decode", "op": "read", "checked": False}
    report = read({"all_checked": False, "nodes_without_answer": 0, "ops": [op]}, Coverage)
    assert [(covered.op, covered.checked) for covered in report.ops] == [("read", False)]
    assert report.all_checked is False


def test_log_probabilities_have_types_and_keys() -> None:
    value = a_completion("4")
    entry = {"token": "4", "logprob": -0.25, "bytes": [52]}
    other = {"token": "x", "logprob": -3.0, "bytes": None}
    value["choices"][0]["logprobs"] = {"content": [{**entry, "top_logprobs": [entry, other]}]}
    logprobs = read(value, Completion).choices[0].logprobs
    assert logprobs is not None
    assert logprobs.content[0].logprob == -0.25
    assert [each.bytes for each in logprobs.content[0].top_logprobs] == [[52], []]
    assert logprobs["content"][0]["token"] == "4"
