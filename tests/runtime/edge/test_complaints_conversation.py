"""What users of hosted APIs complain about in conversations, and what happens here instead.

End to end through the edge, with both families' own templates and formats.
"""

from __future__ import annotations

import json
from typing import Any

import anyio
import httpx
import pytest

from support.chat_stream import read_stream, records
from support.edges import RUN, AsgiCall, State, an_edge
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
from support.requests import USER, a_body
from support.token_source import FakeTokenSource

PARIS = [("get_weather", {"city": "Paris", "days": 2})]
ROLES = ["system", "developer", "user", "assistant", "tool"]

either = pytest.mark.parametrize("model", MODELS)
each_way = pytest.mark.parametrize("stream", [False, True])


def calling(call_id: str, **fields: Any) -> dict[str, Any]:
    function = {"name": "get_weather", "arguments": '{"city": "Paris"}'}
    return {"role": "assistant", "tool_calls": [{"id": call_id, "function": function}], **fields}


def code_of(response: httpx.Response) -> tuple[int, int]:
    [error] = response.json()["errors"]
    return response.status_code, error["code"]


def message_of(response: httpx.Response) -> str:
    [error] = response.json()["errors"]
    text: str = error["message"]
    return text


@pytest.mark.asyncio
@either
@pytest.mark.parametrize("role", ROLES)
async def test_contents_as_text_as_parts_and_as_null_mix_in_one_request(
    state: State, model: str, role: str
) -> None:
    node = a_node(*written(FAMILIES[model], "", "ok"))
    forms: list[tuple[Any, Any]] = [
        ("a b", [{"type": "text", "text": "a b"}]),
        ("a b", [{"type": "text", "text": "a"}, {"type": "text", "text": " b"}]),
        ("", None),
        ("", []),
    ]
    async with an_edge(state, node, offers=family_offers()) as edge:
        for pair in forms:
            for content in pair:
                one = {"role": role, "content": content}
                before = [calling("c")] if role == "tool" else []
                if role == "tool":
                    one["tool_call_id"] = "c"
                await ask(edge, model, messages=[USER, *before, one, *([] if before else [USER])])

    prompts = [submit.token_ids for submit in node.submits]
    assert prompts[0::2] == prompts[1::2]


@pytest.mark.asyncio
@either
async def test_an_assistants_null_beside_calls_goes_into_the_second_round(
    state: State, model: str
) -> None:
    text = FAMILIES[model]
    said = written(text, "hm", "", PARIS)
    first, second = a_node(*said), a_node(*written(text, "hm", "It rains."))
    async with an_edge(state, first, offers=family_offers()) as edge:
        choice = await ask(edge, model, tools=[WEATHER])
    message = choice["message"]
    assert message["content"] is None
    result = {"role": "tool", "tool_call_id": message["tool_calls"][0]["id"], "content": "rain"}
    async with an_edge(state, second, offers=family_offers()) as edge:
        choice = await ask(edge, model, tools=[WEATHER], messages=[USER, message, result])

    assert choice["message"]["content"] == "It rains."
    # and the prompt goes on where the first answer ended
    begun = [*first.submits[0].token_ids, *said]
    assert second.submits[0].token_ids[: len(begun)] == begun


@pytest.mark.asyncio
@either
async def test_a_stream_with_tools_shows_text_at_once_and_closes_each_call_before_the_next(
    state: State, model: str
) -> None:
    text = FAMILIES[model]
    gate = anyio.Event()
    calls: list[tuple[str, Any]] = [*PARIS, ("get_weather", {"city": "Rome"})]
    said = written(text, "hm", "", calls)
    begun = [*spoken(text, "hm"), *written(text, "", "Let me look.")[:-1]]
    rest = said[len(written(text, "hm", "")) - 1 :]
    node = FakeTokenSource(begun, gate, *[[each] for each in rest])
    async with (
        an_edge(state, node, offers=family_offers()) as edge,
        anyio.create_task_group() as tasks,
    ):
        path = RUN.replace("kimi-k2.6", model)
        call = AsgiCall(edge=edge, body=a_body(stream=True, tools=[WEATHER]), path=path)
        tasks.start_soon(call)
        with anyio.fail_after(20):
            while b"Let me look." not in call.printed:
                await anyio.lowlevel.checkpoint()
        gate.set()

    # that one call follows another, and that nothing comes for a closed one, is the reader's to check
    streamed = read_stream(call.printed.decode())
    assert (streamed.content, streamed.finish_reason) == ("Let me look.", "tool_calls")
    assert [json.loads(each.arguments) for each in streamed.calls] == [each for _, each in calls]
    assert len({each.id for each in streamed.calls}) == 2


