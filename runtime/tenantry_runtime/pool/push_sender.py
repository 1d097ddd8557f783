"""Hand-offs from this node to others: pages out of shared memory, as fast as the receiver takes them.

A receiver on this machine reads them where they are (`lent_pages`); others get their bytes.

One task per hand-off. Whatever becomes of it, the step loop gets back each slot once and, unless it
has closed the hand-off itself, hears how it ended.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import anyio
import grpc
from anyio.abc import TaskGroup

from tenantry_runtime.errors import ConfigurationError

from .bell import Bell
from .frames import MalformedFrame
from .grpc_options import CALL_IS_OVER, PUSH
from .messages import HandoffEnd, LentMemory, PushOpen
from .page_messages import (
    PageCommand,
    PushBegin,
    PushClose,
    PushConfirmed,
    PushEnd,
    PushLost,
    PushPage,
    SlotsSent,
)
from .peers import Peers
from .push_frames import (
    Credit,
    PushOutcome,
    end_frame,
    lent_frame,
    num_lent_together,
    num_together,
    open_frame,
    page_frames,
    read_receiver_frame,
    ready_frame,
)
from .shared_pages import SharedPages
from .tls import is_unix

OPEN_TIMEOUT_S = 10.0
"""To connect, and for the receiver to accept the hand-off."""

PROGRESS_TIMEOUT_S = 20.0
"""For the next page to be taken while one waits: the receiver's step loop may be in a long chunk."""

OUTCOME_TIMEOUT_S = 60.0
"""For the receiver's step loop to verify the last pages and answer."""

WATCH_INTERVAL_S = 1.0

_log = logging.getLogger(__name__)


@dataclass(slots=True, eq=False, kw_only=True)
class _Outgoing:
    """One hand-off."""

    begin: PushBegin
    pages: deque[PushPage] = field(default_factory=deque)
    """That wait, in order."""
    lent: deque[PushPage] = field(default_factory=deque)
    """That the receiver has not read yet, in order."""
    end: HandoffEnd | None = None
    num_ready: int = 0
    """Pages that the step loop has brought, in all."""
    num_sent: int = 0
    num_credit: int | None = None
    """Pages that the receiver takes, in all; None until it has accepted the hand-off."""
    num_read: int | None = None
    """Of the lent pages, in all; None: the receiver reads frames alone."""
    is_end_sent: bool = False
    is_closed: bool = False
    """By the step loop, which wants to hear no more of it."""
    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    changed: Bell = field(default_factory=Bell)

    @property
    def num_credited(self) -> int:
        """Pages that the receiver takes now."""
        return 0 if self.num_credit is None else max(0, self.num_credit - self.num_sent)


@dataclass(frozen=True, slots=True, kw_only=True)
class SenderStatistics:
    num_streams: int
    num_waiting_pages: int


