"""Bodies both ways, in pieces: who waits for whom, and what happens when somebody leaves."""

from __future__ import annotations

from collections.abc import AsyncIterator

import anyio
import anyio.lowlevel
import httpx
import pytest
from anyio.abc import SocketStream
from starlette.types import Message

from support.worker_routes import Pieces, RoutedEdge, a_routed_edge, answering
from tenantry_runtime.edge.worker_routes import RouteLimits
from tenantry_runtime.edge.worker_routes.departure import Departure
from tenantry_runtime.edge.worker_routes.request_body import RequestBody
from tenantry_runtime.workers.interface import (
    HttpRequest,
    HttpResponse,
    Invocation,
    WorkerFailed,
)
from tenantry_runtime.workers.isolate import StreamBroken
from tenantry_runtime.workers.outcome import Outcome

pytestmark = pytest.mark.asyncio

HEAD = b" / HTTP/1.1\r\nhost: hello.acme.localhost\r\n"


async def connect(edge: RoutedEdge) -> SocketStream:
    return await anyio.connect_tcp("127.0.0.1", edge.port)


async def read_until(stream: SocketStream, mark: bytes) -> bytes:
    read = b""
    while mark not in read:
        read += await stream.receive()
    return read


async def rest_of(stream: SocketStream) -> bytes:
    read = b""
    try:
        while True:
            read += await stream.receive()
    except (anyio.EndOfStream, anyio.BrokenResourceError):
        return read


async def echo(request: HttpRequest, invocation: Invocation) -> HttpResponse:
    assert request.body is not None
    assert not isinstance(request.body, bytes)

    async def pieces() -> AsyncIterator[bytes]:
        assert request.body is not None
        assert not isinstance(request.body, bytes)
        async for piece in request.body:
            yield b"<" + piece + b">"

    return HttpResponse(status=200, body=Pieces(pieces()))


async def reads_all(request: HttpRequest, invocation: Invocation) -> HttpResponse:
    if request.body is None:
        return HttpResponse(status=200, body=b"none")
    if isinstance(request.body, bytes):
        return HttpResponse(status=200, body=b"whole: %d" % len(request.body))
    num_bytes = 0
    try:
        async for piece in request.body:
            num_bytes += len(piece)
    except Exception as error:
        # as an engine does whose isolate read a body that broke off
        raise WorkerFailed(Outcome.EXCEPTION, "the body broke off") from error
    return HttpResponse(status=200, body=b"in pieces: %d" % num_bytes)


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (None, b"none"),
        (b"x", b"whole: 1"),
        (b"x" * 65536, b"whole: 65536"),
        (b"x" * 65537, b"in pieces: 65537"),
    ],
)
async def test_a_small_body_comes_whole_and_a_long_one_in_pieces(
    body: bytes | None, told: bytes
) -> None:
    async with a_routed_edge(reads_all) as edge:
        method = "GET" if body is None else "POST"
        assert (await edge.get(method=method, content=body)).content == told


async def test_pieces_go_through_one_by_one_both_ways() -> None:
    async with a_routed_edge(echo) as edge, await connect(edge) as client:
        await client.send(b"POST" + HEAD + b"transfer-encoding: chunked\r\n\r\n")
        for piece in (b"one", b"second"):
            await client.send(b"%x\r\n%s\r\n" % (len(piece), piece))
            with anyio.fail_after(10):
                await read_until(client, b"<" + piece + b">")
        await client.send(b"0\r\n\r\n")
        with anyio.fail_after(10):
            await read_until(client, b"0\r\n\r\n")


async def test_a_body_that_says_it_is_too_large_is_refused_before_the_worker_hears_of_it() -> None:
    async with a_routed_edge(reads_all, limits=RouteLimits(max_body_bytes=100_000)) as edge:
        response = await edge.get(method="POST", content=b"x" * 100_001)
    assert response.status_code == 413
    assert edge.engine.requests == []


async def test_a_body_that_turns_out_too_large_is_refused() -> None:
    async def pieces() -> AsyncIterator[bytes]:
        for _ in range(4):
            yield b"x" * 30_000

    async with a_routed_edge(reads_all, limits=RouteLimits(max_body_bytes=100_000)) as edge:
        response = await edge.get(method="POST", content=pieces())
    assert response.status_code == 413


