"""One invocation, from its frame to `Finished`, as one task."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, TypeAlias

from tenantry.workers._host import HostReply, HostRequest, Invocation, enter
from tenantry_runtime.workers.frames import (
    MAX_DATA_BYTES,
    Failed,
    Fetch,
    Finished,
    Respond,
    Returned,
    Rpc,
    Scheduled,
)

from .failures import message_of, name_of, trace_of
from .streams import Incoming, StreamRefused, close
from .wire import faulty_header

if TYPE_CHECKING:
    from .session import Session

Begin: TypeAlias = Fetch | Scheduled | Rpc

MAX_HEADERS = 256


class Run:
    """What runs for one invocation: its handler, then what `wait_until` was given."""

    __slots__ = (
        "_body",
        "_frame",
        "_has_begun",
        "_is_cancelled",
        "_is_given_back",
        "_is_handling",
        "_session",
        "has_been_told",
        "invocation",
        "pumps",
        "task",
        "tasks",
    )

    def __init__(self, session: Session, frame: Begin, invocation: Invocation) -> None:
        self.invocation = invocation
        self.tasks: set[asyncio.Task[Any]] = set()
        """The worker's own that have not ended, those of `wait_until` among them."""
        self.pumps: set[asyncio.Task[None]] = set()
        """Bodies of its calls."""
        self.has_been_told = False
        """Whether the runtime knows that it never ends."""
        self._session = session
        self._frame = frame
        self._body: Incoming | None = None
        self._has_begun = False
        self._is_handling = True
        self._is_cancelled = False
        self._is_given_back = False
        if isinstance(frame, Fetch) and frame.body_stream is not None:
            # the runtime may end it before the task has begun
            self._body = session.streams.open_incoming(frame.body_stream)
        self.task = asyncio.Task(self._run(), loop=session.loop, context=session.new_context())

    def cancel(self, *, with_background: bool) -> None:
        """Cancel the handler, its body and its calls; `wait_until` only if it is said."""
        if self._is_handling:
            # a task that is cancelled before its first step never takes it, not even to say so
            if self._has_begun and not self._is_cancelled:
                self.task.cancel()
            self._is_cancelled = True
            for pump in self.pumps:
                pump.cancel()
        if with_background:
            for task in (*self.invocation.tasks, *self.tasks, *self.pumps):
                task.cancel()

    def give_back(self) -> bool:
        """Never begin, if it has not; return whether that is so."""
        self._is_given_back = not self._has_begun
        return self._is_given_back

    def waiting_tasks(self) -> list[asyncio.Task[Any]]:
        """Return what holds the invocation up."""
        return [self.task] if self._is_handling else [*self.invocation.tasks, *self.tasks]

    async def _run(self) -> None:
        enter(self.invocation)
        session = self._session
        if self._is_given_back:
            # its number, and that of its body, are void
            if self._body is not None:
                session.streams.incoming.pop(self._body.number, None)
            session.finish(self.invocation.id)
            return
        self._has_begun = True
        try:
            if self._is_cancelled:
                raise asyncio.CancelledError
            await self._handle(self._frame)
        except BaseException as error:
            self._fail(error)
        self._is_handling = False
        if self._body is not None:
            self._body.close()
        while self.invocation.tasks or self.pumps or self.tasks:
            try:
                await self._settle()
            except asyncio.CancelledError:
                # of a settling, by nobody but the worker's own code
                continue
        number = self.invocation.id
        session.finish(number)
        session.channel.send(Finished(number))

    async def _handle(self, frame: Begin) -> None:
        worker = self._session.worker
        assert worker is not None
        match frame:
            case Fetch():
                body = frame.body if self._body is None else self._body
                request = HostRequest(frame.method, frame.url, frame.headers, body)
                await self._respond(await worker.fetch(self.invocation, frame.entrypoint, request))
            case Rpc():
                value = await worker.rpc(
                    self.invocation, frame.entrypoint, frame.method, frame.args, frame.kwargs
                )
                self._session.channel.send(Returned(frame.invocation, value))
            case Scheduled():
                await worker.scheduled(
                    self.invocation, frame.entrypoint, frame.cron, frame.scheduled_ms
                )
                self._session.channel.send(Returned(frame.invocation))

    async def _respond(self, reply: HostReply) -> None:
        number, body = self.invocation.id, reply.body
        try:
            _check(reply)
            if body is None or (isinstance(body, bytes) and len(body) <= MAX_DATA_BYTES):
                self._session.channel.send(Respond(number, reply.status, reply.headers, body))
                return
            handed_on = body.hand_on() if isinstance(body, Incoming) else None
            if handed_on is not None:
                frame = Respond(number, reply.status, reply.headers, None, handed_on)
                self._session.channel.send(frame)
                return
            outgoing = self._session.streams.open_outgoing()
            try:
                frame = Respond(number, reply.status, reply.headers, None, outgoing.number)
                self._session.channel.send(frame)
            except BaseException:
                outgoing.forget()
                raise
        except BaseException:
            await close(body)
            raise
        outgoing.on_refused = lambda: self.cancel(with_background=False)
        await outgoing.pump(body)

    async def _settle(self) -> None:
        await self.invocation.settle()
        if self.pumps:
            await asyncio.wait(self.pumps)
            return
        own = {task for task in self.tasks if not task.done()}
        if not own:
            self.tasks.clear()
            return
        if not self._is_cancelled:
            self._session.output.log(
                "warn",
                f"{len(own)} tasks were still running when their invocation ended, and were "
                "cancelled; give what has to go on to wait_until",
            )
        for task in own:
            task.cancel()
        await asyncio.wait(own)

    def _fail(self, error: BaseException) -> None:
        number = self.invocation.id
        if isinstance(error, asyncio.CancelledError | StreamRefused):
            failed = Failed(number, "CancelledError", "the invocation was cancelled")
        else:
            try:
                failed = Failed(number, name_of(error), message_of(error), trace_of(error))
            except MemoryError:
                failed = Failed(number, type(error).__name__, "")
        self._session.channel.send(failed)


def _check(reply: HostReply) -> None:
    """Refuse what no HTTP response can be, here where the worker learns of it."""
    if not 200 <= reply.status <= 599:
        raise ValueError(f"a response's status is from 200 to 599, not {reply.status}")
    if len(reply.headers) > MAX_HEADERS:
        raise ValueError(f"a response has at most {MAX_HEADERS} headers, not {len(reply.headers)}")
    if faulty := faulty_header(reply.headers):
        raise ValueError(f"HTTP has no way to write the header {faulty[0]!r}: {faulty[1]!r}")
