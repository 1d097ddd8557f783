"""What the routes of OpenAI's API have in common: models, tokens, errors, sessions."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from support.edges import State, an_edge
from support.openai_calls import BASES, MINIMAL, ROOT, UNDER_ACCOUNT, call, events
from support.plain_text import END, GLM, KIMI
from support.token_source import FakeTokenSource
from tenantry_runtime.errors import CapacityExceeded, GenerationFailed

ROUTES = list(MINIMAL)
every_base = pytest.mark.parametrize("base", BASES)
every_route = pytest.mark.parametrize("route", ROUTES)


def the_error(response: httpx.Response) -> tuple[int, dict[str, Any], int]:
    """Return status, OpenAI's error and the envelope's code; both say the same."""
    body = response.json()
    assert set(body) == {"error", "success", "errors", "messages", "result"}
    assert (body["success"], body["messages"], body["result"]) == (False, [], None)
    [entry] = body["errors"]
    assert entry["message"] == body["error"]["message"]
    return response.status_code, body["error"], entry["code"]


@every_base
@every_route
@pytest.mark.asyncio
async def test_an_answer_is_a_bare_object_of_the_model(state: State, base: str, route: str) -> None:
    async with an_edge(state, FakeTokenSource(f"42{END}")) as edge:
        response = await call(edge, route, base=base)

    assert response.status_code == 200
    assert response.headers["content-type"] == "application/json"
    body = response.json()
    assert body["model"] == KIMI.id
    assert response.headers["cf-ai-req-id"] in body["id"]
    assert "success" not in body


@every_route
@pytest.mark.asyncio
async def test_at_the_root_the_token_says_whose_request_it_is(state: State, route: str) -> None:
    node = FakeTokenSource(END)
    async with an_edge(state, node) as edge:
        await call(edge, route)
        await call(edge, route, headers={"authorization": f"Bearer {state.other_token}"})

    assert [submit.tenant for submit in node.submits] == ["dev", "other"]


@every_route
@pytest.mark.asyncio
async def test_under_an_account_the_token_must_be_its_own(state: State, route: str) -> None:
    headers = {"authorization": f"Bearer {state.other_token}"}
    async with an_edge(state, FakeTokenSource(END)) as edge:
        response = await call(edge, route, base=UNDER_ACCOUNT, headers=headers)

    status, error, code = the_error(response)
    assert (status, error["type"], code) == (403, "permission_error", 10000)


@every_base
@every_route
@pytest.mark.asyncio
async def test_without_a_good_token_there_is_no_answer(state: State, base: str, route: str) -> None:
    async with an_edge(state, FakeTokenSource(END)) as edge:
        response = await call(edge, route, base=base, headers={"authorization": "Bearer x"})

    status, error, code = the_error(response)
    assert (status, code) == (401, 10000)
    assert error == {
        "message": "Authentication error",
        "type": "authentication_error",
        "code": "invalid_api_key",
        "param": None,
    }
    assert response.headers["www-authenticate"] == "Bearer"


@every_route
@pytest.mark.asyncio
async def test_an_unknown_model_is_not_found_with_near_matches(state: State, route: str) -> None:
    async with an_edge(state, FakeTokenSource(END)) as edge:
        response = await call(edge, route, model="kimi-k2.5")

    status, error, code = the_error(response)
    assert (status, error["code"], error["param"], code) == (404, "model_not_found", "model", 5007)
    assert error["message"] == "No such model kimi-k2.5; did you mean kimi-k2.6?"


@every_route
@pytest.mark.asyncio
async def test_a_body_without_a_model_is_refused(state: State, route: str) -> None:
    async with an_edge(state, FakeTokenSource(END)) as edge, edge.client() as client:
        response = await client.post(f"{ROOT}/{route}", content=b"{}")

    status, error, code = the_error(response)
    assert (status, error["param"], code) == (400, "model", 5006)


@every_route
@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"null", b"[" * 100_000])
@pytest.mark.asyncio
async def test_what_is_no_such_json_is_bad_input(state: State, route: str, body: bytes) -> None:
    async with an_edge(state, FakeTokenSource(END)) as edge, edge.client() as client:
        response = await client.post(f"{ROOT}/{route}", content=body)

    status, error, _ = the_error(response)
    assert (status, error["type"]) == (400, "invalid_request_error")


@every_route
@pytest.mark.asyncio
async def test_a_bad_parameter_is_named(state: State, route: str) -> None:
    async with an_edge(state, FakeTokenSource(END)) as edge:
        response = await call(edge, route, temperature=3)

    status, error, _ = the_error(response)
    assert (status, error["param"], error["code"]) == (400, "temperature", "invalid_value")


@every_route
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.asyncio
async def test_a_full_node_says_when_to_come_back(state: State, route: str, stream: bool) -> None:
    async with an_edge(state, FakeTokenSource(CapacityExceeded(retry_after_s=3))) as edge:
        response = await call(edge, route, stream=stream)

    status, error, code = the_error(response)
    assert (status, error["type"], code) == (429, "rate_limit_error", 3040)
    assert response.headers["retry-after"] == "3"


@every_route
@pytest.mark.asyncio
async def test_a_stream_that_breaks_says_so_in_both_forms(state: State, route: str) -> None:
    async with an_edge(state, FakeTokenSource("4", GenerationFailed("node lost"))) as edge:
        response = await call(edge, route, stream=True)

    assert response.status_code == 200
    [broken] = [record for record in events(response) if "error" in record]
    assert broken["error"]["message"] == "generation failed: node lost"
    assert broken["errors"] == [{"code": 3043, "message": "generation failed: node lost"}]
    assert "[DONE]" not in response.text


@every_route
@pytest.mark.asyncio
async def test_a_context_that_is_too_short_is_said_in_openais_words(
    state: State, route: str
) -> None:
    async with an_edge(state, FakeTokenSource(END)) as edge:
        name = "max_output_tokens" if route == "responses" else "max_tokens"
        fields: dict[str, Any] = {name: 2000}
        response = await call(edge, route, **fields)

    status, error, code = the_error(response)
    assert (status, error["code"], code) == (400, "context_length_exceeded", 5021)


@every_route
@pytest.mark.asyncio
async def test_the_cache_key_is_the_session_unless_a_header_names_one(
    state: State, route: str
) -> None:
    node = FakeTokenSource(END)
    async with an_edge(state, node) as edge:
        await call(edge, route, prompt_cache_key="key")
        header = {"x-session-affinity": "ses_1"}
        await call(edge, route, prompt_cache_key="key", headers=header)

    assert [submit.session for submit in node.submits] == ["key", "ses_1"]


@every_route
@pytest.mark.asyncio
async def test_who_would_rather_be_refused_than_wait_says_so(state: State, route: str) -> None:
    node = FakeTokenSource(END)
    async with an_edge(state, node) as edge:
        await call(edge, route)
        await call(edge, route, options={"rejectIfBusy": True})

    assert [submit.may_wait for submit in node.submits] == [True, False]


@every_base
@pytest.mark.asyncio
async def test_models_are_listed_and_shown_by_any_name(state: State, base: str) -> None:
    async with an_edge(state, FakeTokenSource()) as edge:
        listed = (await edge.get(f"{base}/models")).json()
        shown = [
            (await edge.get(f"{base}/models/{name}")).json()
            for name in ("kimi-k2.6", "@cf/moonshotai/kimi-k2.6", "@cf%2Fmoonshotai%2Fkimi-k2.6")
        ]

    assert listed["object"] == "list"
    assert [model["id"] for model in listed["data"]] == [KIMI.id, GLM.id]
    # 2026-01-01, as the catalog says
    kimi = {"id": KIMI.id, "object": "model", "created": 1767225600, "owned_by": "moonshotai"}
    assert listed["data"][0] == kimi
    assert shown == [kimi] * 3


@every_base
@pytest.mark.asyncio
async def test_an_unknown_model_is_not_shown(state: State, base: str) -> None:
    async with an_edge(state, FakeTokenSource()) as edge:
        response = await edge.get(f"{base}/models/gpt-4o")

    status, error, code = the_error(response)
    assert (status, error["code"], code) == (404, "model_not_found", 5007)


@every_base
@pytest.mark.asyncio
async def test_models_need_a_token(state: State, base: str) -> None:
    async with an_edge(state, FakeTokenSource()) as edge, edge.client() as client:
        response = await client.get(f"{base}/models", headers={"authorization": "Bearer x"})

    assert the_error(response)[0] == 401


@every_base
@pytest.mark.parametrize("path", ["embeddings", "audio/speech", "chat", "responses/resp_1"])
@pytest.mark.asyncio
async def test_what_is_no_route_says_so_in_both_forms(state: State, base: str, path: str) -> None:
    async with an_edge(state, FakeTokenSource()) as edge:
        response = await edge.get(f"{base}/{path}")

    status, error, code = the_error(response)
    assert (status, error["code"], code) == (404, "unknown_url", 7000)


@every_base
@pytest.mark.asyncio
async def test_another_method_is_refused_in_both_forms(state: State, base: str) -> None:
    async with an_edge(state, FakeTokenSource()) as edge:
        response = await edge.get(f"{base}/chat/completions")

    status, error, code = the_error(response)
    assert (status, error["code"], code) == (405, "method_not_allowed", 7001)
    assert response.headers["allow"] == "POST"


@pytest.mark.asyncio
async def test_a_streamed_response_is_numbered_from_its_beginning(state: State) -> None:
    async with an_edge(state, FakeTokenSource("4", f"2{END}")) as edge:
        records = events(await call(edge, "responses", stream=True))

    assert [record["sequence_number"] for record in records] == [*range(len(records))]
    assert records[0]["type"] == "response.created"
    assert records[0]["response"]["output"] == []
