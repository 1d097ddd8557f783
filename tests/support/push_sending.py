"""A Push sender in the test's own process, and a receiver that behaves as it is told."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeAlias

import anyio

from support.page_loop import an_end
from support.page_members import PREFILL
from support.push_peer import Heard, a_page, an_opening, mapped_pages, pushes_served
from tenantry_runtime.pool.messages import LentMemory
from tenantry_runtime.pool.page_messages import (
    PushBegin,
    PushConfirmed,
    PushEnd,
    PushLost,
    PushPage,
    SlotsSent,
)
from tenantry_runtime.pool.peers import connected_peers
from tenantry_runtime.pool.push_sender import PushSender
from tenantry_runtime.pool.shared_pages import SharedPages

Behave: TypeAlias = Callable[[Any], Awaitable[None]]
"""What a receiver does with a call's context."""

CONTENT = b"page"


class Sending:
    def __init__(self, sender: PushSender, pages: SharedPages, heard: Heard, address: str) -> None:
        self.sender = sender
        self.heard = heard
        self._pages = pages
        self._address = address

    def begin(self) -> None:
        target = an_opening().target
        self.sender.obey(PushBegin(channel=1, address=self._address, target=target, source=PREFILL))

    def push(self, num_pages: int) -> None:
        for page in range(num_pages):
            self._pages.outgoing(page)[: len(CONTENT)] = CONTENT
            self.sender.obey(PushPage(channel=1, slot=page, header=a_page(CONTENT, page)))

    def end(self, num_pages: int) -> None:
        self.sender.obey(PushEnd(channel=1, end=an_end(1, num_pages)))

    async def until_slots(self, num_slots: int) -> None:
        await self.heard.until(lambda _: len(self._sent()) == num_slots)
        assert sorted(self._sent()) == list(range(num_slots))

    def _sent(self) -> list[int]:
        return [slot for sent in self.heard.all(SlotsSent) for slot in sent.slots]

    async def problem(self) -> str:
        await self.heard.until(lambda _: bool(self.heard.all(PushLost)))
        (lost,) = self.heard.all(PushLost)
        assert not self.heard.all(PushConfirmed)
        assert self.sender.statistics().num_streams == 0
        return lost.problem


@asynccontextmanager
async def a_sender(
    folder: Path,
    behave: Behave,
    *,
    pages: SharedPages | None = None,
    memory: LentMemory | None = None,
) -> AsyncIterator[Sending]:
    """Run a sender whose peer behaves as told, with slots of its own or `pages`, and may lend `memory`."""
    address = f"unix:{folder / 'peer.sock'}"

    async def push(_requests: object, context: Any) -> None:
        await behave(context)

    pages = pages or mapped_pages()
    heard = Heard()
    async with (
        pushes_served(address, push),
        connected_peers() as peers,
        anyio.create_task_group() as tasks,
    ):
        sender = PushSender(peers=peers, post=heard.add, tasks=tasks)
        sender.open(pages, memory)
        yield Sending(sender, pages, heard, address)
        tasks.cancel_scope.cancel()


def saying(*frames: bytes) -> Behave:
    async def behave(context: Any) -> None:
        for frame in frames:
            await context.write(frame)
        await anyio.sleep_forever()

    return behave
