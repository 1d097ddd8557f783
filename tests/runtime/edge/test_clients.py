"""Clients that leave, wait, or do not read; and an edge that ends under them."""

from __future__ import annotations

import json
from typing import Any

import anyio
import pytest

from support.edges import AsgiCall, State, an_edge
from support.plain_text import END
from support.requests import a_body
from support.token_source import FakeTokenSource
from tenantry_runtime.edge.config import Limits
from tenantry_runtime.edge.reply import KEEP_ALIVE


@pytest.mark.asyncio
@pytest.mark.parametrize("stream", [True, False])
async def test_a_client_that_leaves_ends_the_generation(state: State, stream: bool) -> None:
    node = FakeTokenSource("a", anyio.Event())
    async with an_edge(state, node) as edge, anyio.create_task_group() as tasks:
        call = AsgiCall(edge=edge, body=a_body(stream=stream))
        tasks.start_soon(call)
        await node.started.wait()
        await anyio.wait_all_tasks_blocked()

        call.leaves.set()

        await node.cancelled.wait()
    assert node.num_open == 0
    assert not call.is_complete
    assert edge.services.open_requests.statistics().num_open == 0


@pytest.mark.asyncio
async def test_a_client_that_leaves_stops_an_endless_answer_within_a_step(state: State) -> None:
    node = FakeTokenSource("a", endless=True)
    async with an_edge(state, node) as edge, anyio.create_task_group() as tasks:
        call = AsgiCall(edge=edge, body=a_body(stream=True))
        tasks.start_soon(call)
        await call.has_sent.wait()

        call.leaves.set()
        num_steps = node.num_steps
        await node.cancelled.wait()

    # one step may have been on its way to the client, one on its way from the node
    assert node.num_steps <= num_steps + 2


@pytest.mark.asyncio
async def test_a_client_that_leaves_at_the_end_got_its_answer(state: State) -> None:
    async with an_edge(state, FakeTokenSource(END)) as edge:
        call = AsgiCall(edge=edge, body=a_body())
        call.leaves.set()
        # it had left before, but the answer was there already
        await call()

    assert edge.services.open_requests.statistics().num_open == 0


@pytest.mark.asyncio
async def test_a_client_that_leaves_in_the_middle_of_its_body_is_forgotten(state: State) -> None:
    class Leaving(AsgiCall):
        async def _receive(self) -> Any:
            return {"type": "http.disconnect"}

    node = FakeTokenSource(END)
    async with an_edge(state, node) as edge:
        call = Leaving(edge=edge, body=b"")
        await call()

    assert call.sent == []
    assert node.submits == []


@pytest.mark.asyncio
async def test_a_silent_stream_carries_comments(state: State) -> None:
    gate = anyio.Event()
    node = FakeTokenSource(gate, f"a{END}")
    limits = Limits(keep_alive_s=0.01)
    async with an_edge(state, node, limits=limits) as edge, anyio.create_task_group() as tasks:
        call = AsgiCall(edge=edge, body=a_body(stream=True))
        tasks.start_soon(call)
        await call.has_sent.wait()
        gate.set()

    assert call.status == 200
    first, *_ = [message["body"] for message in call.sent if "body" in message]
    assert first == KEEP_ALIVE
    assert call.printed.endswith(b"data: [DONE]\n\n")
    assert call.is_complete


@pytest.mark.asyncio
@pytest.mark.parametrize("keep_alive_s", [60.0, 0.01], ids=["events", "comments"])
async def test_a_client_that_does_not_read_is_given_up(state: State, keep_alive_s: float) -> None:
    script = ["a"] if keep_alive_s > 1 else [anyio.Event()]
    node = FakeTokenSource(*script, endless=keep_alive_s > 1)
    limits = Limits(stall_timeout_s=0.05, keep_alive_s=keep_alive_s)
    async with an_edge(state, node, limits=limits) as edge:
        call = AsgiCall(edge=edge, body=a_body(stream=True), takes=False)
        await call()

    assert node.cancelled.is_set()
    assert not call.is_complete


@pytest.mark.asyncio
async def test_an_edge_that_ends_breaks_streams_with_an_error(state: State) -> None:
    node = FakeTokenSource("a", anyio.Event())
    async with an_edge(state, node) as edge, anyio.create_task_group() as tasks:
        call = AsgiCall(edge=edge, body=a_body(stream=True))
        tasks.start_soon(call)
        await call.has_sent.wait()

        edge.services.open_requests.close()

    assert node.cancelled.is_set()
    assert call.is_complete
    last = call.printed.decode().split("\n\n")[-2]
    [error] = json.loads(last.removeprefix("data: "))["errors"]
    assert error["code"] == 7009
    assert b"[DONE]" not in call.printed


@pytest.mark.asyncio
async def test_an_edge_that_ends_refuses_what_has_no_answer_yet(state: State) -> None:
    node = FakeTokenSource("a", anyio.Event())
    async with an_edge(state, node) as edge, anyio.create_task_group() as tasks:
        call = AsgiCall(edge=edge, body=a_body())
        tasks.start_soon(call)
        await node.started.wait()

        edge.services.open_requests.close()

    assert call.status == 503
    assert json.loads(call.printed)["errors"][0]["code"] == 7009


@pytest.mark.asyncio
async def test_a_body_that_does_not_come_is_not_waited_for(state: State) -> None:
    class Slow(AsgiCall):
        async def _receive(self) -> Any:
            return await anyio.sleep_forever()

    limits = Limits(body_timeout_s=0.02)
    async with an_edge(state, FakeTokenSource(END), limits=limits) as edge:
        call = Slow(edge=edge, body=b"")
        await call()

    assert call.status == 408
    assert json.loads(call.printed)["errors"][0]["code"] == 3007


@pytest.mark.asyncio
async def test_a_body_without_end_is_not_read_for_ever(state: State) -> None:
    class Endless(AsgiCall):
        num_bytes = 0

        async def _receive(self) -> Any:
            self.num_bytes += 1 << 20
            return {"type": "http.request", "body": b" " * (1 << 20), "more_body": True}

    async with an_edge(state, FakeTokenSource(END)) as edge:
        call = Endless(edge=edge, body=b"")
        await call()

    assert call.status == 413
    # the limit, and what is thrown away for the sake of clients that send first
    assert call.num_bytes < 80 << 20


@pytest.mark.asyncio
async def test_a_body_over_the_limit_that_stops_coming_is_still_too_large(state: State) -> None:
    class Stopping(AsgiCall):
        async def _receive(self) -> Any:
            if self.body:
                body, self.body = self.body, b""
                return {"type": "http.request", "body": body, "more_body": True}
            return await anyio.sleep_forever()

    limits = Limits(body_timeout_s=0.02, max_body_bytes=10)
    async with an_edge(state, FakeTokenSource(END), limits=limits) as edge:
        call = Stopping(edge=edge, body=b"x" * 11)
        await call()

    assert call.status == 413
