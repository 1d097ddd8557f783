"""An isolate of whose stream the test has the other end, and may say there what it likes."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

import anyio
import msgspec
from anyio.abc import TaskGroup

from support.byte_streams import Pieces
from support.guests import Heard, a_request, an_invocation
from tenantry_runtime.workers.frames import ToIsolate
from tenantry_runtime.workers.guest.wire import HEADER, append_frame
from tenantry_runtime.workers.interface import HttpRequest, HttpResponse
from tenantry_runtime.workers.isolate import (
    InvocationFailed,
    Isolate,
    IsolateEnded,
    IsolateLimits,
    open_isolate,
)

FETCH, RPC = 1, 2
"""Invocations of `invaded`, and the number of the first one's request body."""
BODY = 2


def framed(*frames: object) -> bytes:
    """Return frames as bytes."""
    out = bytearray()
    for frame in frames:
        append_frame(out, frame)
    return bytes(out)


class Peer:
    """The isolate's end of its stream."""

    def __init__(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        self.connection = connection

    async def say(self, *frames: object) -> None:
        """Send frames."""
        await self.write(framed(*frames))

    async def write(self, content: bytes) -> None:
        """Send bytes, or as many as the runtime takes before it closes the stream."""
        try:
            await asyncio.get_running_loop().sock_sendall(self.connection, content)
        except (BrokenPipeError, ConnectionResetError):
            pass

    async def hear(self) -> ToIsolate:
        """Return the runtime's next frame."""
        (num_bytes,) = HEADER.unpack(await self._read(HEADER.size))
        return msgspec.msgpack.decode(await self._read(num_bytes), type=ToIsolate)

    async def hear_all(self, num_frames: int) -> list[ToIsolate]:
        """Return the runtime's next frames."""
        return [await self.hear() for _ in range(num_frames)]

    async def _read(self, num_bytes: int) -> bytes:
        content = b""
        while len(content) < num_bytes:
            rest = num_bytes - len(content)
            piece = await asyncio.get_running_loop().sock_recv(self.connection, rest)
            assert piece, "the runtime closed the stream"
            content += piece
        return content


@asynccontextmanager
async def a_peer(
    outside: Heard | None = None, limits: IsolateLimits | None = None
) -> AsyncIterator[tuple[Isolate, Peer]]:
    """Open an isolate, and the other end of its stream."""
    ours, theirs = socket.socketpair()
    with theirs:
        async with open_isolate(
            ours, outside=outside or Heard(), limits=limits or IsolateLimits()
        ) as isolate:
            with anyio.fail_after(20):
                yield isolate, Peer(theirs)


@dataclass(eq=False)
class Fetching:
    """A fetch in a task of its own, which waits with its response until it is released."""

    heard: Heard
    response: HttpResponse | None = None
    error: Exception | None = None

    def __post_init__(self) -> None:
        self.is_answered = anyio.Event()
        self.release = anyio.Event()
        self.is_over = anyio.Event()

    async def run(self, isolate: Isolate, request: HttpRequest) -> None:
        try:
            async with isolate.fetch(request, an_invocation(), self.heard) as self.response:
                self.is_answered.set()
                await self.release.wait()
        except (IsolateEnded, InvocationFailed) as error:
            self.error = error
        finally:
            self.is_answered.set()
            self.is_over.set()

    async def answered(self) -> HttpResponse:
        """Return the response, when it has come."""
        await self.is_answered.wait()
        assert self.response is not None, self.error
        return self.response


def start_fetch(
    group: TaskGroup,
    isolate: Isolate,
    heard: Heard | None = None,
    request: HttpRequest | None = None,
) -> Fetching:
    """Begin a fetch in a task."""
    fetching = Fetching(heard or Heard())
    group.start_soon(fetching.run, isolate, request or a_request())
    return fetching


@dataclass(eq=False)
class Calling:
    """A call of a method, in a task of its own."""

    heard: Heard
    error: Exception | None = None

    async def run(self, isolate: Isolate) -> None:
        try:
            await isolate.rpc("method", [], {}, an_invocation(), self.heard)
        except (IsolateEnded, InvocationFailed) as error:
            self.error = error


@dataclass(frozen=True)
class Invaded:
    """An isolate in the middle of two invocations."""

    isolate: Isolate
    peer: Peer
    fetching: Fetching
    calling: Calling
    body: Pieces


@asynccontextmanager
async def invaded(
    heard: Heard | None = None, limits: IsolateLimits | None = None
) -> AsyncIterator[Invaded]:
    """Open an isolate that has been told to fetch (with a body in pieces) and to call a method."""
    async with AsyncExitStack() as stack:
        isolate, peer = await stack.enter_async_context(a_peer(limits=limits))
        group = await stack.enter_async_context(anyio.create_task_group())
        body = Pieces(b"body")
        fetching = start_fetch(group, isolate, heard, a_request("/", body))
        await peer.hear()
        calling = Calling(Heard())
        group.start_soon(calling.run, isolate)
        await peer.hear()
        yield Invaded(isolate, peer, fetching, calling, body)
        group.cancel_scope.cancel()