async def test_a_body_that_stops_coming_is_given_up() -> None:
    limits = RouteLimits(body_timeout_s=0.05)
    async with a_routed_edge(reads_all, limits=limits) as edge, await connect(edge) as client:
        await client.send(b"POST" + HEAD + b"content-length: 100\r\n\r\nsome")
        with anyio.fail_after(10):
            assert b"408" in await read_until(client, b"\r\n\r\n")


async def test_a_client_that_leaves_before_the_response_cancels_the_handler() -> None:
    begun = anyio.Event()

    async def waits(request: HttpRequest, invocation: Invocation) -> HttpResponse:
        begun.set()
        await anyio.sleep_forever()
        raise AssertionError

    async with a_routed_edge(waits) as edge:
        async with await connect(edge) as client:
            await client.send(b"GET" + HEAD + b"\r\n")
            await begun.wait()
        with anyio.fail_after(10):
            await edge.engine.ended.wait()
        assert edge.engine.num_cancelled == 1


async def test_a_client_that_leaves_in_the_middle_cancels_the_body_under_it() -> None:
    async def pieces() -> AsyncIterator[bytes]:
        yield b"first"
        await anyio.sleep_forever()

    async with a_routed_edge(answering(Pieces(pieces()))) as edge:
        async with await connect(edge) as client:
            await client.send(b"GET" + HEAD + b"\r\n")
            await read_until(client, b"first")
        with anyio.fail_after(10):
            await edge.engine.ended.wait()
        assert edge.engine.num_cancelled == 1


async def test_a_client_that_leaves_in_the_middle_of_its_own_body_cancels_the_handler() -> None:
    async with a_routed_edge(reads_all) as edge:
        async with await connect(edge) as client:
            await client.send(b"POST" + HEAD + b"content-length: 100000\r\n\r\nsome")
            while not edge.engine.requests:
                await anyio.lowlevel.checkpoint()
        with anyio.fail_after(10):
            await edge.engine.ended.wait()
        assert edge.parts.open_requests.statistics().num_open == 0


async def test_a_client_that_leaves_behind_a_body_that_nobody_reads_cancels_the_handler() -> None:
    async def waits(request: HttpRequest, invocation: Invocation) -> HttpResponse:
        await anyio.sleep_forever()
        raise AssertionError

    limits = RouteLimits(unread_timeout_s=0.05)
    async with a_routed_edge(waits, limits=limits) as edge:
        async with await connect(edge) as client:
            await client.send(b"POST" + HEAD + b"content-length: 300000\r\n\r\n" + b"x" * 200_000)
            while not edge.engine.requests:
                await anyio.lowlevel.checkpoint()
        with anyio.fail_after(10):
            await edge.engine.ended.wait()
        assert edge.engine.num_cancelled == 1


@pytest.mark.parametrize("num_sent", [300_000, 200_000])
async def test_a_body_that_was_not_read_for_too_long_cannot_be_read_and_the_response_goes_on(
    num_sent: int,
) -> None:
    async def late(request: HttpRequest, invocation: Invocation) -> HttpResponse:
        assert isinstance(request.body, RequestBody)
        await request.body.until_wanted_no_more()
        try:
            async for _ in request.body:
                raise AssertionError
        except StreamBroken as error:
            return HttpResponse(status=200, body=str(error).encode())
        raise AssertionError

    limits = RouteLimits(unread_timeout_s=0.05)
    async with a_routed_edge(late, limits=limits) as edge, await connect(edge) as client:
        await client.send(b"POST" + HEAD + b"content-length: 300000\r\n\r\n" + b"x" * num_sent)
        with anyio.fail_after(10):
            told = await read_until(client, b"thrown away")
    assert told.startswith(b"HTTP/1.1 200 ")


async def test_a_body_that_is_waited_for_is_kept_however_slowly_it_comes() -> None:
    left = [b"one", b"two", b"three"]

    async def receive() -> Message:
        # far longer than nobody may read it
        await anyio.sleep(0.1)
        piece = left.pop(0)
        return {"type": "http.request", "body": piece, "more_body": bool(left)}

    async with anyio.create_task_group() as tasks:
        limits = RouteLimits(unread_timeout_s=0.02)
        body = RequestBody(receive, Departure(receive, tasks), limits)
        tasks.start_soon(body.until_wanted_no_more)
        assert [piece async for piece in body] == [b"one", b"two", b"three"]
        tasks.cancel_scope.cancel()


