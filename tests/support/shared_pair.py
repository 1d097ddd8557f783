"""Two step loops' ports and their fronts, in one thread: what is said waits until `settle`."""

from __future__ import annotations

import asyncio
import os
from collections import deque
from pathlib import Path

import anyio
import anyio.lowlevel
from anyio.abc import TaskGroup

from support.fake_node import PATIENCE_S
from support.page_members import DECODE
from support.port_contract import INCARNATION, PAGE_BYTES
from support.push_peer import a_push_server
from tenantry_runtime.pool.lent_pages import lend
from tenantry_runtime.pool.page_messages import (
    PageCommand,
    PageReport,
    PagesReady,
    PushAnswer,
    PushBegin,
    PushClose,
    PushEnd,
    PushPage,
    SlotsRead,
)
from tenantry_runtime.pool.peers import Peers
from tenantry_runtime.pool.push_receiver import PushReceiver
from tenantry_runtime.pool.push_sender import PushSender
from tenantry_runtime.pool.shared_pages import SharedPages, SlotLayout, create_pages_file
from tenantry_runtime.pool.shared_port import SharedMemoryPort


class _Side:
    """One step loop's port, and the two queues between it and its front."""

    def __init__(self) -> None:
        self.fd = create_pages_file()
        self.reports: deque[PageReport] = deque()
        self.commands: deque[PageCommand] = deque()
        self.port = SharedMemoryPort(self.fd, self.reports.append)
        self.port.allocate(PAGE_BYTES)

    def mapped(self) -> SharedPages:
        """Do what a front does with the first report."""
        ready = self.reports.popleft()
        assert isinstance(ready, PagesReady)
        return SharedPages(
            self.fd, SlotLayout(slot_bytes=ready.slot_bytes, num_slots=ready.num_slots)
        )


class SharedPair:
    """`Joined` over gRPC, with pages in its frames, or read where they lie; `close` it."""

    def __init__(self, folder: Path, *, lends: bool) -> None:
        self._lends = lends
        self.address = f"unix:{folder / 'shared.sock'}"
        self._runner = asyncio.Runner()
        self._left, self._right = _Side(), _Side()
        self._runner.run(self._start())

    @property
    def sender(self) -> SharedMemoryPort:
        return self._left.port

    @property
    def receiver(self) -> SharedMemoryPort:
        return self._right.port

    def settle(self) -> None:
        self._runner.run(self._settle())

    def lose_sender(self) -> None:
        self._runner.run(self._stop_sender())

    def lose_receiver(self) -> None:
        self._runner.run(self._stop_receiver())

    def close(self) -> None:
        self.lose_sender()
        self.lose_receiver()
        self._runner.close()
        for side in (self._left, self._right):
            os.close(side.fd)

    async def _start(self) -> None:
        self._front = PushReceiver(incarnation=INCARNATION, post=self._right.commands.append)
        self._front.open((DECODE,), self._right.mapped())
        self._server, _ = a_push_server(self.address, self._front.push)
        await self._server.start()

        self._peers = Peers()
        started: asyncio.Future[TaskGroup] = asyncio.get_running_loop().create_future()
        self._holder = asyncio.create_task(_hold_tasks(started))
        tasks = await started
        self._pusher = PushSender(peers=self._peers, post=self._left.commands.append, tasks=tasks)
        pages = self._left.mapped()
        memory = lend(self._left.fd, pages.layout) if self._lends else None
        self._pusher.open(pages, memory)

    async def _stop_sender(self) -> None:
        self._holder.cancel()
        await asyncio.wait([self._holder])
        await self._peers.close()

    async def _stop_receiver(self) -> None:
        await self._server.stop(0)
        with anyio.fail_after(PATIENCE_S):
            while self._front.statistics().num_streams:
                await anyio.lowlevel.checkpoint()

    async def _settle(self) -> None:
        with anyio.fail_after(PATIENCE_S):
            self._pass_on()
            while not self._is_settled():
                await anyio.lowlevel.checkpoint()
                self._pass_on()

    def _pass_on(self) -> None:
        """Carry what has been said between each loop and its front."""
        while self._left.reports:
            report = self._left.reports.popleft()
            if isinstance(report, PushBegin | PushPage | PushEnd | PushClose):
                if not self._holder.done():
                    self._pusher.obey(report)
        while self._right.reports:
            match self._right.reports.popleft():
                case SlotsRead(slots=slots):
                    self._front.free(slots)
                case PushAnswer() as answer:
                    self._front.answer(answer)
        for side in (self._left, self._right):
            while side.commands:
                side.port.accept(side.commands.popleft())

    def _is_settled(self) -> bool:
        # nobody else needs to know this of the two, so they do not say it
        left = {s.begin.target.handoff: s for s in self._pusher._streams.values()}
        right = {s.handoff: s for s in self._front._streams.values()}
        if left.keys() != right.keys() or self._left.reports or self._right.reports:
            return False
        for handoff, outgoing in left.items():
            incoming = right[handoff]
            is_ending = outgoing.end is not None and not outgoing.pages
            if (
                outgoing.is_closed
                or incoming.outcome is not None
                or outgoing.num_credit != incoming.claim.num_promised
                or incoming.claim.num_ready != outgoing.num_ready
                or incoming.num_received != outgoing.num_sent
                or outgoing.lent
                or (outgoing.pages and outgoing.num_credited)
                or is_ending != incoming.is_ended
            ):
                return False
        return not (self._left.commands or self._right.commands)


async def _hold_tasks(started: asyncio.Future[TaskGroup]) -> None:
    async with anyio.create_task_group() as tasks:
        started.set_result(tasks)
        await anyio.sleep_forever()
