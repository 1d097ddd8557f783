"""The edge behind a real socket: streams, bodies and connections as granian has them."""

from __future__ import annotations

import json
import socket
from collections.abc import AsyncIterator

import anyio
import httpx
import pytest

from support.edges import RUN, State, an_edge
from support.plain_text import END, PlainText, an_offer
from support.requests import a_body
from support.servers import port_of, serving
from support.token_source import FakeTokenSource
from tenantry_runtime.edge.config import Limits
from tenantry_runtime.edge.server import listening
from tenantry_runtime.errors import ConfigurationError

MEBIBYTE = 1 << 20


async def post_chunks(*chunks: bytes) -> AsyncIterator[bytes]:
    """A body whose length is not declared."""
    for chunk in chunks:
        yield chunk


def a_head(state: State, *headers: str) -> bytes:
    lines = [
        f"POST {RUN} HTTP/1.1",
        "host: edge",
        f"authorization: Bearer {state.token}",
        *headers,
        "",
        "",
    ]
    return "\r\n".join(lines).encode()


@pytest.mark.asyncio
async def test_events_arrive_one_by_one(state: State) -> None:
    gate = anyio.Event()
    node = FakeTokenSource("a", gate, f"b{END}")
    async with an_edge(state, node) as edge, serving(edge) as client:
        request = client.stream("POST", RUN, content=a_body(stream=True))
        async with request as response:
            assert response.headers["content-type"] == "text/event-stream"
            seen = ""
            async for text in response.aiter_text():
                seen += text
                if '"content":"a"' in seen:
                    # the rest is made only now
                    gate.set()

    assert '"content":"b"' in seen
    assert seen.endswith("data: [DONE]\n\n")


@pytest.mark.asyncio
async def test_a_client_that_disconnects_ends_the_generation(state: State) -> None:
    node = FakeTokenSource("a", anyio.Event())
    async with an_edge(state, node) as edge, serving(edge) as client:
        async with client.stream("POST", RUN, content=a_body(stream=True)) as response:
            await anext(response.aiter_bytes())

        with anyio.fail_after(30):
            await node.cancelled.wait()


@pytest.mark.asyncio
async def test_a_client_that_gives_up_waiting_ends_the_generation(state: State) -> None:
    node = FakeTokenSource("a", anyio.Event())
    async with an_edge(state, node) as edge, serving(edge) as client:
        with pytest.raises(httpx.ReadTimeout):
            await client.post(RUN, content=a_body(), timeout=httpx.Timeout(30, read=0.2))

        with anyio.fail_after(30):
            await node.cancelled.wait()