@pytest.mark.asyncio
@either
async def test_call_ids_of_one_turn_never_come_again_in_the_next(state: State, model: str) -> None:
    # as if the model had forgotten that there was a turn before
    node = a_node(*written(FAMILIES[model], "", "", PARIS))
    talk: list[Any] = [USER]
    async with an_edge(state, node, offers=family_offers()) as edge:
        for _ in range(3):
            message = (await ask(edge, model, tools=[WEATHER], messages=talk))["message"]
            [call] = message["tool_calls"]
            talk += [message, {"role": "tool", "tool_call_id": call["id"], "content": "rain"}]

    ids = [message["tool_calls"][0]["id"] for message in talk[1::2]]
    assert len(set(ids)) == 3


@pytest.mark.asyncio
@either
@pytest.mark.parametrize(
    "fields",
    [
        {"chat_template_kwargs": {"thinking": False}},
        {"chat_template_kwargs": {"enable_thinking": False}},
        {"reasoning_effort": "none"},
        {"reasoning_effort": None},
        {"chat_template_kwargs": {"reasoning_effort": "none"}},
        {"thinking": {"type": "disabled"}},
    ],
)
async def test_thinking_is_turned_off_under_every_name_and_costs_nothing_then(
    state: State, model: str, fields: dict[str, Any]
) -> None:
    node = a_node(*written(FAMILIES[model], None, "42"))
    async with an_edge(state, node, offers=family_offers()) as edge:
        response = await post(edge, model, **fields)

    result = response.json()["result"]
    assert result["choices"][0]["message"] == {
        "role": "assistant",
        "content": "42",
        "refusal": None,
    }
    assert result["usage"]["completion_tokens_details"] == {"reasoning_tokens": 0}


@pytest.mark.asyncio
@either
@pytest.mark.parametrize(
    ("field", "fields"),
    [
        ("reasoning_effort", {"reasoning_effort": "enormous"}),
        ("chat_template_kwargs/think", {"chat_template_kwargs": {"think": False}}),
        ("enable_thinking", {"enable_thinking": False}),
    ],
)
async def test_a_control_of_thinking_that_would_have_no_effect_is_refused_by_name(
    state: State, model: str, field: str, fields: dict[str, Any]
) -> None:
    node = a_node(*written(FAMILIES[model], "hm", "42"))
    async with an_edge(state, node, offers=family_offers()) as edge:
        response = await post(edge, model, **fields)

    assert code_of(response) == (400, 5006)
    assert f"'/{field}'" in message_of(response)
    assert not node.submits


@pytest.mark.asyncio
@either
async def test_past_thinking_is_kept_under_every_name(state: State, model: str) -> None:
    talk = [USER, {"role": "assistant", "content": "4", "reasoning": "2 and 2"}, USER]
    node = a_node(*written(FAMILIES[model], "hm", "ok"))
    names: list[dict[str, Any]] = [
        {"chat_template_kwargs": {"clear_thinking": False}},
        {"chat_template_kwargs": {"preserve_thinking": True}},
        {"thinking": {"type": "enabled", "keep": "all"}},
        {"thinking": {"type": "enabled", "clear_thinking": False}},
    ]
    async with an_edge(state, node, offers=family_offers()) as edge:
        for fields in [*names, {}]:
            await ask(edge, model, messages=talk, **fields)

    *kept, dropped = (submit.token_ids for submit in node.submits)
    assert kept == [kept[0]] * len(names)
    assert len(kept[0]) == len(dropped) + len(spoken(FAMILIES[model], "2 and 2"))


