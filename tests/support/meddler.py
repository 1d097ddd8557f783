"""A gRPC peer in the middle: passes every call on to a node, and meddles with the frames it is told to.

It knows no messages: a unary call is a stream of one frame each way, and metadata passes as it is.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeAlias

import anyio
import grpc

from tenantry_runtime.pool.grpc_options import channel_options, server_options

Meddle: TypeAlias = Callable[[str, bytes], AsyncIterator[bytes]]
"""Of a call's method and a frame from its caller: what the node gets instead."""


async def honest(_method: str, frame: bytes) -> AsyncIterator[bytes]:
    yield frame


class Meddler:
    """What a proxy does to frames; may be changed while calls run."""

    def __init__(self) -> None:
        self.meddle: Meddle = honest
        self.num_frames: dict[str, int] = {}
        """From callers, by method."""


# grpc has no types
class _AnyMethod(grpc.GenericRpcHandler):  # type: ignore[misc]
    def __init__(self, channel: Any, meddler: Meddler) -> None:
        self._channel = channel
        self._meddler = meddler

    def service(self, handler_call_details: Any) -> Any:
        method: str = handler_call_details.method
        pairs = [
            (key, value)
            for key, value in handler_call_details.invocation_metadata or ()
            if not key.startswith(("grpc-", "user-agent", ":"))
        ]

        async def passed_on(_requests: object, context: Any) -> None:
            call = self._channel.stream_stream(method)(metadata=pairs)
            try:
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(self._forward, method, context, call)
                    await _backward(call, context)
                    tasks.cancel_scope.cancel()
            finally:
                call.cancel()
            code = await call.code()
            if code is not grpc.StatusCode.OK:
                await context.abort(code, await call.details())

        return grpc.stream_stream_rpc_method_handler(passed_on)

    async def _forward(self, method: str, context: Any, call: Any) -> None:
        counts = self._meddler.num_frames
        try:
            while (frame := await context.read()) is not grpc.aio.EOF:
                counts[method] = counts.get(method, 0) + 1
                async for each in self._meddler.meddle(method, frame):
                    await call.write(each)
            await call.done_writing()
        except (grpc.aio.AioRpcError, grpc.aio.InternalError, grpc.aio.UsageError):
            return  # the node ended the call; `_backward` says so


async def _backward(call: Any, context: Any) -> None:
    try:
        await context.send_initial_metadata(await call.initial_metadata())
        while (frame := await call.read()) is not grpc.aio.EOF:
            await context.write(frame)
    except (grpc.aio.AioRpcError, grpc.aio.InternalError):
        return


@asynccontextmanager
async def a_meddler(address: str, node: str) -> AsyncIterator[Meddler]:
    """Listen at `address` for who wants to talk to `node`."""
    meddler = Meddler()
    async with grpc.aio.insecure_channel(node, options=channel_options()) as channel:
        server: Any = grpc.aio.server(options=server_options())
        server.add_generic_rpc_handlers((_AnyMethod(channel, meddler),))
        server.add_insecure_port(address)
        await server.start()
        try:
            yield meddler
        finally:
            with anyio.CancelScope(shield=True):
                await server.stop(0)
