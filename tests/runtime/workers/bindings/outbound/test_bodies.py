"""Bodies of workers' requests and responses: at their readers' pace, and their ends."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import anyio
import httpcore
import pytest
from anyio.abc import ByteStream

from support.bindings import whole
from support.byte_streams import Pieces
from support.web import (
    Heard,
    Names,
    a_web,
    an_outbound,
    answering,
)
from tenantry_runtime.workers.interface import CallRefused, HttpResponse

PATIENCE_S = 30.0
BROKEN = r"the connection to 'web\.test' failed"


class _Spring(httpcore.AsyncMockBackend):
    """A server that would say pieces for ever, and knows how many were taken."""

    def __init__(self, head: bytes, piece: bytes) -> None:
        self.num_taken = 0
        self.is_closed = False
        self.sent = b""
        self._head = head
        self._piece = piece

    async def connect_tcp(
        self, host: str, port: int, *_: Any, **__: Any
    ) -> httpcore.AsyncNetworkStream:
        return _SpringStream(self)

    def take(self) -> bytes:
        self.num_taken += 1
        return self._head if self.num_taken == 1 else self._piece


class _SpringStream(httpcore.AsyncNetworkStream):
    def __init__(self, spring: _Spring) -> None:
        self._spring = spring

    async def read(self, max_bytes: int, *_: Any, **__: Any) -> bytes:
        return self._spring.take()

    async def write(self, buffer: bytes, *_: Any, **__: Any) -> None:
        self._spring.sent += buffer

    async def aclose(self) -> None:
        self._spring.is_closed = True

    def get_extra_info(self, info: str) -> Any:
        return None


@pytest.mark.asyncio
async def test_nothing_is_taken_from_a_server_that_the_worker_does_not_read() -> None:
    spring = _Spring(b"HTTP/1.1 200 OK\r\n\r\n", b"x" * 1000)
    async with an_outbound(Names(web_test=["8.8.8.8"]), network=spring) as worker:
        response = await worker.fetch("http://web.test/")
        assert isinstance(response.body, object)
        await anyio.wait_all_tasks_blocked()
        assert spring.num_taken == 1
        stream = _pieces(response)
        for num_read in range(1, 6):
            assert len(await anext(stream)) == 1000
            assert spring.num_taken == 1 + num_read
        await _close(response)
    assert spring.is_closed


@pytest.mark.asyncio
async def test_a_response_is_no_longer_than_it_may_be() -> None:
    spring = _Spring(b"HTTP/1.1 200 OK\r\n\r\n", b"x" * 1000)
    names = Names(web_test=["8.8.8.8"])
    async with an_outbound(names, network=spring, max_response_bytes=10_000) as worker:
        response = await worker.fetch("http://web.test/")
        with pytest.raises(CallRefused, match="more than 10000 bytes"):
            await whole(response)
    assert spring.num_taken == 12
    assert spring.is_closed


@pytest.mark.asyncio
@pytest.mark.parametrize("packing", ["gzip", "x-gzip", "deflate"])
async def test_a_packed_response_is_unpacked_though_nobody_asked_for_it(packing: str) -> None:
    plain = b"hello " * 50_000
    packed = zlib.compress(plain) if packing == "deflate" else gzip.compress(plain)
    respond = answering(packed, headers=[("content-encoding", packing)])
    async with a_web(respond) as (_, worker, url):
        response = await worker.fetch(url)
        assert await whole(response) == plain
    assert not {name for name, _ in response.headers} & {"content-encoding", "content-length"}


@pytest.mark.asyncio
async def test_a_bomb_is_unpacked_as_far_as_a_response_may_go() -> None:
    # 200 MB in 200 KB
    packer = zlib.compressobj(wbits=31)
    bomb = b"".join(packer.compress(bytes(1 << 20)) for _ in range(200)) + packer.flush()
    respond = answering(bomb, headers=[("content-encoding", "gzip")])
    async with a_web(respond, max_response_bytes=1 << 20) as (_, worker, url):
        num_bytes = 0
        with pytest.raises(CallRefused, match="more than 1048576 bytes"):
            async for piece in _pieces(await worker.fetch(url)):
                assert len(piece) <= 64 << 10
                num_bytes += len(piece)
    assert num_bytes <= 1 << 20


@pytest.mark.asyncio
async def test_what_is_packed_wrongly_or_otherwise_is_told_apart() -> None:
    respond = answering(b"not gzip", headers=[("content-encoding", "gzip")])
    async with a_web(respond) as (_, worker, url):
        with pytest.raises(CallRefused, match="packed wrongly"):
            await whole(await worker.fetch(url))
    respond = answering(b"as it is", headers=[("content-encoding", "br")])
    async with a_web(respond) as (_, worker, url):
        response = await worker.fetch(url)
        assert await whole(response) == b"as it is"
        assert dict(response.headers)["content-encoding"] == "br"


@pytest.mark.asyncio
async def test_a_request_is_no_longer_than_it_may_be() -> None:
    body = Pieces(*[b"x" * 1000] * 9)
    async with a_web(answering(), max_request_bytes=5000) as (server, worker, url):
        with pytest.raises(CallRefused, match="more than 5000 bytes"):
            await worker.fetch(url, method="POST", stream=body)
        assert body.num_read == 6
        assert server.heard == []


@pytest.mark.asyncio
async def test_a_silent_server_is_waited_for_only_so_long() -> None:
    async def silent(*_: object) -> None:
        await anyio.sleep_forever()

    async with a_web(silent, idle_s=0.1) as (_, worker, url):
        with pytest.raises(CallRefused, match="did not answer in time") as refused:
            await worker.fetch(url)
        assert refused.value.name == "TimeoutError"

    async def half(_: Heard, stream: ByteStream) -> None:
        await stream.send(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhalf")
        await anyio.sleep_forever()

    async with a_web(half, idle_s=0.1) as (_, worker, url):
        response = await worker.fetch(url)
        with pytest.raises(CallRefused, match="did not answer in time"):
            await whole(response)


@pytest.mark.asyncio
async def test_the_invocations_deadline_ends_a_request() -> None:
    async def silent(*_: object) -> None:
        await anyio.sleep_forever()

    async with a_web(silent) as (_, worker, url):
        context = replace(worker.context, deadline_s=anyio.current_time() + 0.1)
        with pytest.raises(CallRefused, match="did not answer in time"):
            await replace(worker, context=context).fetch(url)


@pytest.mark.asyncio
@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"nonsense\r\n\r\n",
        b"HTTP/1.1 999999 OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"".join(b"a%d: b\r\n" % at for at in range(201)) + b"\r\n",
        b"HTTP/1.1 200 OK\r\na: " + b"x" * 200_000 + b"\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: x\r\n\r\n",
    ],
)
async def test_a_broken_server_is_an_error_of_the_connection(sent: bytes) -> None:
    async def respond(_: Heard, stream: ByteStream) -> None:
        await stream.send(sent)
        await stream.aclose()

    async with a_web(respond) as (_, worker, url):
        with pytest.raises(CallRefused, match=BROKEN) as refused:
            await worker.fetch(url)
    assert refused.value.name == "ConnectionError"


@pytest.mark.asyncio
async def test_a_body_that_breaks_off_is_no_whole_one() -> None:
    async def respond(_: Heard, stream: ByteStream) -> None:
        await stream.send(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhalf")
        await stream.aclose()

    async with a_web(respond) as (_, worker, url):
        response = await worker.fetch(url)
        with pytest.raises(CallRefused, match=BROKEN):
            await whole(response)


@pytest.mark.asyncio
async def test_cancelling_a_request_closes_its_connection() -> None:
    heard, gone = anyio.Event(), anyio.Event()

    async def silent(_: Heard, stream: ByteStream) -> None:
        heard.set()
        try:
            await stream.receive()
        finally:
            gone.set()

    async with a_web(silent) as (_, worker, url):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(worker.fetch, url)
            await heard.wait()
            tasks.cancel_scope.cancel()
        with anyio.fail_after(PATIENCE_S):
            await gone.wait()


@pytest.mark.asyncio
async def test_closing_a_body_ends_whoever_reads_it() -> None:
    gone = anyio.Event()

    async def half(_: Heard, stream: ByteStream) -> None:
        await stream.send(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhalf")
        try:
            await stream.receive()
        finally:
            gone.set()

    async with a_web(half) as (_, worker, url):
        response = await worker.fetch(url)

        async def read() -> None:
            with pytest.raises(CallRefused, match=BROKEN):
                await whole(response)

        with anyio.fail_after(PATIENCE_S):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(read)
                await anyio.wait_all_tasks_blocked()
                await _close(response)
            await gone.wait()


def _pieces(response: HttpResponse) -> AsyncIterator[bytes]:
    assert not isinstance(response.body, bytes)
    return aiter(response.body)


async def _close(response: HttpResponse) -> None:
    assert not isinstance(response.body, bytes)
    await response.body.aclose()