@pytest.mark.asyncio
@either
@pytest.mark.parametrize(
    ("field", "fields"),
    [
        (
            "thinking/clear_thinking",
            {"thinking": {"type": "enabled", "keep": "all", "clear_thinking": True}},
        ),
        (
            "thinking/keep",
            {
                "thinking": {"type": "enabled", "keep": "all"},
                "chat_template_kwargs": {"preserve_thinking": False},
            },
        ),
        (
            "chat_template_kwargs/reasoning_effort",
            {
                "reasoning_effort": "high",
                "chat_template_kwargs": {"reasoning_effort": "low"},
            },
        ),
    ],
)
async def test_two_names_that_say_different_things_are_refused(
    state: State, model: str, field: str, fields: dict[str, Any]
) -> None:
    async with an_edge(state, a_node(1), offers=family_offers()) as edge:
        response = await post(edge, model, **fields)

    assert code_of(response) == (400, 5006)
    assert f"'/{field}'" in message_of(response)


@pytest.mark.asyncio
@either
@each_way
async def test_reasoning_has_both_names_and_is_no_content(
    state: State, model: str, stream: bool
) -> None:
    text = FAMILIES[model]
    node = a_node(*written(text, "let me think", "42"))
    async with an_edge(state, node, offers=family_offers()) as edge:
        response = await post(edge, model, stream=stream)

    if stream:
        *chunks, last, _ = records(response.text)
        deltas = [chunk["choices"][0]["delta"] for chunk in chunks]
    else:
        last = response.json()["result"]
        deltas = [last["choices"][0]["message"]]
    for name, said in {
        "reasoning": "let me think",
        "reasoning_content": "let me think",
        "content": "42",
    }.items():
        assert "".join(delta.get(name) or "" for delta in deltas) == said
    # the tag that ends it counts
    thought = {"reasoning_tokens": len(spoken(text, "let me think")) + 1}
    assert last["usage"]["completion_tokens_details"] == thought


@pytest.mark.asyncio
@either
async def test_reasoning_comes_back_under_either_name(state: State, model: str) -> None:
    node = a_node(*written(FAMILIES[model], "", "ok"))
    async with an_edge(state, node, offers=family_offers()) as edge:
        for names in (["reasoning"], ["reasoning_content"], ["reasoning", "reasoning_content"]):
            thought = calling("c", content="", **dict.fromkeys(names, "because"))
            result = {"role": "tool", "tool_call_id": "c", "content": "rain"}
            await ask(edge, model, messages=[USER, thought, result])

    first, *others = (submit.token_ids for submit in node.submits)
    assert all(other == first for other in others)
    thought_ids = spoken(FAMILIES[model], "because")
    assert any(first[at : at + len(thought_ids)] == thought_ids for at in range(len(first)))


@pytest.mark.asyncio
@either
@pytest.mark.parametrize("url", ["https://example.com/a.png", "data:image/png;base64,iVBORw0KGgo="])
@pytest.mark.parametrize("role", ["user", "tool", "assistant", "system"])
async def test_an_image_is_refused_and_never_dropped(
    state: State, model: str, url: str, role: str
) -> None:
    image = {"type": "image_url", "image_url": {"url": url}}
    looking: dict[str, Any] = {"role": role, "content": [{"type": "text", "text": "look"}, image]}
    before = [calling("c")] if role == "tool" else []
    if role == "tool":
        looking["tool_call_id"] = "c"
    node = a_node(*written(FAMILIES[model], "", "nice"))
    async with an_edge(state, node, offers=family_offers()) as edge:
        response = await post(edge, model, messages=[USER, *before, looking, USER])

    assert code_of(response) == (400, 5006)
    assert "'image_url' is not supported" in message_of(response)
    assert f"/messages/{len(before) + 1}/content/1" in message_of(response)
    assert not node.submits
