"""What users of hosted APIs complain about in the service, and what happens here instead."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import httpx
import pytest

from support.chat_stream import read_stream, records
from support.edges import RUN, SEARCH, AsgiCall, State, an_edge, make_state
from support.families import (
    CONTEXT_TOKENS,
    FAMILIES,
    MODELS,
    WEATHER,
    a_node,
    family_offers,
    post,
    spoken,
    written,
)
from support.openai_calls import BASES, MINIMAL, call as call_openai
from support.plain_text import GLM, KIMI
from support.requests import a_body
from support.token_source import FakeTokenSource
from tenantry_runtime.core import TenantId
from tenantry_runtime.edge.config import Limits
from tenantry_runtime.edge.reply import KEEP_ALIVE
from tenantry_runtime.errors import CapacityExceeded, GenerationFailed
from tenantry_runtime.tenancy import open_store

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
@each_way
async def test_an_answer_may_take_the_rest_of_the_context_and_says_when_it_was_cut(
    state: State, model: str, stream: bool
) -> None:
    node = a_node(*spoken(FAMILIES[model], "never done"))
    async with an_edge(state, node, offers=family_offers()) as edge:
        response = await post(edge, model, stream=stream)

    [submit] = node.submits
    assert submit.max_tokens == CONTEXT_TOKENS - len(submit.token_ids)
    if stream:
        assert read_stream(response.text).finish_reason == "length"
    else:
        assert response.json()["result"]["choices"][0]["finish_reason"] == "length"


@pytest.mark.asyncio
@each_way
async def test_busy_too_fast_and_used_up_are_told_apart_and_say_when_to_come_back(
    tmp_path: Path, stream: bool
) -> None:
    terms: dict[str, dict[tuple[str, ...], float]] = {
        "busy": {},
        "too fast": {("quota", "requests_per_minute"): 1},
        "used up": {("daily_neurons",): 0.0},
    }
    refusals: dict[str, httpx.Response] = {}
    for name, changes in terms.items():
        limited = await make_state(tmp_path / name)
        async with open_store(limited.directory) as store:
            await store.accounts.change(TenantId("dev"), changes=changes)
        busy = CapacityExceeded(retry_after_s=3)
        node = FakeTokenSource(busy if name == "busy" else [1])
        async with an_edge(limited, node, offers=family_offers()) as edge:
            if name == "too fast":
                await post(edge, KIMI.id, stream=stream)
            refusals[name] = await post(edge, KIMI.id, stream=stream)

    assert {name: code_of(response) for name, response in refusals.items()} == {
        "busy": (429, 3040),
        "too fast": (429, 3021),
        "used up": (429, 3036),
    }
    for response in refusals.values():
        assert int(response.headers["retry-after"]) >= 1
        assert response.headers["content-type"] == "application/json"


@pytest.mark.asyncio
async def test_who_would_rather_be_refused_than_wait_is_not_queued(state: State) -> None:
    node = FakeTokenSource(CapacityExceeded())
    async with an_edge(state, node, offers=family_offers()) as edge:
        response = await post(edge, KIMI.id, options={"rejectIfBusy": True})
        await post(edge, KIMI.id)

    assert code_of(response) == (429, 3040)
    assert [submit.may_wait for submit in node.submits] == [False, True]


@pytest.mark.asyncio
@either
async def test_long_thinking_keeps_its_stream_alive_with_comments(state: State, model: str) -> None:
    gate = anyio.Event()
    text = FAMILIES[model]
    node = FakeTokenSource(gate, written(text, "hm", "done"))
    limits = Limits(keep_alive_s=0.01)
    async with (
        an_edge(state, node, limits=limits, offers=family_offers()) as edge,
        anyio.create_task_group() as tasks,
    ):
        path = RUN.replace("kimi-k2.6", model)
        call = AsgiCall(edge=edge, body=a_body(stream=True), path=path)
        tasks.start_soon(call)
        with anyio.fail_after(20):
            await call.has_sent.wait()
        assert call.printed.startswith(KEEP_ALIVE)
        gate.set()

    streamed = read_stream(call.printed.decode())
    assert (streamed.ended, streamed.content) == ("done", "done")
    assert streamed.num_comments >= 1


def test_an_answer_that_is_not_streamed_has_minutes_and_not_seconds() -> None:
    assert Limits().request_timeout_s >= 600


@pytest.mark.asyncio
@each_way
async def test_a_client_that_hangs_up_stops_the_model(state: State, stream: bool) -> None:
    node = FakeTokenSource([102], endless=True)
    async with (
        an_edge(state, node, offers=family_offers()) as edge,
        anyio.create_task_group() as tasks,
    ):
        call = AsgiCall(edge=edge, body=a_body(stream=stream))
        tasks.start_soon(call)
        with anyio.fail_after(20):
            await node.started.wait()
            call.leaves.set()
            await node.cancelled.wait()

    assert not call.is_complete


@pytest.mark.asyncio
@each_way
@pytest.mark.parametrize("cached", [0, 64])
async def test_cached_tokens_are_told_also_where_there_are_none(
    state: State, stream: bool, cached: int
) -> None:
    node = a_node(*written(FAMILIES[KIMI.id], "hm", "ok"), cached_tokens=cached)
    async with an_edge(state, node, offers=family_offers()) as edge:
        response = await post(edge, KIMI.id, stream=stream)

    usage = read_stream(response.text).usage if stream else response.json()["result"]["usage"]
    assert usage["prompt_tokens_details"] == {"cached_tokens": cached}


@pytest.mark.asyncio
@either
async def test_affinity_is_a_hint_that_changes_nothing_of_the_prompt(
    state: State, model: str
) -> None:
    node = a_node(*written(FAMILIES[model], "hm", "ok"))
    async with an_edge(state, node, offers=family_offers()) as edge, edge.client() as client:
        for headers in ({}, {"x-session-affinity": "ses_1"}):
            path = RUN.replace("kimi-k2.6", model)
            response = await client.post(path, content=a_body(), headers=headers)
            assert response.status_code == 200

    plain, hinted = node.submits
    assert (plain.session, hinted.session) == (None, "ses_1")
    assert plain.token_ids == hinted.token_ids


@pytest.mark.asyncio
@either
@pytest.mark.parametrize("tools", [[], [WEATHER]], ids=["plain", "tools"])
async def test_whoever_asks_for_a_stream_gets_one_with_its_usage_once_at_the_end(
    state: State, model: str, tools: list[Any]
) -> None:
    node = a_node(*written(FAMILIES[model], "hm", "42"))
    async with an_edge(state, node, offers=family_offers()) as edge:
        response = await post(edge, model, stream=True, tools=tools)

    assert response.headers["content-type"] == "text/event-stream"
    *chunks, last, usage, done = records(response.text)
    assert done == "[DONE]"
    assert last["choices"][0]["finish_reason"] == "stop"
    assert usage["usage"]["completion_tokens"] == len(written(FAMILIES[model], "hm", "42"))
    assert not any("usage" in chunk for chunk in [*chunks, last])


@pytest.mark.asyncio
async def test_a_model_has_its_names_and_a_mistaken_one_is_told_what_is_near(state: State) -> None:
    node = a_node(*written(FAMILIES[GLM.id], "", "ok"))
    async with an_edge(state, node, offers=family_offers()) as edge:
        for name in ("glm-5.2", "@cf/zai-org/glm-5.2"):
            assert (await post(edge, name)).json()["result"]["model"] == GLM.id
        mistaken = await post(edge, "@cf/zai-org/glm-5.1")
        unknown = await post(edge, "gpt-4o")

    assert code_of(mistaken) == code_of(unknown) == (400, 5007)
    assert "did you mean @cf/zai-org/glm-5.2?" in message_of(mistaken)
    assert "gpt-4o" in message_of(unknown)


@pytest.mark.asyncio
async def test_a_token_that_may_run_a_model_may_also_list_them(state: State) -> None:
    node = a_node(*written(FAMILIES[KIMI.id], "", "ok"))
    async with an_edge(state, node, offers=family_offers()) as edge:
        listed = await edge.get(SEARCH)
        answered = await post(edge, KIMI.id)

    assert (listed.status_code, answered.status_code) == (200, 200)
    assert KIMI.id in [model["name"] for model in listed.json()["result"]]


@pytest.mark.asyncio
@pytest.mark.parametrize("path", [RUN, SEARCH], ids=["run", "list"])
async def test_a_bad_token_gets_the_same_words_everywhere(state: State, path: str) -> None:
    async with an_edge(state, a_node(1), offers=family_offers()) as edge, edge.client() as client:
        send: Callable[..., Any] = client.post if path == RUN else client.get
        fields = {"content": a_body()} if path == RUN else {}
        response = await send(path, headers={"authorization": "Bearer tenantry_x"}, **fields)

    assert code_of(response) == (401, 10000)
    assert message_of(response) == "Authentication error"
    assert response.headers["www-authenticate"] == "Bearer"


@pytest.mark.asyncio
async def test_an_answer_is_exactly_json_for_who_compares_the_whole_type(state: State) -> None:
    node = a_node(*written(FAMILIES[KIMI.id], "", "ok"))
    async with an_edge(state, node, offers=family_offers()) as edge:
        good, bad = await post(edge, KIMI.id), await post(edge, KIMI.id, max_tokens=0)

    assert good.headers["content-type"] == bad.headers["content-type"] == "application/json"


@pytest.mark.asyncio
@pytest.mark.parametrize("base", BASES)
@pytest.mark.parametrize("route", list(MINIMAL))
@pytest.mark.parametrize(
    ("situation", "status", "code", "kind"),
    [
        ("bad value", 400, 5006, "invalid_request_error"),
        ("bad token", 401, 10000, "authentication_error"),
        ("no such model", 404, 5007, "invalid_request_error"),
        ("busy", 429, 3040, "rate_limit_error"),
        ("broken", 500, 3043, "server_error"),
    ],
)
async def test_errors_on_openai_paths_have_the_shapes_of_both_apis(
    state: State, base: str, route: str, situation: str, status: int, code: int, kind: str
) -> None:
    failures = {"busy": CapacityExceeded(), "broken": GenerationFailed("x")}
    node = FakeTokenSource(failures.get(situation, [1]))
    asked: dict[str, dict[str, Any]] = {
        "bad value": {"temperature": 99},
        "no such model": {"model": "gpt-4o"},
    }
    fields = asked.get(situation, {})
    headers = {"authorization": "Bearer x"} if situation == "bad token" else None
    async with an_edge(state, node, offers=family_offers()) as edge:
        response = await call_openai(edge, route, base=base, headers=headers, **fields)

    body = response.json()
    assert response.status_code == status
    assert response.headers["content-type"] == "application/json"
    assert set(body["error"]) == {"message", "type", "code", "param"}
    assert (body["error"]["type"], body["error"]["message"] != "") == (kind, True)
    assert body["errors"] == [{"code": code, "message": body["error"]["message"]}]
    assert (body["success"], body["messages"], body["result"]) == (False, [], None)
    if situation == "bad value":
        assert body["error"]["param"] == "temperature"


@pytest.mark.asyncio
@either
async def test_a_parameter_of_sampling_reaches_the_model_and_does_not_hang(
    state: State, model: str
) -> None:
    asked = {
        "top_k": 7,
        "repetition_penalty": 1.25,
        "frequency_penalty": 0.5,
        "presence_penalty": -0.5,
        "min_p": 0.125,
        "seed": 3,
    }
    node = a_node(*written(FAMILIES[model], "hm", "ok"))
    async with an_edge(state, node, offers=family_offers()) as edge:
        with anyio.fail_after(20):
            response = await post(edge, model, **asked)
            unknown = await post(edge, model, top_j=7)

    assert response.status_code == 200
    [submit] = node.submits
    assert {name: getattr(submit.sampling, name) for name in asked} == asked
    assert code_of(unknown) == (400, 5006)
    assert "'/top_j': is not supported" in message_of(unknown)
