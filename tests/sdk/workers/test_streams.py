"""`ReadableStream`: read once, closed with what it comes from, and split."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tenantry.workers import ReadableStream, Response
from tenantry.workers._streams import TEE_BYTES


class Source:
    """Pieces that are counted, and that are known to be closed."""

    def __init__(self, num_pieces: int, piece: bytes = b"x") -> None:
        self.num_read = 0
        self.is_closed = False
        self._num_pieces = num_pieces
        self._piece = piece

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        if self.num_read == self._num_pieces:
            raise StopAsyncIteration
        self.num_read += 1
        return self._piece

    async def aclose(self) -> None:
        self.is_closed = True


@pytest.mark.asyncio
async def test_a_stream_is_read_once() -> None:
    stream = ReadableStream(Source(3))
    assert not stream.locked
    assert await stream.read() == b"xxx"
    assert stream.locked
    with pytest.raises(OSError, match="Body already used"):
        await stream.read()
    handed_on = ReadableStream(Source(1))
    handed_on.take()
    with pytest.raises(OSError, match="Body already used"):
        handed_on.take()
    with pytest.raises(OSError, match="Body already used"):
        await anext(handed_on)


@pytest.mark.asyncio
async def test_what_is_left_of_a_stream_can_be_a_body() -> None:
    stream = ReadableStream(Source(3))
    assert await anext(stream) == b"x"
    response = Response(stream)
    assert await response.text() == "xx"
    with pytest.raises(OSError, match="Body already used"):
        Response(stream)
    read = ReadableStream(Source(1))
    await read.read()
    with pytest.raises(OSError, match="Body already used"):
        Response(read)


@pytest.mark.asyncio
@pytest.mark.parametrize("has_begun", [False, True])
async def test_closing_closes_what_it_comes_from(has_begun: bool) -> None:
    source = Source(3)
    stream = ReadableStream(source)
    if has_begun:
        await anext(stream)
    await stream.cancel()
    assert source.is_closed
    with pytest.raises((StopAsyncIteration, OSError)):
        await anext(stream)


@pytest.mark.asyncio
async def test_the_webs_reader_reads_until_done() -> None:
    reader = ReadableStream(Source(2)).getReader()
    assert [await reader.read() for _ in range(3)] == [(b"x", False), (b"x", False), (None, True)]
    result = await reader.read()
    assert result.done


@pytest.mark.asyncio
async def test_pieces_are_bytes_or_text() -> None:
    mixed: list[Any] = [b"a", "é", bytearray(b"b")]
    assert await ReadableStream(iter(mixed)).read() == "aéb".encode()
    wrong: list[Any] = [7]
    assert await ReadableStream(b"whole").read() == b"whole"
    with pytest.raises(TypeError, match="a body's pieces are bytes or str, not int"):
        await ReadableStream(iter(wrong)).read()


@pytest.mark.asyncio
async def test_each_half_of_a_split_has_every_piece_in_its_own_time() -> None:
    source = Source(5)
    first, second = ReadableStream(source).tee()
    assert [await anext(first) for _ in range(3)] == [b"x"] * 3
    assert source.num_read == 3

    async def rest() -> bytes:
        return b"".join([piece async for piece in first])

    assert tuple(await asyncio.gather(rest(), second.read())) == (b"xx", b"xxxxx")
    assert source.num_read == 5


@pytest.mark.asyncio
async def test_a_half_that_is_closed_holds_nothing_back() -> None:
    source = Source(32, b"x" * (TEE_BYTES // 16))
    first, second = ReadableStream(source).tee()
    await second.aclose()
    assert len(await first.read()) == 2 * TEE_BYTES
    assert not source.is_closed
    await first.aclose()


@pytest.mark.asyncio
async def test_one_half_may_not_be_too_far_ahead() -> None:
    first, second = ReadableStream(Source(32, b"x" * (TEE_BYTES // 16))).tee()
    with pytest.raises(BufferError, match="16 MiB ahead"):
        await first.read()
    await second.aclose()


@pytest.mark.asyncio
async def test_closing_both_halves_closes_what_they_come_from() -> None:
    source = Source(3)
    first, second = ReadableStream(source).tee()
    await anext(first)
    await first.aclose()
    assert not source.is_closed
    await second.aclose()
    assert source.is_closed
