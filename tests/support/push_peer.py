"""A Push receiver in the test's own process, and a pusher that says each frame by hand."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import anyio
import grpc

from support.fake_node import PATIENCE_S
from support.page_members import DECODE, PREFILL
from tenantry_runtime.pool.grpc_options import PUSH, channel_options, server_options
from tenantry_runtime.pool.messages import SERVICE, HandoffTarget, PageHeader, PushOpen
from tenantry_runtime.pool.page_messages import PageCommand, SourceGone
from tenantry_runtime.pool.push_frames import (
    Credit,
    PushOutcome,
    ReceiverFrame,
    open_frame,
    page_frames,
    read_receiver_frame,
)
from tenantry_runtime.pool.push_receiver import PushReceiver
from tenantry_runtime.pool.shared_pages import SharedPages, SlotLayout, create_pages_file, set_size

INCARNATION = 77
LAYOUT = SlotLayout(slot_bytes=8192, num_slots=4)

CommandT = TypeVar("CommandT", bound=PageCommand)


@dataclass(slots=True, eq=False)
class Heard:
    """What the step loop is told."""

    commands: list[PageCommand] = field(default_factory=list)
    grown: anyio.Event = field(default_factory=anyio.Event)

    def add(self, command: PageCommand) -> None:
        self.commands.append(command)
        self.grown.set()
        self.grown = anyio.Event()

    async def until(self, is_enough: Callable[[list[PageCommand]], bool]) -> None:
        with anyio.fail_after(PATIENCE_S):
            while not is_enough(self.commands):
                await self.grown.wait()

    def all(self, kind: type[CommandT]) -> list[CommandT]:
        return [command for command in self.commands if isinstance(command, kind)]


@dataclass(frozen=True, slots=True)
class Receiving:
    receiver: PushReceiver
    pages: SharedPages
    heard: Heard
    channel: Any

    @asynccontextmanager
    async def pusher(self) -> AsyncIterator[Pusher]:
        call = self.channel.stream_stream(PUSH)()
        try:
            yield Pusher(call)
        finally:
            call.cancel()

    async def until_all_free(self) -> None:
        """Wait until no stream is left; fail when a slot is not back then."""
        with anyio.fail_after(PATIENCE_S):
            while self.receiver.statistics().num_streams:
                await self.heard.grown.wait()
        credits = self.receiver.statistics().credits
        assert credits is not None
        assert credits.num_free == credits.num_slots

    def loses(self, num_streams: int) -> Any:
        return self.heard.until(
            lambda commands: sum(isinstance(c, SourceGone) for c in commands) == num_streams
        )


class Pusher:
    """One Push call."""

    # grpc has no types
    def __init__(self, call: Any) -> None:
        self._call = call
        self._num_credit: int | None = None

    async def send(self, frame: bytes) -> None:
        await self._call.write(frame)

    async def send_page(
        self, header: PageHeader, content: bytes, *, num_ready: int | None = None
    ) -> None:
        ready = header.logical_page + 1 if num_ready is None else num_ready
        for frame in page_frames(ready, [header], [memoryview(content)]):
            await self.send(frame)

    async def read(self) -> ReceiverFrame | None:
        with anyio.fail_after(PATIENCE_S):
            frame = await self._call.read()
        return None if frame is grpc.aio.EOF else read_receiver_frame(frame)

    async def until_credit(self, num_pages: int) -> None:
        while self._num_credit is None or self._num_credit < num_pages:
            frame = await self.read()
            assert isinstance(frame, Credit), frame
            self._num_credit = frame.num_pages

    async def outcome(self) -> str | None:
        """Read to the end, which must be an outcome, and return its problem."""
        while isinstance(frame := await self.read(), Credit):
            pass
        assert isinstance(frame, PushOutcome), frame
        assert await self.read() is None
        return frame.problem

    def cancel(self) -> None:
        self._call.cancel()


def an_opening(handoff: int = 1, **fields: Any) -> PushOpen:
    target = {
        "model": DECODE.model,
        "incarnation": INCARNATION,
        "handoff": handoff,
        "cache_format": DECODE.cache_format,
        "first_page": 0,
        "pages": b"",
    }
    return PushOpen(target=HandoffTarget(**{**target, **fields}), source=PREFILL)


def opened(handoff: int = 1, **fields: Any) -> bytes:
    return open_frame(an_opening(handoff, **fields))


def a_page(content: bytes, page: int = 0, handoff: int = 1) -> PageHeader:
    return PageHeader(handoff, page, page, 9, 64, 5, len(content))


def mapped_pages() -> SharedPages:
    fd = create_pages_file()
    set_size(fd, LAYOUT)
    pages = SharedPages(fd, LAYOUT)
    os.close(fd)
    return pages


# grpc has no types
def a_push_server(address: str, push: Callable[[object, Any], Awaitable[None]]) -> tuple[Any, int]:
    """Make a server of that one call, and tell its port; the caller starts and stops it."""
    server: Any = grpc.aio.server(options=server_options())
    methods = {"Push": grpc.stream_stream_rpc_method_handler(push)}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, methods),))
    port: int = server.add_insecure_port(address)
    return server, port


@asynccontextmanager
async def pushes_served(
    address: str, push: Callable[[object, Any], Awaitable[None]]
) -> AsyncIterator[int]:
    server, port = a_push_server(address, push)
    await server.start()
    try:
        yield port
    finally:
        with anyio.CancelScope(shield=True):
            await server.stop(0)


@asynccontextmanager
async def a_receiver(
    folder: Path, *, has_pages: bool = True, is_local: bool = True
) -> AsyncIterator[Receiving]:
    """Serve Push calls on a socket of the folder, or on a port of the loopback interface."""
    address = f"unix:{folder / 'push.sock'}" if is_local else "127.0.0.1:0"
    heard = Heard()
    pages = mapped_pages()
    receiver = PushReceiver(incarnation=INCARNATION, post=heard.add)
    receiver.open((DECODE,), pages if has_pages else None)
    async with pushes_served(address, receiver.push) as port:
        address = address if is_local else f"127.0.0.1:{port}"
        async with grpc.aio.insecure_channel(address, options=channel_options()) as channel:
            yield Receiving(receiver, pages, heard, channel)
