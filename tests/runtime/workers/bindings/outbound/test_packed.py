"""Packed responses: what follows a member of gzip, what says nothing for ever, and what is cut off."""

from __future__ import annotations

import gzip
import zlib
from typing import Any

import anyio.lowlevel
import httpcore
import pytest

from support.bindings import whole
from support.web import Names, a_web, an_outbound, answering
from tenantry_runtime.workers.bindings.outbound.response import FEED_BYTES
from tenantry_runtime.workers.interface import CallRefused

pytestmark = pytest.mark.asyncio

EMPTY_BLOCK = b"\x00\x00\x00\xff\xff"
MIB = 1 << 20


class EndlessStream(httpcore.AsyncNetworkStream):
    """A head, and then the same piece for as long as somebody reads."""

    def __init__(self, head: bytes, piece: bytes, *, most: int) -> None:
        self._head = head
        self._piece = piece
        self._num_left = most

    async def read(self, *_: Any, **__: Any) -> bytes:
        if self._head:
            head, self._head = self._head, b""
            return head
        await anyio.lowlevel.checkpoint()
        self._num_left -= len(self._piece)
        assert self._num_left > 0, "it is read for ever"
        return self._piece

    async def write(self, *_: Any, **__: Any) -> None: ...

    async def aclose(self) -> None: ...

    def get_extra_info(self, info: str) -> Any:
        return None


class EndlessNetwork(httpcore.AsyncMockBackend):
    def __init__(self, stream: EndlessStream) -> None:
        self._stream = stream

    async def connect_tcp(self, *_: Any, **__: Any) -> httpcore.AsyncNetworkStream:
        return self._stream


@pytest.mark.parametrize(
    ("begin", "piece"),
    [(gzip.compress(b"x"), b"z" * 65_536), (gzip.compress(b"")[:10], EMPTY_BLOCK * 13_107)],
    ids=["behind the end", "empty blocks"],
)
async def test_what_unpacks_to_nothing_is_not_taken_for_ever(begin: bytes, piece: bytes) -> None:
    head = b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\n\r\n" + begin
    network = EndlessNetwork(EndlessStream(head, piece, most=4 * MIB))
    names = Names(web_test=["8.8.8.8"])
    async with an_outbound(names, network=network, max_response_bytes=MIB) as worker:
        response = await worker.fetch("http://web.test/")
        assert not isinstance(response.body, bytes)
        with pytest.raises(CallRefused, match="more than"):
            # an empty piece would cost no credit
            assert all([piece async for piece in response.body])


@pytest.mark.parametrize("padding", [b"", b"\0" * 512])
@pytest.mark.parametrize("num_bytes", [6, 3 * FEED_BYTES])
async def test_all_members_of_a_packed_response_are_unpacked(
    num_bytes: int, padding: bytes
) -> None:
    members = [bytes([n]) * num_bytes + zlib.compress(bytes(n)) for n in range(5)]
    packed = b"".join(gzip.compress(member, 0) for member in members) + padding
    async with a_web(answering(packed, headers=[("content-encoding", "gzip")])) as (_, worker, url):
        assert await whole(await worker.fetch(url)) == b"".join(members)


@pytest.mark.parametrize(
    ("encoding", "pack"), [("gzip", gzip.compress), ("deflate", zlib.compress)]
)
async def test_a_packed_response_that_is_cut_off_is_not_taken_for_whole(
    encoding: str, pack: Any
) -> None:
    respond = answering(pack(b"hello " * 1000)[:-5], headers=[("content-encoding", encoding)])
    async with a_web(respond) as (_, worker, url):
        with pytest.raises(CallRefused, match="cut off"):
            await whole(await worker.fetch(url))