@pytest.mark.asyncio
async def test_a_client_that_does_not_read_holds_the_node_back_and_is_given_up(
    state: State,
) -> None:
    # a quarter of a mebibyte per step, for ever
    offers = [an_offer(text=PlainText(width=MEBIBYTE // 4))]
    node, limits = FakeTokenSource("a", endless=True), Limits(stall_timeout_s=1)
    edge_itself = an_edge(state, node, limits=limits, offers=offers)
    async with edge_itself as edge, serving(edge) as client:
        body = a_body(stream=True, max_tokens=1)
        # an asyncio stream would read on its own
        with socket.create_connection(("127.0.0.1", port_of(client))) as connection:
            connection.sendall(a_head(state, f"content-length: {len(body)}") + body)
            with anyio.fail_after(30):
                await node.cancelled.wait()

    # what the buffers of both kernels and of the server hold, and no more
    assert node.num_steps < 100


@pytest.mark.asyncio
async def test_a_body_over_the_limit_is_refused_before_it_is_read(state: State) -> None:
    limits = Limits(max_body_bytes=MEBIBYTE)
    async with an_edge(state, FakeTokenSource(END), limits=limits) as edge, serving(edge) as client:
        async with await anyio.connect_tcp("127.0.0.1", port_of(client)) as stream:
            await stream.send(a_head(state, f"content-length: {100 * MEBIBYTE}"))
            received = await stream.receive()

    head, _, body = received.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 413 ")
    assert b"connection: close" in head.lower()
    assert json.loads(body)["errors"][0]["code"] == 3006


@pytest.mark.asyncio
async def test_a_client_that_asks_first_does_not_send_a_body_over_the_limit(state: State) -> None:
    limits = Limits(max_body_bytes=MEBIBYTE)
    async with an_edge(state, FakeTokenSource(END), limits=limits) as edge, serving(edge) as client:
        async with await anyio.connect_tcp("127.0.0.1", port_of(client)) as stream:
            length = f"content-length: {2 * MEBIBYTE}"
            await stream.send(a_head(state, length, "expect: 100-continue"))
            received = await stream.receive()

    assert received.startswith(b"HTTP/1.1 413 ")


@pytest.mark.asyncio
async def test_a_client_that_sends_all_before_it_reads_learns_why(state: State) -> None:
    limits = Limits(max_body_bytes=MEBIBYTE)
    async with an_edge(state, FakeTokenSource(END), limits=limits) as edge, serving(edge) as client:
        response = await client.post(RUN, content=b" " * (20 * MEBIBYTE))

    assert response.status_code == 413


@pytest.mark.asyncio
async def test_a_body_of_undeclared_length_is_limited_too(state: State) -> None:
    limits = Limits(max_body_bytes=MEBIBYTE)
    async with an_edge(state, FakeTokenSource(END), limits=limits) as edge, serving(edge) as client:
        response = await client.post(RUN, content=post_chunks(*[b" " * MEBIBYTE] * 3))

    assert response.status_code == 413
    assert response.json()["errors"][0]["code"] == 3006


@pytest.mark.asyncio
async def test_a_body_may_be_as_long_as_the_limit_and_come_in_pieces(state: State) -> None:
    body = a_body(prompt="hi")
    pieces = [b" " * (Limits().max_body_bytes - len(body)), body[:10], body[10:]]
    async with an_edge(state, FakeTokenSource(END)) as edge, serving(edge) as client:
        response = await client.post(RUN, content=post_chunks(*pieces))

    assert response.status_code == 200


@pytest.mark.asyncio
async def test_a_connection_serves_on_after_an_error(state: State) -> None:
    async with an_edge(state, FakeTokenSource(END)) as edge, serving(edge) as client:
        seen = []
        for body, headers in [
            (b"{", {}),
            (a_body(), {"authorization": "Bearer nonsense"}),
            (a_body(), {}),
        ]:
            response = await client.post(RUN, content=body, headers=headers)
            connection = response.extensions["network_stream"]
            seen.append((response.status_code, connection.get_extra_info("client_addr")))

    statuses, addresses = zip(*seen, strict=True)
    assert statuses == (400, 401, 200)
    assert len(set(addresses)) == 1


@pytest.mark.asyncio
async def test_encoded_slashes_reach_the_model(state: State) -> None:
    path = RUN.replace("kimi-k2.6", "@cf%2Fmoonshotai%2Fkimi-k2.6")
    async with an_edge(state, FakeTokenSource(END)) as edge, serving(edge) as client:
        response = await client.post(path, content=a_body())

    assert response.json()["result"]["model"] == "@cf/moonshotai/kimi-k2.6"


@pytest.mark.asyncio
async def test_many_streams_run_beside_each_other(state: State) -> None:
    gate = anyio.Event()
    # more than granian serves at one time by default
    node = FakeTokenSource("a", gate, f"b{END}", crowd=150)
    num_whole = 0
    async with an_edge(state, node) as edge, serving(edge) as client:

        async def stream() -> None:
            nonlocal num_whole
            response = await client.post(RUN, content=a_body(stream=True))
            num_whole += response.text.endswith("data: [DONE]\n\n")

        async with anyio.create_task_group() as tasks:
            for _ in range(150):
                tasks.start_soon(stream)
            await node.crowded.wait()
            gate.set()

    assert num_whole == 150


@pytest.mark.asyncio
async def test_an_edge_that_ends_does_not_cut_streams_in_the_middle(state: State) -> None:
    node = FakeTokenSource("a", anyio.Event())
    async with an_edge(state, node) as edge, serving(edge) as client:
        async with client.stream("POST", RUN, content=a_body(stream=True)) as response:
            received = response.aiter_text()
            await anext(received)
            edge.services.open_requests.close()
            rest = "".join([text async for text in received])

    assert '"code":7009' in rest
    assert rest.endswith("}\n\n")


def test_a_port_that_is_taken_is_refused_rather_than_shared() -> None:
    with listening("127.0.0.1", 0) as bound:
        port = bound.getsockname()[1]

        with pytest.raises(ConfigurationError, match=f"cannot listen on 127.0.0.1:{port}"):
            with listening("127.0.0.1", port):
                pass


def test_a_port_is_free_again_at_once() -> None:
    with listening("127.0.0.1", 0) as bound:
        port = bound.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)):
            accepted, _ = bound.accept()
            accepted.close()

    with listening("127.0.0.1", port):
        pass


@pytest.mark.parametrize("host", ["192.0.2.1", "no.such.host.invalid"])
def test_an_address_that_is_not_ours_is_refused(host: str) -> None:
    with pytest.raises(ConfigurationError, match="cannot listen on"):
        with listening(host, 0):
            pass
