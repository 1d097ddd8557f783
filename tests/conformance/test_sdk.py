"""Tenantry's own client."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

import tenantry
from support.clients import MODELS
from support.dev_server import DevServer
from tenantry import AI, AsyncAI, run_tools, tool

pytestmark = [pytest.mark.conformance, pytest.mark.parametrize("model", MODELS)]

SUM = {"prompt": "What is 17 + 25?", "temperature": 0}
BOOKING = "Please book a table in Rome for 4 guests."
SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "guests": {"type": "integer"}},
    "required": ["city", "guests"],
}
EXTRACTION = {
    "prompt": f"Extract the values as JSON.\n{json.dumps(SCHEMA)}\n\nThe city is Rome. The guests is 4.",
    "temperature": 0,
}


class Booking(msgspec.Struct):
    city: str
    guests: int


@tool
def book_table(city: str, guests: int) -> dict[str, str]:
    """Book a table."""
    assert (city, guests) == ("Rome", 4)
    return {"id": "b7k2"}


@pytest.fixture(scope="module")
def ai(server: DevServer) -> Iterator[AI]:
    with AI(**_options(server)) as ai:
        yield ai


def _options(server: DevServer) -> dict[str, Any]:
    return {**msgspec.structs.asdict(server.credentials), "max_retries": 0}


def test_a_stream_amounts_to_the_whole_answer(ai: AI, model: str) -> None:
    whole = ai.run(model, SUM)
    with ai.run(model, SUM, stream=True) as stream:
        streamed = stream.completion()
    assert streamed.text == whole.text == "17 + 25 = 42"
    assert streamed.reasoning == whole.reasoning != ""
    assert streamed.usage.completion_tokens == whole.usage.completion_tokens


def test_a_function_is_called_and_its_result_told(ai: AI, model: str) -> None:
    messages: list[Any] = [{"role": "user", "content": BOOKING}]
    inputs = {"messages": messages, "tools": [book_table], "temperature": 0}
    first = ai.run(model, inputs)
    messages += [first.message, *run_tools([book_table], first.tool_calls)]
    assert messages[-1].error is None
    assert ai.run(model, inputs).text == "The id of the table is b7k2."


@pytest.mark.asyncio
async def test_an_answer_is_an_instance_of_its_type(server: DevServer, model: str) -> None:
    async with AsyncAI(**_options(server)) as ai:
        whole = await ai.run(model, EXTRACTION, response_format=Booking)
        async with await ai.run(model, EXTRACTION, response_format=Booking, stream=True) as stream:
            streamed = await stream.parsed()
    assert whole == streamed == Booking("Rome", 4)


def test_an_answer_of_a_type_that_is_cut_says_so(ai: AI, model: str) -> None:
    inputs = {
        **EXTRACTION,
        "max_completion_tokens": 3,
        "chat_template_kwargs": {"enable_thinking": False},
    }
    with pytest.raises(tenantry.AnswerCut):
        ai.run(model, inputs, response_format=Booking)


def test_choices_have_log_probabilities(ai: AI, model: str) -> None:
    answer = ai.run(model, {**SUM, "n": 2, "logprobs": True, "top_logprobs": 1})
    assert [choice.message.content for choice in answer.choices] == ["17 + 25 = 42"] * 2
    for choice in answer.choices:
        assert choice.logprobs is not None
        assert "".join(each.token for each in choice.logprobs.content).endswith("17 + 25 = 42")


def test_a_server_that_is_not_busy_does_not_reject(ai: AI, model: str) -> None:
    assert ai.run(model, SUM, reject_if_busy=True).text == "17 + 25 = 42"


def test_a_batch_is_computed_and_keeps_its_references(ai: AI, model: str) -> None:
    batch = ai.batch(
        model, [{**SUM, "external_reference": "sum"}, {"prompt": "Hello!", "temperature": 0}]
    )
    responses = batch.wait(timeout=60).responses
    assert [response.external_reference for response in responses] == ["sum", None]
    assert responses[0].completion.text == "17 + 25 = 42"
    assert responses[1].completion.text == "Hello! How can I help you?"


def test_an_unknown_model_is_an_error_of_its_own(ai: AI, model: str) -> None:
    with pytest.raises(tenantry.UnknownModel, match=r"kimi|glm"):
        ai.run(f"{model}-no", SUM)
