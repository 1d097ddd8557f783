"""What users complain about in the form of answers, calls and JSON, and what happens here instead.

End to end through the edge: the node is told of the grammar, and the test asks it what that lets
through, token by token of each family's own vocabulary. That masks hold a model to it is the engine's.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import anyio
import pytest

from support.chat_stream import read_stream
from support.constrained import a_matching, allowed
from support.edges import State, an_edge
from support.families import (
    FAMILIES,
    MODELS,
    WEATHER,
    a_node,
    ask,
    family_offers,
    post,
    spoken,
    written,
)
from support.token_source import FakeTokenSource
from tenantry_runtime.pool.messages import Submit

PARIS = [("get_weather", {"city": "Paris", "days": 2})]
CLOCK: Any = {"type": "function", "function": {"name": "clock"}}
SCHEMA: Any = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
    "required": ["city", "days"],
    "additionalProperties": False,
}
GOOD, BAD = '{"city": "Paris", "days": 2}', '{"city": "Paris", "days": "two"}'
BARE: Any = {"type": "json_schema", "json_schema": SCHEMA}
ENVELOPE: Any = {"type": "json_schema", "json_schema": {"name": "trip", "schema": SCHEMA}}
UNKNOWN: Any = {"type": "object", "properties": {"a": {"type": "no-such-type"}}}

either = pytest.mark.parametrize("model", MODELS)
each_way = pytest.mark.parametrize("stream", [False, True])


def begins(submit: Submit, model: str, token_ids: Sequence[int]) -> bool:
    """Say whether the node's answer may begin so."""
    assert submit.constraint is not None
    matcher = a_matching(FAMILIES[model].family).compiled(submit.constraint.lark)
    return matcher.validate_tokens([*token_ids]) == len(token_ids)


def fits(submit: Submit, model: str, token_ids: Sequence[int]) -> bool:
    """Say whether that, with the stop token at its end, is a whole answer."""
    assert submit.constraint is not None
    matcher = a_matching(FAMILIES[model].family).compiled(submit.constraint.lark)
    *said, stop = token_ids
    return matcher.consume_tokens(said) and stop in allowed(matcher)


async def submitted(state: State, model: str, **fields: Any) -> Submit:
    """Return what the node was told of a request."""
    node = a_node(*written(FAMILIES[model], "hm", "x"))
    async with an_edge(state, node, offers=family_offers()) as edge:
        response = await post(edge, model, **fields)
    assert response.status_code == 200, response.text
    [submit] = node.submits
    return submit


async def refusal(state: State, model: str, **fields: Any) -> str:
    node = a_node(1)
    async with an_edge(state, node, offers=family_offers()) as edge:
        response = await post(edge, model, **fields)
    [error] = response.json()["errors"]
    assert (response.status_code, error["code"], node.submits) == (400, 5006, [])
    message: str = error["message"]
    return message


@pytest.mark.asyncio
@either
async def test_a_required_call_is_made_after_thinking_in_the_models_own_format(
    state: State, model: str
) -> None:
    text = FAMILIES[model]
    tools = [WEATHER, CLOCK]
    submit = await submitted(state, model, tools=tools, tool_choice="required")

    calls: list[list[tuple[str, Any]]] = [PARIS, [("clock", {})]]
    for call in calls:
        assert fits(submit, model, written(text, "let me think", "", call))
    assert not fits(submit, model, written(text, "let me think", "I would rather not."))
    assert not fits(submit, model, written(text, "let me think", ""))


@pytest.mark.asyncio
@either
async def test_a_named_function_is_the_only_one_that_is_called(state: State, model: str) -> None:
    text = FAMILIES[model]
    choice = {"type": "function", "function": {"name": "clock"}}
    submit = await submitted(state, model, tools=[WEATHER, CLOCK], tool_choice=choice)

    assert fits(submit, model, written(text, "hm", "", [("clock", {})]))
    assert not begins(submit, model, written(text, "hm", "", PARIS)[:-1])


@pytest.mark.asyncio
@either
@each_way
async def test_a_forced_call_is_a_call_and_not_text_that_looks_like_one(
    state: State, model: str, stream: bool
) -> None:
    node = a_node(*written(FAMILIES[model], "hm", "", PARIS))
    fields = {"tools": [WEATHER], "tool_choice": "required", "stream": stream}
    async with an_edge(state, node, offers=family_offers()) as edge:
        response = await post(edge, model, **fields)

    if stream:
        answer = read_stream(response.text)
        calls = [(call.name, json.loads(call.arguments)) for call in answer.calls]
        assert (answer.content, answer.finish_reason) == ("", "tool_calls")
    else:
        [choice] = response.json()["result"]["choices"]
        functions = [call["function"] for call in choice["message"]["tool_calls"]]
        calls = [(each["name"], json.loads(each["arguments"])) for each in functions]
        assert (choice["message"]["content"], choice["finish_reason"]) == (None, "tool_calls")
    assert calls == PARIS


@pytest.mark.asyncio
@either
@pytest.mark.parametrize("choice", ["any", "REQUIRED", {"type": "tool"}, True, 5])
async def test_a_choice_that_there_is_not_is_refused_by_name(
    state: State, model: str, choice: Any
) -> None:
    said = await refusal(state, model, tools=[WEATHER], tool_choice=choice)

    assert "'/tool_choice" in said


