"""`/ai/run` over HTTP: paths, tokens, answers and errors."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

from support.edges import RUN, State, an_edge
from support.plain_text import ARGUMENTS, CALL, CALL_END, END, THINK_END, an_offer
from support.requests import a_body
from support.token_source import FakeTokenSource
from tenantry_runtime.edge.config import Limits
from tenantry_runtime.errors import CapacityExceeded, GenerationFailed

ACCOUNTS = "/client/v4/accounts"


def events(response: httpx.Response) -> list[Any]:
    """Read a stream; `[DONE]` stays text."""
    lines = [line for line in response.text.split("\n\n") if line]
    bodies = [line.removeprefix("data: ") for line in lines if not line.startswith(":")]
    return [body if body == "[DONE]" else json.loads(body) for body in bodies]


def the_error(response: httpx.Response) -> tuple[int, int, str]:
    envelope = response.json()
    assert envelope["success"] is False
    assert envelope["messages"] == []
    [entry] = envelope["errors"]
    return response.status_code, entry["code"], entry["message"]


@pytest.mark.asyncio
async def test_a_prompt_is_answered(state: State) -> None:
    async with an_edge(state, FakeTokenSource("4", f"2{END}", cached_tokens=3)) as edge:
        response = await edge.run(prompt="6 times 7")

    assert response.status_code == 200
    assert response.headers["content-type"] == "application/json"
    result = response.json()["result"]
    assert result["choices"][0]["message"]["content"] == "42"
    assert result["choices"][0]["finish_reason"] == "stop"
    assert result["model"] == "@cf/moonshotai/kimi-k2.6"
    assert result["usage"]["prompt_tokens_details"] == {"cached_tokens": 3}
    assert result["usage"]["completion_tokens"] == 3


@pytest.mark.asyncio
async def test_the_same_answer_is_streamed(state: State) -> None:
    script = f"hm{THINK_END}4", f"2{END}"
    async with an_edge(state, FakeTokenSource(*script)) as edge:
        fields = {"chat_template_kwargs": {"thinking": True}}
        whole = (await edge.run(**fields)).json()["result"]
        response = await edge.run(stream=True, **fields)

    assert response.status_code == 200
    assert response.headers["content-type"] == "text/event-stream"
    assert response.headers["cache-control"] == "no-cache"
    *chunks, last, usage, done = events(response)
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks]
    assert deltas[0] == {"role": "assistant", "content": ""}
    message = whole["choices"][0]["message"]
    for name in ("content", "reasoning", "reasoning_content"):
        assert "".join(delta.get(name, "") for delta in deltas) == message[name]
    assert last["choices"][0]["finish_reason"] == "stop"
    assert usage["usage"] == whole["usage"]
    assert usage["usage"]["completion_tokens_details"] == {"reasoning_tokens": 3}
    assert done == "[DONE]"


@pytest.mark.asyncio
async def test_tool_calls_finish_as_such(state: State) -> None:
    script = f'{CALL}f{ARGUMENTS}{{"a": 1}}{CALL_END}{END}'
    async with an_edge(state, FakeTokenSource(script)) as edge:
        response = await edge.run(tools=[{"name": "f"}])

    [choice] = response.json()["result"]["choices"]
    assert choice["finish_reason"] == "tool_calls"
    assert choice["message"]["content"] is None
    assert choice["message"]["tool_calls"][0]["function"] == {"name": "f", "arguments": '{"a": 1}'}


@pytest.mark.asyncio
@pytest.mark.parametrize(
    "model",
    [
        "kimi-k2.6",
        "@cf/moonshotai/kimi-k2.6",
        "@cf%2Fmoonshotai%2Fkimi-k2.6",
        "%40cf%2Fmoonshotai%2Fkimi-k2.6",
    ],
)
async def test_a_model_is_named_with_raw_or_encoded_slashes(state: State, model: str) -> None:
    async with an_edge(state, FakeTokenSource(END)) as edge, edge.client() as client:
        response = await client.post(f"{ACCOUNTS}/dev/ai/run/{model}", content=a_body())

    assert response.json()["result"]["model"] == "@cf/moonshotai/kimi-k2.6"


@pytest.mark.asyncio
async def test_the_answer_and_the_node_know_the_request_by_one_id(state: State) -> None:
    node = FakeTokenSource(END)
    async with an_edge(state, node) as edge:
        response = await edge.run()

    request_id = response.headers["cf-ai-req-id"]
    assert node.submits[0].request_id == request_id
    assert response.json()["result"]["id"] == f"chatcmpl-{request_id}"
    assert node.submits[0].tenant == "dev"


@pytest.mark.asyncio
async def test_the_affinity_header_is_the_session(state: State) -> None:
    node = FakeTokenSource(END)
    async with an_edge(state, node) as edge, edge.client() as client:
        await client.post(RUN, content=a_body(), headers={"x-session-affinity": "ses_1"})

    assert node.submits[0].session == "ses_1"


@pytest.mark.asyncio
async def test_every_request_without_a_seed_gets_its_own(state: State) -> None:
    node = FakeTokenSource(END)
    async with an_edge(state, node) as edge:
        for _ in range(3):
            await edge.run()

    assert len({submit.sampling.seed for submit in node.submits}) == 3


@pytest.mark.asyncio
@pytest.mark.parametrize(
    "authorization",
    [None, "", "Bearer", "Bearer nonsense", "Basic dGVzdA==", "tenantry_x", "Bearer tenantry_\xe9"],
)
async def test_without_a_good_token_there_is_no_answer(
    state: State, authorization: str | None
) -> None:
    headers = httpx.Headers()
    if authorization is not None:
        headers = httpx.Headers([(b"authorization", authorization.encode("latin-1"))])
    async with an_edge(state, FakeTokenSource(END)) as edge:
        transport = httpx.ASGITransport(edge.app)
        async with httpx.AsyncClient(transport=transport, base_url="http://edge") as client:
            response = await client.post(RUN, content=a_body(), headers=headers)

    assert the_error(response) == (401, 10000, "Authentication error")
    assert response.json()["result"] is None


@pytest.mark.asyncio
async def test_the_schemes_case_does_not_matter(state: State) -> None:
    async with an_edge(state, FakeTokenSource(END)) as edge, edge.client() as client:
        headers = {"authorization": f"bearer {state.token}"}
        response = await client.post(RUN, content=a_body(), headers=headers)

    assert response.status_code == 200


@pytest.mark.asyncio
@pytest.mark.parametrize("account", ["other", "nobody"])
async def test_a_token_opens_no_other_account(state: State, account: str) -> None:
    async with an_edge(state, FakeTokenSource(END)) as edge, edge.client() as client:
        response = await client.post(f"{ACCOUNTS}/{account}/ai/run/kimi-k2.6", content=a_body())

    assert the_error(response) == (403, 10000, "Authentication error")


@pytest.mark.asyncio
async def test_an_unknown_model_is_refused_with_near_matches(state: State) -> None:
    async with an_edge(state, FakeTokenSource(END)) as edge, edge.client() as client:
        response = await client.post(f"{ACCOUNTS}/dev/ai/run/kimi-k2.5", content=a_body())

    assert the_error(response) == (400, 5007, "No such model kimi-k2.5; did you mean kimi-k2.6?")


@pytest.mark.asyncio
async def test_bad_input_names_the_field(state: State) -> None:
    async with an_edge(state, FakeTokenSource(END)) as edge:
        response = await edge.run(max_tokens=0)

    status, code, message = the_error(response)
    assert (status, code) == (400, 5006)
    assert message == "AiError: Bad input: '/max_tokens': expected int >= 1"
    assert response.headers["content-type"] == "application/json"
    assert response.headers["cf-ai-req-id"]
    assert response.json()["result"] == {}


@pytest.mark.asyncio
@pytest.mark.parametrize("query", ["queueRequest=true", "version=3", "x"])
async def test_a_query_that_asks_for_another_answer_is_refused(state: State, query: str) -> None:
    async with an_edge(state, FakeTokenSource(END)) as edge, edge.client() as client:
        response = await client.post(f"{RUN}?{query}", content=a_body())

    assert the_error(response)[:2] == (400, 5006)


@pytest.mark.asyncio
async def test_a_query_that_labels_the_request_is_accepted(state: State) -> None:
    async with an_edge(state, FakeTokenSource(END)) as edge, edge.client() as client:
        response = await client.post(f"{RUN}?queueRequest=false&tags=a", content=a_body())

    assert response.status_code == 200


@pytest.mark.asyncio
async def test_an_encoded_body_is_refused(state: State) -> None:
    async with an_edge(state, FakeTokenSource(END)) as edge, edge.client() as client:
        headers = {"content-encoding": "gzip"}
        response = await client.post(RUN, content=a_body(), headers=headers)

    assert the_error(response)[:2] == (400, 5006)
    assert "content-encoding" in the_error(response)[2]


@pytest.mark.asyncio
async def test_a_body_over_the_limit_is_refused(state: State) -> None:
    limits = Limits(max_body_bytes=100)
    async with an_edge(state, FakeTokenSource(END), limits=limits) as edge:
        assert (await edge.run(prompt="x" * 50)).status_code == 200
        response = await edge.run(prompt="x" * 200)

    assert the_error(response) == (413, 3006, "the request body is larger than 100 bytes")


@pytest.mark.asyncio
async def test_what_does_not_fit_the_context_is_refused(state: State) -> None:
    offers = [an_offer(context_tokens=20)]
    async with an_edge(state, FakeTokenSource(END), offers=offers) as edge:
        response = await edge.run(prompt="hi", max_tokens=100)

    assert the_error(response) == (
        413,
        5021,
        "The estimated number of input and maximum output tokens (108) exceeded this model "
        "context window limit (20)",
    )


@pytest.mark.asyncio
async def test_without_a_healthy_node_the_client_is_told_to_come_back(state: State) -> None:
    node = FakeTokenSource(END)
    node.is_healthy = False
    async with an_edge(state, node) as edge:
        response = await edge.run()

    assert the_error(response)[:2] == (503, 7009)
    assert response.headers["retry-after"] == "1"


@pytest.mark.asyncio
@pytest.mark.parametrize("stream", [False, True])
async def test_a_full_node_is_an_error_status_also_for_streams(state: State, stream: bool) -> None:
    async with an_edge(state, FakeTokenSource(CapacityExceeded(retry_after_s=3))) as edge:
        response = await edge.run(stream=stream)

    message = "Capacity temporarily exceeded, please try again."
    assert the_error(response) == (429, 3040, message)
    assert response.headers["retry-after"] == "3"
    assert response.headers["content-type"] == "application/json"


@pytest.mark.asyncio
async def test_a_stream_that_breaks_says_so_and_is_not_done(state: State) -> None:
    async with an_edge(state, FakeTokenSource("4", GenerationFailed("node lost"))) as edge:
        response = await edge.run(stream=True)

    assert response.status_code == 200
    *_, content, error = events(response)
    assert content["choices"][0]["delta"] == {"content": "4"}
    assert error["errors"] == [{"code": 3043, "message": "generation failed: node lost"}]
    assert "[DONE]" not in response.text


@pytest.mark.asyncio
async def test_a_whole_answer_that_breaks_is_an_error_and_nothing_else(state: State) -> None:
    async with an_edge(state, FakeTokenSource("4", GenerationFailed("node lost"))) as edge:
        response = await edge.run()

    assert the_error(response) == (500, 3043, "generation failed: node lost")


@pytest.mark.asyncio
async def test_an_answer_that_takes_too_long_is_given_up(state: State) -> None:
    node = FakeTokenSource("a", endless=True)
    async with an_edge(state, node, limits=Limits(request_timeout_s=0.05)) as edge:
        response = await edge.run()

    assert the_error(response) == (408, 3007, "Request timeout")
    assert node.cancelled.is_set()


@pytest.mark.asyncio
async def test_a_bug_is_an_error_in_the_dialects_form_and_is_logged(
    state: State, caplog: pytest.LogCaptureFixture
) -> None:
    class Buggy(FakeTokenSource):
        @property
        def description(self) -> Any:
            raise ZeroDivisionError("by a bug")

    async with an_edge(state, Buggy(END)) as edge:
        response = await edge.run()

    assert the_error(response) == (500, 3043, "generation failed: internal error")
    assert "by a bug" in caplog.text
    assert response.headers["cf-ai-req-id"] in caplog.text


@pytest.mark.asyncio
async def test_requests_over_the_limit_are_refused_at_once(state: State) -> None:
    async with an_edge(state, FakeTokenSource(END), limits=Limits(max_requests=1)) as edge:
        with edge.services.open_requests.admit():
            response = await edge.run()
        assert the_error(response)[:2] == (429, 3040)
        assert (await edge.run()).status_code == 200


@pytest.mark.asyncio
@pytest.mark.parametrize(
    "path", ["/", "/client/v4", "/client/v4/accounts/dev/ai/run", RUN + "x/../../../..", "/health/"]
)
async def test_other_paths_have_no_route(state: State, path: str) -> None:
    async with an_edge(state, FakeTokenSource(END)) as edge, edge.client() as client:
        response = await client.get(path)

    assert the_error(response) == (404, 7000, "No route for that URI")
    assert response.json()["result"] is None
    assert response.headers["content-type"] == "application/json"


@pytest.mark.asyncio
async def test_another_method_is_refused_with_those_that_are_allowed(state: State) -> None:
    async with an_edge(state, FakeTokenSource(END)) as edge, edge.client() as client:
        response = await client.get(RUN)

    assert the_error(response) == (405, 7001, "Method GET not allowed for this URI")
    assert response.headers["allow"] == "POST"