class PushSender:
    """Carries out what one step loop says of its outgoing hand-offs."""

    def __init__(
        self, *, peers: Peers, post: Callable[[PageCommand], None], tasks: TaskGroup
    ) -> None:
        self._peers = peers
        self._post = post
        self._tasks = tasks
        self._pages: SharedPages | None = None
        self._memory: LentMemory | None = None
        self._streams: dict[int, _Outgoing] = {}

    def open(self, pages: SharedPages, memory: LentMemory | None) -> None:
        """The step loop has laid out its slots; `memory`: for receivers on this machine."""
        self._pages = pages
        self._memory = memory

    def obey(self, order: PushBegin | PushPage | PushEnd | PushClose) -> None:
        """Do what the step loop says; orders for a hand-off that is over only return its slots."""
        if isinstance(order, PushBegin):
            stream = self._streams[order.channel] = _Outgoing(begin=order)
            self._tasks.start_soon(self._run, stream)
            return

        known = self._streams.get(order.channel)
        match order:
            case PushPage(slot=slot):
                if known is None:
                    self._post(SlotsSent(slots=(slot,)))
                else:
                    known.pages.append(order)
                    known.num_ready += 1
                    known.changed.ring()
            case PushEnd(end=end):
                if known is not None:
                    known.end = end
                    known.changed.ring()
            case PushClose():
                if known is not None:
                    known.is_closed = True
                    known.scope.cancel()

    def statistics(self) -> SenderStatistics:
        return SenderStatistics(
            num_streams=len(self._streams),
            num_waiting_pages=sum(len(stream.pages) for stream in self._streams.values()),
        )

    async def _run(self, stream: _Outgoing) -> None:
        problem: str | None = "the hand-off was given up"
        try:
            with stream.scope:
                problem = await self._push(stream)
        finally:
            del self._streams[stream.begin.channel]
            if left := [page.slot for page in (*stream.lent, *stream.pages)]:
                self._post(SlotsSent(slots=tuple(left)))
            if not stream.is_closed:
                self._conclude(stream, problem)

    def _conclude(self, stream: _Outgoing, problem: str | None) -> None:
        channel = stream.begin.channel
        if problem is None:
            self._post(PushConfirmed(channel=channel))
        else:
            _log.error("the hand-off to %s is lost: %s", stream.begin.address, problem)
            self._post(PushLost(channel=channel, problem=problem))

    async def _push(self, stream: _Outgoing) -> str | None:
        """Carry one hand-off to its end; return what was wrong."""
        try:
            async with self._peers.use(stream.begin.address) as channel:
                call = channel.stream_stream(PUSH)()
                try:
                    return await self._over(stream, call)
                finally:
                    call.cancel()
        except ConfigurationError as error:
            return str(error)

    async def _over(self, stream: _Outgoing, call: Any) -> str | None:
        outcomes: list[str | None] = []
        async with anyio.create_task_group() as tasks:

            async def until_over(side: Callable[[], Awaitable[str | None]]) -> None:
                outcomes.append(await _outcome(side))
                tasks.cancel_scope.cancel()

            tasks.start_soon(until_over, lambda: self._read(stream, call))
            tasks.start_soon(self._write, stream, call)
            tasks.start_soon(until_over, lambda: _watch(stream))
        return outcomes[0]

    async def _read(self, stream: _Outgoing, call: Any) -> str | None:
        while (frame := await call.read()) is not grpc.aio.EOF:
            match read_receiver_frame(frame):
                case Credit(num_pages=num_pages, num_read=num_read):
                    stream.num_credit = num_pages
                    if num_read is not None:
                        self._read_by(stream, num_read)
                    stream.changed.ring()
                case PushOutcome(problem=problem):
                    if problem is None and not stream.is_end_sent:
                        return "the receiver admitted the sequence before its end"
                    return problem
        # a call that failed ends like one that is done
        return _ended(await call.code(), await call.details())

    def _read_by(self, stream: _Outgoing, num_read: int) -> None:
        """Take the slots back that the receiver has read."""
        num_new = num_read - (stream.num_read or 0)
        if not 0 <= num_new <= len(stream.lent):
            raise MalformedFrame(f"{num_read} lent pages are read, which were not lent")
        stream.num_read = num_read
        if num_new:
            slots = tuple(stream.lent.popleft().slot for _ in range(num_new))
            self._post(SlotsSent(slots=slots))

    async def _write(self, stream: _Outgoing, call: Any) -> None:
        with suppress(*CALL_IS_OVER):
            await self._write_forever(stream, call)

    async def _write_forever(self, stream: _Outgoing, call: Any) -> None:
        memory = self._memory if is_unix(stream.begin.address) else None
        opening = PushOpen(target=stream.begin.target, source=stream.begin.source, memory=memory)
        await call.write(open_frame(opening))
        num_told = 0
        while True:
            if stream.pages and stream.num_credited:
                num_told = stream.num_ready
                if stream.num_read is None:
                    await self._write_pages(stream, call)
                else:
                    await _lend_pages(stream, call)
            elif num_told < stream.num_ready:
                num_told = stream.num_ready
                await call.write(ready_frame(num_told))
            elif stream.end is not None and not stream.pages and not stream.is_end_sent:
                stream.is_end_sent = True
                await call.write(end_frame(stream.end))
            else:
                await stream.changed.rung()

    async def _write_pages(self, stream: _Outgoing, call: Any) -> None:
        """Write as many pages as have credit and go into one frame."""
        assert self._pages is not None
        credited = list(islice(stream.pages, stream.num_credited))
        pages = credited[: num_together(page.header for page in credited)]
        headers = [page.header for page in pages]
        views = [self._pages.outgoing(page.slot)[: page.header.num_bytes] for page in pages]
        for frame in page_frames(stream.num_ready, headers, views):
            await call.write(frame)
        # a frame is a copy, so that the slots are free once the last one is written
        for _ in pages:
            stream.pages.popleft()
        stream.num_sent += len(pages)
        self._post(SlotsSent(slots=tuple(page.slot for page in pages)))


async def _lend_pages(stream: _Outgoing, call: Any) -> None:
    """Name the slots of as many pages as have credit and go into one frame."""
    credited = islice(stream.pages, stream.num_credited)
    num_pages = num_lent_together(page.header for page in credited)
    pages = [stream.pages.popleft() for _ in range(num_pages)]
    # before the frame is: the receiver may have read them when the write returns
    stream.lent += pages
    stream.num_sent += num_pages
    headers = [page.header for page in pages]
    await call.write(lent_frame(stream.num_ready, headers, [page.slot for page in pages]))


async def _watch(stream: _Outgoing) -> str:
    """Return when the receiver has owed something for too long."""
    owed, since_s = _owed(stream), anyio.current_time()
    while True:
        await anyio.sleep(WATCH_INTERVAL_S)
        now_owed = _owed(stream)
        if now_owed != owed:
            owed, since_s = now_owed, anyio.current_time()
        elif owed is not None and anyio.current_time() - since_s > owed.timeout_s:
            return f"the receiver {owed.what} within {owed.timeout_s:g} s"


@dataclass(frozen=True, slots=True)
class _Owed:
    what: str
    timeout_s: float
    progress: int
    """Differs with every page, so that each has its own time."""


def _owed(stream: _Outgoing) -> _Owed | None:
    if stream.num_credit is None:
        return _Owed("did not accept the hand-off", OPEN_TIMEOUT_S, 0)
    if stream.pages or stream.lent:
        num_done = stream.num_sent - len(stream.lent)
        return _Owed("took no page", PROGRESS_TIMEOUT_S, stream.num_sent + num_done)
    if stream.is_end_sent:
        return _Owed("did not confirm the hand-off", OUTCOME_TIMEOUT_S, stream.num_sent)
    return None


async def _outcome(side: Callable[[], Awaitable[str | None]]) -> str | None:
    try:
        return await side()
    except grpc.aio.AioRpcError as error:
        return _ended(error.code(), error.details())
    except MalformedFrame as error:
        return f"the receiver speaks another language: {error}"


def _ended(code: grpc.StatusCode, details: str | None) -> str:
    """Say how a call ended.

    Where a write met the end before its status was there, grpc reports INTERNAL instead of that.
    """
    return f"the receiver ended the stream, or is not there: {code.name}: {details}"
