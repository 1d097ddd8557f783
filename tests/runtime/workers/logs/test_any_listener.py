"""Whatever a listener sends, its tail ends or goes on, and nothing else happens."""

from __future__ import annotations

from typing import Any

import anyio
import pytest
from hypothesis import given, strategies as st

from tenantry_runtime.errors import InvalidInput
from tenantry_runtime.workers.logs import TailFilters, read_filters
from tenantry_runtime.workers.logs.websocket import (
    Closed,
    Handshake,
    Refused,
    WebSocket,
    read_handshake,
)

JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["outcome", "header", "key", "query", "x"]), inner)
    ),
    max_leaves=8,
)


class Sending:
    """A stream that brings bytes in pieces, and then ends."""

    def __init__(self, pieces: list[bytes]) -> None:
        self._pieces = pieces[::-1]
        self.sent = b""

    async def receive(self, max_bytes: int = 65536) -> bytes:
        if not self._pieces:
            raise anyio.EndOfStream
        return self._pieces.pop()

    async def send(self, item: bytes) -> None:
        self.sent += item


async def _hear_all(stream: Sending) -> int | None:
    # a stream's other methods are not used
    websocket = WebSocket(stream)  # type: ignore[arg-type]
    with pytest.raises(Closed) as closed:
        while True:
            await websocket.hear()
    return closed.value.code


@given(pieces=st.lists(st.binary(min_size=1, max_size=40), max_size=10))
def test_any_bytes_are_frames_or_the_end(pieces: list[bytes]) -> None:
    stream = Sending(pieces)
    code = anyio.run(_hear_all, stream)
    assert code in (None, 1000, 1002, 1009)
    # nothing but answers to pings
    assert len(stream.sent) <= sum(map(len, pieces))


@given(payload=st.binary(max_size=125), mask=st.binary(min_size=4, max_size=4))
def test_a_ping_comes_back_as_it_was(payload: bytes, mask: bytes) -> None:
    masked = bytes(byte ^ mask[place % 4] for place, byte in enumerate(payload))
    stream = Sending([bytes([0x89, 0x80 | len(payload)]), mask, masked or b"\x81\x00"])
    assert anyio.run(_hear_all, stream) is None
    assert stream.sent == bytes([0x8A, len(payload)]) + payload


@given(pieces=st.lists(st.binary(min_size=1, max_size=60), max_size=10))
def test_any_bytes_are_a_handshake_or_refused(pieces: list[bytes]) -> None:
    async def read() -> None:
        try:
            handshake, _ = await read_handshake(Sending(pieces))  # type: ignore[arg-type]
        except Refused as refused:
            assert 400 <= refused.status < 500
        else:
            assert isinstance(handshake, Handshake)

    anyio.run(read)


@given(filters=st.lists(JSON, max_size=4))
def test_any_filters_are_read_or_refused(filters: list[Any]) -> None:
    try:
        read = read_filters(filters, client_ip="")
    except InvalidInput:
        return
    assert isinstance(read, TailFilters)
