"""What a client sees of routing: usage that stays true, and headers for who asks for them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import anyio
import httpx
import pytest

from support.edges import State, an_edge
from support.part_nodes import Cluster, Opened, PartNode, then
from support.plain_text import END, KIMI
from support.token_source import FakeTokenSource
from tenantry_runtime.cache.prefix_keys import pack_keys, page_keys
from tenantry_runtime.core import FinishReason
from tenantry_runtime.edge.config import Limits
from tenantry_runtime.errors import GenerationFailed, HandoffFailed, NodeLost
from tenantry_runtime.pool.messages import PrefixChanges

STOP = FinishReason.STOP
MEMBER, CACHED = "x-tenantry-member", "x-tenantry-cached-tokens"


def records(response: httpx.Response) -> Iterator[dict[str, Any]]:
    for line in response.text.splitlines():
        if line.startswith("data: {"):
            yield json.loads(line.removeprefix("data: "))


def usage_of(response: httpx.Response, *, stream: bool) -> dict[str, Any]:
    if stream:
        found: dict[str, Any] = list(records(response))[-1]["usage"]
    else:
        found = response.json()["result"]["usage"]
    return found


@pytest.mark.asyncio
@pytest.mark.parametrize("stream", [False, True])
async def test_cached_tokens_are_always_told(state: State, stream: bool) -> None:
    async with an_edge(state, FakeTokenSource(f"a{END}")) as edge:
        response = await edge.run(prompt="hi", stream=stream)

    assert usage_of(response, stream=stream)["prompt_tokens_details"] == {"cached_tokens": 0}


@pytest.mark.asyncio
@pytest.mark.parametrize("stream", [False, True])
async def test_usage_counts_a_preempted_request_once(state: State, stream: bool) -> None:
    def serve(opened: Opened) -> None:
        if len(opened.node.opened) == 1:
            then(opened, [lambda: opened.say("ans", cached_tokens=4), opened.preempt])
        else:
            then(opened, [lambda: opened.say(f"wer{END}", STOP, cached_tokens=9)])

    async with an_edge(state, PartNode("node", behave=serve)) as edge:
        response = await edge.run(prompt="hi", stream=stream)

    usage = usage_of(response, stream=stream)
    assert usage["prompt_tokens"] == len("user:hi\n")
    assert usage["completion_tokens"] == len(f"answer{END}")
    assert usage["prompt_tokens_details"] == {"cached_tokens": 4}
    if not stream:
        assert response.json()["result"]["choices"][0]["message"]["content"] == "answer"


@pytest.mark.asyncio
@pytest.mark.parametrize("stream", [False, True])
async def test_two_nodes_answer_as_one(state: State, stream: bool) -> None:
    cluster = Cluster(text=f"answer{END}")
    async with an_edge(state, cluster.nodes) as edge:
        response = await edge.run(prompt="hi", stream=stream)

    assert response.status_code == 200
    assert usage_of(response, stream=stream)["completion_tokens"] == 7
    assert MEMBER not in response.headers and CACHED not in response.headers


@pytest.mark.asyncio
@pytest.mark.parametrize("stream", [False, True])
async def test_headers_say_who_served_it_where_the_operator_wants_them(
    state: State, stream: bool
) -> None:
    cluster = Cluster(text=f"answer{END}")
    async with an_edge(state, cluster.nodes, show_routing=True) as edge:
        response = await edge.run(prompt="hi", stream=stream)

    assert response.headers[MEMBER] == f"prefill=p0/{KIMI.id} decode=d0/{KIMI.id}"
    assert response.headers[CACHED] == "0"


@pytest.mark.asyncio
async def test_an_address_that_is_no_header_is_written_as_one(state: State) -> None:
    node = PartNode("unix:/tmp/\u65e5 a", behave=lambda opened: opened.say(END, FinishReason.STOP))
    async with an_edge(state, node, show_routing=True) as edge:
        response = await edge.run(prompt="hi")

    assert response.status_code == 200
    member = f"unix:/tmp/%E6%97%A5%20a/{KIMI.id}"
    assert response.headers[MEMBER] == f"prefill={member} decode={member}"


@pytest.mark.asyncio
async def test_headers_of_an_error_say_what_is_known(state: State) -> None:
    node = PartNode("node", behave=lambda opened: opened.fail(GenerationFailed("internal: x")))
    async with an_edge(state, node, show_routing=True) as edge:
        response = await edge.run(prompt="hi")
        unauthenticated = await edge.run(max_tokens=0)

    assert response.status_code == 500
    assert response.headers[MEMBER] == f"prefill=node/{KIMI.id} decode=node/{KIMI.id}"
    assert CACHED not in response.headers
    assert MEMBER not in unauthenticated.headers


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("error", "status", "message"),
    [
        (
            lambda: HandoffFailed("node d0 refused: page_layout is 'a' here and 'b' there"),
            500,
            "hand-off failed: node d0 refused",
        ),
        (lambda: NodeLost(KIMI.id), 503, "is gone; try again"),
    ],
    ids=["handoff", "lost"],
)
async def test_an_error_names_the_situation(
    state: State, error: Any, status: int, message: str
) -> None:
    node = PartNode("node", behave=lambda opened: opened.fail(error()))
    async with an_edge(state, node) as edge:
        response = await edge.run(prompt="hi")

    assert response.status_code == status
    assert message in response.json()["errors"][0]["message"]


@pytest.mark.asyncio
async def test_a_stream_that_breaks_ends_with_an_error_and_not_with_done(state: State) -> None:
    def serve(opened: Opened) -> None:
        then(opened, [lambda: opened.say("a"), lambda: opened.fail(NodeLost(KIMI.id))])

    async with an_edge(state, [PartNode("one", behave=serve), PartNode("two")]) as edge:
        response = await edge.run(prompt="hi", stream=True)

    assert response.status_code == 200
    error = list(records(response))[-1]
    assert error["error"]["code"] == "service_unavailable"
    assert [entry["code"] for entry in error["errors"]] == [7009]
    assert "[DONE]" not in response.text


@pytest.mark.asyncio
async def test_a_stream_that_does_not_begin_in_time_is_a_timeout(state: State) -> None:
    node = FakeTokenSource(anyio.Event())
    limits = Limits(request_timeout_s=0.05)
    async with an_edge(state, node, limits=limits) as edge:
        response = await edge.run(prompt="hi", stream=True)

    assert response.status_code == 408
    assert node.cancelled.is_set()


@pytest.mark.asyncio
async def test_a_prompt_goes_where_its_beginning_is_known(state: State) -> None:
    nodes = [
        PartNode(
            f"node-{number}",
            behave=lambda opened: then(opened, [lambda: opened.say(f"a{END}", STOP)]),
        )
        for number in range(3)
    ]
    prompt = "a prompt that fills more than a page of sixty-four tokens, a character each"
    async with an_edge(state, nodes, show_routing=True) as edge:
        # of another tenant too, whose pages are none of this one's business
        for node, tenant in ((nodes[1], "other"), (nodes[2], "dev")):
            keys = page_keys(tenant, list(map(ord, f"user:{prompt}\n")))
            changes = PrefixChanges(
                model=KIMI.id, phase="prefill", added=pack_keys(keys), removed=b""
            )
            edge.services.nodes.changed(node.address, node.description, changes)
        response = await edge.run(prompt=prompt)

    assert response.headers[MEMBER].startswith("prefill=node-2/")


@pytest.mark.asyncio
async def test_a_session_over_the_limit_is_refused_by_its_header(state: State) -> None:
    async with an_edge(state, FakeTokenSource(END)) as edge, edge.client() as client:
        response = await client.post(
            "/client/v4/accounts/dev/ai/run/kimi-k2.6",
            content=b'{"prompt": "hi"}',
            headers={"x-session-affinity": "x" * 257},
        )

    assert response.status_code == 400
    assert response.json()["errors"][0]["message"] == (
        "AiError: Bad input: 'x-session-affinity': must be at most 256 characters long"
    )
