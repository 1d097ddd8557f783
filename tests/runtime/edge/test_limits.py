"""What a client sees of its tenant's limits."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import httpx
import pytest

from support.edges import ACCOUNT, RUN, AsgiCall, Edge, State, an_edge, make_state
from support.plain_text import END
from support.requests import a_body
from support.token_source import FakeTokenSource
from tenantry_runtime.errors import CapacityExceeded, GenerationFailed, NodeLost, TenantryError
from tenantry_runtime.tenancy import open_store

PROMPT_TOKENS = len("user:hi\n")
"""Of `a_body`, as the fake text layer counts them."""


async def limited(folder: Path, **terms: object) -> State:
    """Make a state whose account has such terms; of a quota, `__` is the dot."""
    state = await make_state(folder / "state")
    async with open_store(state.directory) as store:
        changes = {tuple(name.split("__")): value for name, value in terms.items()}
        await store.accounts.change(ACCOUNT, changes=changes)
    return state


@asynccontextmanager
async def a_limited_edge(
    folder: Path, node: FakeTokenSource, **terms: object
) -> AsyncIterator[Edge]:
    async with an_edge(await limited(folder, **terms), node) as edge:
        yield edge


def code_of(response: httpx.Response) -> tuple[int, int]:
    [error] = response.json()["errors"]
    return response.status_code, error["code"]


@pytest.mark.asyncio
async def test_a_tenant_over_its_requests_per_minute_is_told_when_to_come_back(
    tmp_path: Path,
) -> None:
    node = FakeTokenSource(END)
    async with a_limited_edge(tmp_path, node, quota__requests_per_minute=2) as edge:
        allowed = [await edge.run() for _ in range(2)]
        refused = [await edge.run() for _ in range(2)]
        async with edge.client() as client:
            # without reading its body: there is none that could be parsed
            unread = await client.post(RUN, content=b"{")

    assert [response.status_code for response in allowed] == [200, 200]
    assert [response.headers["ratelimit"][:15] for response in allowed] == [
        '"requests";r=1;',
        '"requests";r=0;',
    ]
    assert len(node.submits) == 2
    for response in [*refused, unread]:
        assert code_of(response) == (429, 3021)
        assert "requests per min" in response.json()["errors"][0]["message"]
        # two a minute; some of it may have passed by now
        assert 1 <= int(response.headers["retry-after"]) <= 30
        assert response.headers["ratelimit"].startswith('"requests";r=0;t=')
        assert response.headers["ratelimit-policy"] == '"requests";q=2;w=60'


@pytest.mark.asyncio
async def test_tokens_are_counted_as_they_were_used(tmp_path: Path) -> None:
    node = FakeTokenSource("abc", END)
    async with a_limited_edge(tmp_path, node, quota__tokens_per_minute=1) as edge:
        # a bucket of one: the first request takes it, and pays for the rest of itself
        allowed = await edge.run(max_tokens=10)
        refused = await edge.run()

    used = PROMPT_TOKENS + 4
    assert allowed.json()["result"]["usage"]["total_tokens"] == used
    assert code_of(refused) == (429, 3021)
    assert 60 * (used - 1) <= int(refused.headers["retry-after"]) <= 60 * used


@pytest.mark.asyncio
async def test_a_stream_and_every_failure_have_the_headers_of_limits(tmp_path: Path) -> None:
    node = FakeTokenSource("abc", END)
    async with a_limited_edge(tmp_path, node, quota__requests_per_minute=100) as edge:
        stream = await edge.run(stream=True)
        async with edge.client() as client:
            bad = await client.post(RUN, content=b"{")
        too_long = await edge.run(max_tokens=10_000)

    assert stream.headers["content-type"] == "text/event-stream"
    for response in (stream, bad, too_long):
        assert response.headers["ratelimit-policy"] == '"requests";q=100;w=60'
        assert response.headers["ratelimit"].startswith('"requests";r=')
    assert (code_of(bad)[0], code_of(too_long)) == (400, (413, 5021))


@pytest.mark.asyncio
async def test_a_tenant_without_limits_gets_no_headers_of_them(state: State) -> None:
    async with an_edge(state, FakeTokenSource(END)) as edge:
        response = await edge.run()
    assert not [name for name in response.headers if name.startswith("ratelimit")]


@pytest.mark.asyncio
async def test_too_many_at_one_time_are_refused_until_one_has_ended(tmp_path: Path) -> None:
    is_over = anyio.Event()
    node = FakeTokenSource("a", is_over, END)
    async with a_limited_edge(tmp_path, node, quota__concurrent_requests=1) as edge:
        first = AsgiCall(edge=edge, body=a_body(stream=True))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(first)
            await first.has_sent.wait()
            refused = await edge.run()
            is_over.set()
        after = await edge.run()

    assert code_of(refused) == (429, 3021)
    assert "concurrent requests" in refused.json()["errors"][0]["message"]
    assert refused.headers["retry-after"] == "1"
    assert refused.headers["ratelimit"] == '"concurrency";r=0'
    assert after.status_code == 200
    # its own end, and that of nothing else
    assert after.headers["ratelimit"] == '"concurrency";r=1'


@pytest.mark.asyncio
async def test_a_client_that_leaves_gives_its_place_back(tmp_path: Path) -> None:
    node = FakeTokenSource("a", endless=True)
    async with a_limited_edge(tmp_path, node, quota__concurrent_requests=1) as edge:
        first = AsgiCall(edge=edge, body=a_body(stream=True))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(first)
            await first.has_sent.wait()
            first.leaves.set()
        second = AsgiCall(edge=edge, body=a_body(stream=True))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(second)
            await second.has_sent.wait()
            second.leaves.set()
    assert second.status == 200


@pytest.mark.asyncio
async def test_an_account_without_neurons_is_refused_until_midnight(tmp_path: Path) -> None:
    node = FakeTokenSource(END)
    async with a_limited_edge(tmp_path, node, daily_neurons=0.0) as edge:
        refused = [await edge.run() for _ in range(2)]

    for response in refused:
        assert code_of(response) == (429, 3036)
        assert 1 <= int(response.headers["retry-after"]) <= 24 * 3600
        wait_s = response.headers["ratelimit"].removeprefix('"neurons";r=0;t=')
        assert abs(int(wait_s) - int(response.headers["retry-after"])) <= 1
    assert not node.submits


@pytest.mark.asyncio
async def test_a_quota_may_make_the_context_shorter(tmp_path: Path) -> None:
    node = FakeTokenSource(END)
    async with a_limited_edge(tmp_path, node, quota__context_tokens=20) as edge:
        fits = await edge.run(max_tokens=20 - PROMPT_TOKENS)
        refused = await edge.run(max_tokens=21 - PROMPT_TOKENS)
        room = await edge.run()

    assert code_of(refused) == (413, 5021)
    assert "(20)" in refused.json()["errors"][0]["message"]
    assert (fits.status_code, room.status_code) == (200, 200)
    assert [submit.max_tokens for submit in node.submits] == [20 - PROMPT_TOKENS] * 2


@pytest.mark.asyncio
async def test_a_node_is_told_how_many_of_the_tenant_may_wait(tmp_path: Path) -> None:
    node = FakeTokenSource(END)
    async with a_limited_edge(tmp_path, node, quota__queue_depth=3) as edge:
        await edge.run()
        await edge.run(options={"rejectIfBusy": True})

    assert [(submit.max_waiting, submit.may_wait) for submit in node.submits] == [
        (3, True),
        (3, False),
    ]


@pytest.mark.asyncio
@pytest.mark.parametrize("stream", [False, True])
async def test_who_would_rather_not_wait_is_refused_at_once(state: State, stream: bool) -> None:
    node = FakeTokenSource(CapacityExceeded())
    async with an_edge(state, node) as edge:
        refused = await edge.run(options={"rejectIfBusy": True}, stream=stream)

    assert code_of(refused) == (429, 3040)
    assert int(refused.headers["retry-after"]) >= 1
    assert not any(submit.may_wait for submit in node.submits)


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("error", "counts"),
    [(CapacityExceeded(), False), (GenerationFailed("it broke"), True), (NodeLost("m"), True)],
    ids=["refused", "failed", "lost"],
)
async def test_tokens_count_where_something_ran(
    tmp_path: Path, error: TenantryError, counts: bool
) -> None:
    node = FakeTokenSource(error)
    async with a_limited_edge(tmp_path, node, quota__tokens_per_minute=2_000) as edge:
        failed = [await edge.run(prompt="x" * 500, max_tokens=1) for _ in range(2)]

    standing = failed[-1].headers["ratelimit"]
    left = int(standing.removeprefix('"tokens";r=').partition(";")[0])
    # the second is among them, and of the first some may have come back by now
    assert left < 1_300 if counts else left >= 1_300


@pytest.mark.asyncio
async def test_a_store_that_does_not_answer_is_a_503_within_its_time(tmp_path: Path) -> None:
    state = await limited(tmp_path, quota__requests_per_minute=100)
    node = FakeTokenSource(END)
    async with an_edge(state, node, limit_timeout_s=0.2) as edge:
        assert (await edge.run()).status_code == 200
        async with open_store(state.directory) as other, other.database.begin():
            with anyio.fail_after(20):
                refused = await edge.run()

    assert code_of(refused) == (503, 7009)
    assert int(refused.headers["retry-after"]) >= 1
    assert len(node.submits) == 1