@pytest.mark.asyncio
@either
@pytest.mark.parametrize(
    "choice", ["required", {"type": "function", "function": {"name": "get_weather"}}]
)
async def test_a_call_cannot_be_required_where_there_is_nothing_to_call(
    state: State, model: str, choice: Any
) -> None:
    said = await refusal(state, model, tool_choice=choice)

    assert "'/tool_choice'" in said


@pytest.mark.asyncio
@either
async def test_no_call_is_made_where_none_is_wanted(state: State, model: str) -> None:
    with_none = await submitted(state, model, tools=[WEATHER], tool_choice="none")
    without = await submitted(state, model)

    assert with_none.token_ids == without.token_ids


@pytest.mark.asyncio
@either
async def test_arguments_fit_their_schema_though_nobody_asked_for_strict(
    state: State, model: str
) -> None:
    text = FAMILIES[model]
    submit = await submitted(state, model, tools=[WEATHER, CLOCK])

    assert fits(submit, model, written(text, "hm", "No need to look."))
    assert fits(submit, model, written(text, "hm", "Look:", PARIS))
    for wrong in (
        ("get_weather", {"city": "Paris", "days": "two"}),
        ("get_weather", {"days": 2}),
        ("get_whether", {"city": "Paris"}),
    ):
        assert not fits(submit, model, written(text, "hm", "", [wrong]))


@pytest.mark.asyncio
@either
@each_way
@pytest.mark.parametrize("form", [BARE, ENVELOPE], ids=["bare", "envelope"])
async def test_a_schema_comes_bare_or_in_an_envelope_and_also_for_a_stream(
    state: State, model: str, stream: bool, form: Any
) -> None:
    text = FAMILIES[model]
    node = a_node(*written(text, "hm", GOOD))
    async with an_edge(state, node, offers=family_offers()) as edge:
        response = await post(edge, model, stream=stream, response_format=form)
    assert response.status_code == 200, response.text

    [submit] = node.submits
    assert fits(submit, model, written(text, "hm", GOOD))
    for wrong in (BAD, "Sure! " + GOOD, "```json\n" + GOOD, GOOD + ' {"city"', '{"city": "Paris"}'):
        assert not fits(submit, model, written(text, "hm", wrong))
    # a string, whatever it says
    if stream:
        assert read_stream(response.text).content == GOOD
    else:
        assert response.json()["result"]["choices"][0]["message"]["content"] == GOOD


@pytest.mark.asyncio
@either
async def test_json_mode_is_any_object_and_nothing_else(state: State, model: str) -> None:
    text = FAMILIES[model]
    submit = await submitted(state, model, response_format={"type": "json_object"})

    for good in ("{}", BAD, '{"a": [null, {"é": 1.5}]}'):
        assert fits(submit, model, written(text, "hm", good))
    for bad in ("[]", '"a"', '{"a": }', "no"):
        assert not fits(submit, model, written(text, "hm", bad))


@pytest.mark.asyncio
@either
async def test_a_schema_holds_from_the_end_of_thinking_or_from_the_start_if_there_is_none(
    state: State, model: str
) -> None:
    text = FAMILIES[model]
    thinking = await submitted(state, model, response_format=BARE)
    kwargs = {"thinking": False}
    at_once = await submitted(state, model, response_format=BARE, chat_template_kwargs=kwargs)

    # what is thought is free, and may look like anything
    for thought in ("", "Let me see. {", BAD, "</think>"):
        assert fits(thinking, model, written(text, thought, GOOD))
    assert not fits(thinking, model, written(text, None, GOOD))
    assert fits(at_once, model, written(text, None, GOOD))
    assert not begins(at_once, model, spoken(text, "Let me see."))


@pytest.mark.asyncio
@either
@pytest.mark.parametrize(
    ("field", "fields"),
    [
        ("response_format/json_schema", {"response_format": {**BARE, "json_schema": UNKNOWN}}),
        (
            "tools/1/function/parameters",
            {"tools": [WEATHER, {"name": "f", "parameters": UNKNOWN}]},
        ),
    ],
    ids=["format", "tool"],
)
async def test_a_bad_schema_is_its_own_requests_failure_and_names_its_field(
    state: State, model: str, field: str, fields: Any
) -> None:
    gate = anyio.Event()
    said = written(FAMILIES[model], "hm", "done")
    node = FakeTokenSource(said[:1], gate, said[1:])
    answers: list[Any] = []
    async with (
        an_edge(state, node, offers=family_offers()) as edge,
        anyio.create_task_group() as tasks,
    ):

        async def other() -> None:
            answers.append(await ask(edge, model, tools=[WEATHER]))

        tasks.start_soon(other)
        with anyio.fail_after(20):
            await node.started.wait()
            response = await post(edge, model, **fields)
        gate.set()

    [error] = response.json()["errors"]
    assert (response.status_code, error["code"]) == (400, 5006)
    assert f"'/{field}" in error["message"]
    assert [answer["message"]["content"] for answer in answers] == ["done"]
    assert len(node.submits) == 1
