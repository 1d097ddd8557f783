"""A node's end of the wire in this process: it says what a test tells it, and remembers what it hears."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import anyio
import grpc

from support.fake_node import PATIENCE_S
from support.routes import BOTH, MODEL, a_member
from tenantry_runtime.pool.frames import FrameJoiner, split
from tenantry_runtime.pool.messages import (
    SERVICE,
    Cancel,
    Deliver,
    NodeDescription,
    NodeMessage,
    NodeStatistics,
)
from tenantry_runtime.pool.wire import PackedSubmit, WorkMessage, decode_work, encode

Heard = TypeVar("Heard", PackedSubmit, Deliver, Cancel)


class WireNode:
    """Serves one edge."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.statistics = NodeStatistics(
            loop_turn_ns=1, num_running=0, num_waiting=0, num_free_pages={MODEL: 64}
        )
        self.heard: list[WorkMessage] = []
        self._call: Any = None
        self._failure: str | None = None
        self._ends = anyio.Event()
        self._changed = anyio.Event()

    async def say(self, *messages: NodeMessage) -> None:
        with anyio.fail_after(PATIENCE_S):
            while self._call is None:
                await self._changed.wait()
        for message in messages:
            for frame in split(encode(message)):
                await self._call.write(frame)

    async def hear(self, kind: type[Heard], number: int = 0) -> Heard:
        """Wait for the message of that kind and number."""
        with anyio.fail_after(PATIENCE_S):
            while True:
                heard = [message for message in self.heard if isinstance(message, kind)]
                if len(heard) > number:
                    return heard[number]
                await self._changed.wait()

    async def end(self, failure: str | None) -> None:
        """End the stream after what was said: in order, or by a failure."""
        self._failure = failure
        self._ends.set()

    # grpc has no types
    async def hello(self, _request: bytes, _context: Any) -> bytes:
        members = tuple(a_member(phase) for phase in BOTH)
        return encode(NodeDescription(version=1, incarnation=7, members=members))

    async def answer_statistics(self, _request: bytes, _context: Any) -> bytes:
        return encode(self.statistics)

    async def work(self, _requests: object, context: Any) -> None:
        await context.send_initial_metadata(())
        self._call = context
        self._announce()
        async with anyio.create_task_group() as tasks:

            async def read() -> None:
                await self._read(context)
                tasks.cancel_scope.cancel()

            tasks.start_soon(read)
            await self._ends.wait()
            tasks.cancel_scope.cancel()
        if self._failure is not None:
            await context.abort(grpc.StatusCode.UNAVAILABLE, self._failure)

    async def _read(self, context: Any) -> None:
        joiner = FrameJoiner()
        while (frame := await context.read()) is not grpc.aio.EOF:
            message = joiner.add(frame)
            if message is not None:
                self.heard.append(decode_work(message))
                self._announce()

    def _announce(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()


@asynccontextmanager
async def a_wire_node(folder: Path) -> AsyncIterator[WireNode]:
    node = WireNode(f"unix:{folder / 'wire.sock'}")
    server = grpc.aio.server()
    methods = {
        "Hello": grpc.unary_unary_rpc_method_handler(node.hello),
        "Statistics": grpc.unary_unary_rpc_method_handler(node.answer_statistics),
        "Work": grpc.stream_stream_rpc_method_handler(node.work),
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, methods),))
    server.add_insecure_port(node.address)
    await server.start()
    try:
        yield node
    finally:
        await server.stop(None)
