"""gRPC calls to a node by hand: for what `NodeClient` never does."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc

from tenantry_runtime.pool.frames import FrameJoiner, split
from tenantry_runtime.pool.grpc_options import (
    HELLO,
    INCARNATION_KEY,
    WORK,
    channel_for,
    channel_options,
)
from tenantry_runtime.pool.messages import (
    Cancel,
    Deliver,
    Hello,
    NodeDescription,
    NodeMessage,
    Submit,
)
from tenantry_runtime.pool.tls import TlsFiles
from tenantry_runtime.pool.wire import (
    decode_description,
    decode_node_message,
    encode,
    pack,
)


class RawEdge:
    """One channel, and a Work stream that sends and reads only when told."""

    # grpc has no types
    def __init__(self, channel: Any) -> None:
        self._channel = channel
        self._joiner = FrameJoiner()
        self._call: Any = None

    async def hello(self, hello: Hello | bytes) -> NodeDescription:
        request = hello if isinstance(hello, bytes) else encode(hello)
        return decode_description(await self._channel.unary_unary(HELLO)(request, timeout=10))

    def open(self, incarnation: int) -> None:
        self._call = self._channel.stream_stream(WORK)(
            metadata=((INCARNATION_KEY, str(incarnation)),)
        )

    async def send(self, message: Submit | Deliver | Cancel | bytes) -> None:
        match message:
            case Submit():
                encoded = encode(pack(message))
            case Cancel() | Deliver():
                encoded = encode(message)
            case _:
                encoded = message
        for frame in split(encoded):
            await self._call.write(frame)

    async def read(self) -> NodeMessage:
        while True:
            frame = await self._call.read()
            assert frame is not grpc.aio.EOF
            message = self._joiner.add(frame)
            if message is not None:
                return decode_node_message(message)

    async def status(self) -> tuple[grpc.StatusCode, str]:
        """Read to the end, which comes behind all messages, and return what it says."""
        try:
            while await self._call.read() is not grpc.aio.EOF:
                pass
        except grpc.aio.AioRpcError as error:
            return error.code(), error.details()
        return await self._call.code(), await self._call.details()


@asynccontextmanager
async def a_raw_edge(address: str, tls: TlsFiles | None = None) -> AsyncIterator[RawEdge]:
    """A channel to the node, its Work stream open."""
    # grpc's own first delay, a second, is most of such a test
    options = [*channel_options(), ("grpc.initial_reconnect_backoff_ms", 50)]
    async with channel_for(address, tls, options=options) as channel:
        edge = RawEdge(channel)
        # the node may still be on its way
        await channel.channel_ready()
        edge.open((await edge.hello(Hello(edge="raw"))).incarnation)
        yield edge
