"""Functions as tools: what models are told of them, and how calls become results."""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal, assert_type

import httpx
import msgspec
import pytest

from tenantry import (
    AI,
    FunctionCall,
    Message,
    MockTransport,
    ToolCall,
    ToolResult,
    run_tools,
    run_tools_async,
    tool,
)


class Place(msgspec.Struct):
    city: str
    street: str = ""


@tool
def find_price(
    place: Place,
    day: Literal["today", "tomorrow"],
    seats: Annotated[int, msgspec.Meta(ge=1)] = 1,
) -> dict[str, int]:
    """Find the price
    of a ticket.

    In euros.

    Args:
        place: Where to go,
            by train: fast.
        day (str): When.

    Returns:
        seats: This is no parameter.
    """
    return {"price": seats * 10}


def a_call(arguments: object, *, name: str = "find_price") -> ToolCall:
    text = arguments if isinstance(arguments, str) else json.dumps(arguments)
    return ToolCall(
        id="functions.f:0", type="function", function=FunctionCall(name=name, arguments=text)
    )


def test_a_declaration_says_what_the_function_says() -> None:
    assert find_price.declaration == {
        "type": "function",
        "function": {
            "name": "find_price",
            "description": "Find the price of a ticket.\nIn euros.",
            "parameters": {
                "type": "object",
                "properties": {
                    "place": {
                        "$ref": "#/$defs/Place",
                        "description": "Where to go, by train: fast.",
                    },
                    "day": {"enum": ["today", "tomorrow"], "description": "When."},
                    "seats": {"type": "integer", "minimum": 1},
                },
                "required": ["place", "day"],
                "additionalProperties": False,
                "$defs": {
                    "Place": {
                        "type": "object",
                        "properties": {
                            "city": {"type": "string"},
                            "street": {"type": "string", "default": ""},
                        },
                        "required": ["city"],
                        "additionalProperties": False,
                    }
                },
            },
        },
    }


def test_a_tool_is_still_a_function() -> None:
    price = find_price(Place("Rome"), "today", seats=3)
    assert_type(price, dict[str, int])
    assert price == {"price": 30}


def test_a_tool_may_have_another_name_and_description() -> None:
    @tool(name="add", description="Add numbers.")
    def plus(a: int, b: int) -> int:
        return a + b

    assert plus.declaration["function"]["name"] == "add"
    assert plus.declaration["function"]["description"] == "Add numbers."
    assert plus(1, 2) == 3


def test_a_tool_without_parameters_takes_an_empty_object() -> None:
    def now() -> str:
        return "noon"

    declared = tool(now).declaration["function"]
    assert declared == {
        "name": "now",
        "parameters": {
            "type": "object",
            "properties": {},
            "required": [],
            "additionalProperties": False,
        },
    }
    assert tool(now).answer(a_call("", name="now")).content == "noon"


def test_a_call_gets_decoded_arguments_and_gives_json() -> None:
    result = find_price.answer(a_call({"place": {"city": "Rome"}, "day": "tomorrow", "seats": 4}))
    assert result.message == {
        "role": "tool",
        "tool_call_id": "functions.f:0",
        "content": '{"price":40}',
    }
    assert result.error is None


def test_arguments_left_out_are_the_functions_defaults() -> None:
    def count(words: list[str] = ["a", "b"]) -> int:  # noqa: B006
        return len(words)

    assert tool(count).answer(a_call({}, name="count")).content == "2"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"place": {"city": "Rome"}, "day": "never"}, "Invalid enum value 'never' - at `$.day`"),
        ({"place": {"city": "Rome"}}, "Object missing required field `day`"),
        ({"place": {"city": "Rome"}, "day": "today", "seats": "2"}, "Expected `int`, got `str`"),
        ({"place": {"city": "Rome"}, "day": "today", "no": 1}, "Object contains unknown field"),
        ('{"place": ', "Input data was truncated"),
    ],
)
def test_arguments_that_do_not_fit_are_told_to_the_model(arguments: Any, said: str) -> None:
    result = find_price.answer(a_call(arguments))
    assert said in json.loads(result.content)["error"]
    assert isinstance(result.error, msgspec.DecodeError)


def test_an_error_of_the_function_is_told_and_kept() -> None:
    def fail() -> None:
        raise PermissionError("not yours")

    result = tool(fail).answer(a_call({}, name="fail"))
    assert json.loads(result.content) == {"error": "not yours"}
    assert isinstance(result.error, PermissionError)


def test_calls_are_answered_in_their_order_and_by_their_names() -> None:
    def add(a: int, b: int) -> int:
        return a + b

    results = run_tools(
        [find_price, add], [a_call({"a": 1, "b": 2}, name="add"), a_call({}, name="subtract")]
    )
    assert results[0].content == "3"
    assert "no tool 'subtract'; there are ['add', 'find_price']" in results[1].content
    assert isinstance(results[1].error, LookupError)


@pytest.mark.asyncio
async def test_asynchronous_functions_are_awaited() -> None:
    async def add(a: int, b: int) -> int:
        return a + b

    calls = [a_call({"a": 1, "b": 2}, name="add"), a_call({"place": {"city": "X"}, "day": "today"})]
    results = await run_tools_async([add, find_price], calls)
    assert [result.content for result in results] == ["3", '{"price":10}']


def test_an_asynchronous_function_is_not_called_without_await() -> None:
    async def add(a: int, b: int) -> int:
        return a + b

    result = tool(add).answer(a_call({"a": 1, "b": 2}, name="add"))
    assert isinstance(result.error, TypeError)


def positional(a: int, /) -> int:
    return a


def unannotated(a) -> int:  # type: ignore[no-untyped-def]  # which is what is refused
    return int(a)


def variadic(*numbers: int) -> int:
    return sum(numbers)


@pytest.mark.parametrize("function", [positional, unannotated, variadic])
def test_a_function_that_cannot_be_declared_is_refused_by_name(function: Any) -> None:
    with pytest.raises(TypeError, match=function.__name__):
        tool(function)


def test_a_round_with_tools_goes_over_the_wire() -> None:
    bodies: list[Any] = []

    def answer(request: httpx.Request) -> dict[str, Any] | str:
        bodies.append(json.loads(request.content))
        if len(bodies) == 2:
            return "It is 10."
        call = {
            "id": "functions.add:0",
            "type": "function",
            "function": {"name": "add", "arguments": '{"a": 4, "b": 6}'},
        }
        message = {"role": "assistant", "content": None, "tool_calls": [call]}
        return {"choices": [{"index": 0, "message": message, "finish_reason": "tool_calls"}]}

    def add(a: int, b: int) -> int:
        return a + b

    messages: list[dict[str, Any] | Message | ToolResult] = [{"role": "user", "content": "4 + 6?"}]
    with AI(transport=MockTransport(answer)) as ai:
        inputs = {"messages": messages, "tools": [add]}
        first = ai.run("kimi-k2.6", inputs)
        messages += [first.message, *run_tools([add], first.tool_calls)]
        assert ai.run("kimi-k2.6", inputs).text == "It is 10."

    assert bodies[0]["tools"] == [tool(add).declaration]
    assert bodies[1]["messages"][1]["tool_calls"][0]["id"] == "functions.add:0"
    assert bodies[1]["messages"][2] == {
        "role": "tool",
        "tool_call_id": "functions.add:0",
        "content": "10",
    }


def test_inputs_that_are_not_json_are_refused() -> None:
    with (
        AI(transport=MockTransport(lambda _: "text")) as ai,
        pytest.raises(TypeError, match="inputs hold a object"),
    ):
        ai.run("kimi-k2.6", {"prompt": object()})