async def test_a_client_that_reads_slowly_slows_the_worker() -> None:
    num_sent = 0

    async def pieces() -> AsyncIterator[bytes]:
        nonlocal num_sent
        while True:
            yield b"x" * 65536
            num_sent += 65536

    limits = RouteLimits(stall_timeout_s=0.3)
    async with a_routed_edge(answering(Pieces(pieces())), limits=limits) as edge:
        async with await connect(edge) as client:
            await client.send(b"GET" + HEAD + b"\r\n")
            # what sockets and the server hold, then nothing: the client is given up
            with anyio.fail_after(20):
                await edge.engine.ended.wait()
            assert 0 < num_sent < 32 << 20
            assert not (await rest_of(client)).endswith(b"0\r\n\r\n")


async def test_a_body_that_fails_in_the_middle_is_seen_to_have_no_end() -> None:
    async def pieces() -> AsyncIterator[bytes]:
        yield b"first"
        raise WorkerFailed(Outcome.EXCEPTION, "in the middle")

    async with a_routed_edge(answering(Pieces(pieces()))) as edge, await connect(edge) as client:
        await client.send(b"GET" + HEAD + b"\r\n")
        with anyio.fail_after(10):
            read = await rest_of(client)
    assert b"first" in read
    assert not read.endswith(b"0\r\n\r\n")


@pytest.mark.parametrize("declared", ["4", "6"])
async def test_a_body_of_another_length_than_declared_is_seen_to_be_broken(declared: str) -> None:
    async def pieces() -> AsyncIterator[bytes]:
        yield b"fi"
        yield b"ves"

    body = Pieces(pieces())
    async with a_routed_edge(answering(body, headers=[("content-length", declared)])) as edge:
        with pytest.raises(httpx.RemoteProtocolError):
            await edge.get()
        assert isinstance(edge.engine.problem, WorkerFailed)
    told = edge.engine.problem.message
    assert told.startswith(f"the response declared {declared} bytes and had ")
    assert told.endswith(" 5")


async def test_a_body_that_is_longer_than_declared_at_once_is_told_as_a_fault() -> None:
    async def pieces() -> AsyncIterator[bytes]:
        yield b"fives"

    answer = answering(Pieces(pieces()), headers=[("content-length", "2")])
    async with a_routed_edge(answer) as edge:
        response = await edge.get()
    assert (response.status_code, response.json()["outcome"]) == (500, "exception")
    assert response.json()["ray"] == response.headers["cf-ray"]


@pytest.mark.parametrize("pieces", [[], [b""], [b"", b"fi", b"", b"ves", b""]])
async def test_a_body_may_come_in_any_pieces(pieces: list[bytes]) -> None:
    async def come() -> AsyncIterator[bytes]:
        for piece in pieces:
            yield piece

    whole = b"".join(pieces)
    answer = answering(Pieces(come()), headers=[("content-length", str(len(whole)))])
    async with a_routed_edge(answer) as edge:
        assert (await edge.get()).content == whole


async def test_a_body_of_the_declared_length_carries_it() -> None:
    async def pieces() -> AsyncIterator[bytes]:
        yield b"fi"
        yield b"ves"

    answer = answering(Pieces(pieces()), headers=[("content-length", "5")])
    async with a_routed_edge(answer) as edge:
        response = await edge.get()
    assert (response.headers["content-length"], response.content) == ("5", b"fives")


async def test_head_reads_nothing_of_a_body_and_closes_it() -> None:
    async def pieces() -> AsyncIterator[bytes]:
        raise AssertionError
        yield b""

    body = Pieces(pieces())
    async with a_routed_edge(answering(body)) as edge:
        assert (await edge.get(method="HEAD")).content == b""
    assert body.is_closed


async def test_requests_that_are_open_when_the_edge_ends_are_told_so() -> None:
    begun = anyio.Event()

    async def waits(request: HttpRequest, invocation: Invocation) -> HttpResponse:
        begun.set()
        await anyio.sleep_forever()
        raise AssertionError

    responses: list[httpx.Response] = []
    async with a_routed_edge(waits) as edge, anyio.create_task_group() as tasks:

        async def get() -> None:
            responses.append(await edge.get())

        tasks.start_soon(get)
        await begun.wait()
        edge.parts.open_requests.close()
    assert responses[0].status_code == 503
    assert responses[0].json()["errors"][0]["message"] == "Worker hello: the server is ending"
