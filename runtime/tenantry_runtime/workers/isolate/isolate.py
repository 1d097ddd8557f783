"""The runtime's side of one isolate: what each frame may be, and whom it concerns."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import anyio

from tenantry_runtime.workers.byte_streams import BytesStream
from tenantry_runtime.workers.frames import (
    MAX_DATA_BYTES,
    BindingValue,
    Cancel,
    Drain,
    Fetch,
    File,
    Load,
    Loaded,
    Rpc,
    Scheduled,
    Trace,
)
from tenantry_runtime.workers.interface import (
    HttpRequest,
    HttpResponse,
    Invocation,
)
from tenantry_runtime.workers.spec import (
    AiBinding,
    Binding,
    KvBinding,
    ServiceBinding,
    WorkerVersion,
)

from .channel import Channel
from .inbox import Inbox
from .interface import (
    Attendant,
    Ending,
    EndingKind,
    HeldUp,
    IsolateEnded,
    IsolateLimits,
    IsolateStatistics,
    NeverBegan,
)
from .invocations import Opened
from .streams import close

DEFAULT_LIMITS = IsolateLimits()
VENDORED = "python_modules/"
NO_TRACE = Trace()


class Isolate:
    """The runtime's side of one isolate; `open_isolate` makes it."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        connection: socket.socket,
        outside: Attendant,
        limits: IsolateLimits,
    ) -> None:
        self.ended = anyio.Event()
        self.inbox = Inbox(loop, connection, outside, limits, self.ended)
        self._loop = loop
        self._channel = self.inbox.channel
        self._next = 1

    ended: anyio.Event
    """Set once nothing more comes; then `ending` says why. Every open invocation has failed by then."""

    @property
    def ending(self) -> Ending | None:
        """Why nothing more comes; None while something may."""
        return self.inbox.ending

    @property
    def held_up(self) -> HeldUp | None:
        """What it said last when it was asked by the signal; None: it never was, or has not answered."""
        return self.inbox.held_up

    async def load(
        self,
        version: WorkerVersion,
        files: Iterable[tuple[str, bytes]],
        values: Mapping[str, object],
    ) -> Loaded:
        """Give a blank isolate its version: files by their paths, and what `Bindings.values` said.

        Once per isolate. Returns entrypoints and the import's CPU time. Raises `interface.LoadError` (of
        workers) with the tenant's file and line, or `IsolateEnded`.
        """
        inbox = self.inbox
        assert inbox.loading is None, "an isolate is loaded once"
        self._check_ended()
        inbox.loading = loading = self._loop.create_future()
        inbox.gate.max_lines = version.limits.log_lines
        try:
            has_vendored = await self._send_files(files)
            bindings = [_binding_value(binding, values) for binding in version.bindings]
            self._channel.send(
                Load(version.main_module, bindings, has_vendored, version.limits.log_lines)
            )
            loaded: Loaded = await loading
            return loaded
        finally:
            if not loading.cancel() and not loading.cancelled():
                # known to whoever waited, if anybody still did
                loading.exception()

    def fetch(
        self,
        request: HttpRequest,
        invocation: Invocation,
        attendant: Attendant,
        *,
        deadline_s: float | None = None,
    ) -> AbstractAsyncContextManager[HttpResponse]:
        """Enter with the response; leaving before its body has ended cancels the handler.

        `deadline_s` is on anyio's clock and only told to the worker: the caller enforces it. The request's
        body belongs to the isolate from then on, unless `NeverBegan` is raised. Raises `InvocationFailed`
        or `IsolateEnded`, and so does the response's body when it is read.
        """
        return _Fetching(self, request, invocation, attendant, deadline_s)

    async def scheduled(
        self,
        cron: str,
        scheduled_ms: int,
        invocation: Invocation,
        attendant: Attendant,
        *,
        deadline_s: float | None = None,
    ) -> None:
        """Run the handler of a cron trigger. Raises like `fetch`; cancelling it cancels the handler."""

        def frame(opened: Opened) -> Scheduled:
            seconds_left, trace = self.seconds_left(deadline_s), trace_of(invocation)
            return Scheduled(
                opened.number, invocation.entrypoint, cron, scheduled_ms, seconds_left, trace
            )

        await self._run(frame, attendant)

    async def rpc(
        self,
        method: str,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        invocation: Invocation,
        attendant: Attendant,
        *,
        deadline_s: float | None = None,
    ) -> object:
        """Call a method of an entrypoint. Raises like `fetch`; cancelling it cancels the handler.

        Arguments that MessagePack does not know, or that are more than a frame, raise `TypeError` or
        `ValueError`.
        """

        def frame(opened: Opened) -> Rpc:
            return Rpc(
                opened.number,
                invocation.entrypoint,
                method,
                list(args),
                dict(kwargs),
                self.seconds_left(deadline_s),
                trace_of(invocation),
            )

        return await self._run(frame, attendant)

    def stop(self, attendant: Attendant) -> None:
        """Cancel all that is left of the attendant's invocation, `wait_until` included."""
        for opened in self.inbox.opened.values():
            if opened.attendant is attendant:
                self._channel.send(Cancel(opened.number, True))

    async def drain(self) -> None:
        """Tell the isolate that no invocation comes any more, and wait until it has ended by itself.

        Returns at once if the isolate has ended; unbounded otherwise: the caller's scope bounds it.
        """
        self._channel.send(Drain())
        await self.ended.wait()

    @property
    def num_signs(self) -> int:
        """Frames so far that only an isolate which reads sends."""
        return self.inbox.num_signs

    def statistics(self) -> IsolateStatistics:
        """Return what the isolate has and had of the runtime."""
        return IsolateStatistics(
            num_invocations=len(self.inbox.opened),
            num_calls=len(self.inbox.calls),
            num_streams=len(self.inbox.sources) + len(self.inbox.received),
            num_frames=self._channel.num_frames,
            num_signs=self.inbox.num_signs,
            num_bytes=self._channel.num_bytes,
            busy_s=self._channel.busy_s,
        )

    def seconds_left(self, deadline_s: float | None) -> float | None:
        """Return the time until a deadline; None if there is none."""
        return None if deadline_s is None else max(0.0, deadline_s - self._loop.time())

    async def begin(
        self, frame: Callable[[Opened], object], attendant: Attendant, *, is_fetch: bool
    ) -> Opened:
        """Begin an invocation, of which the attendant hears the end, come what may."""
        try:
            await self._channel.room()
            if self.ending is not None:
                raise NeverBegan(self.ending)
            number = self._next
            self._next += 1
            opened = Opened(number, attendant, self._loop.create_future(), is_fetch=is_fetch)
            self._send_begin(frame, opened)
        except BaseException:
            attendant.finished()
            raise
        return opened

    async def _run(self, frame: Callable[[Opened], object], attendant: Attendant) -> object:
        opened = await self.begin(frame, attendant, is_fetch=False)
        try:
            answer: object = await opened.answer
            return answer
        finally:
            self.inbox.leave(opened)

    async def _send_files(self, files: Iterable[tuple[str, bytes]]) -> bool:
        """Send the bundle; return whether it has vendored packages."""
        has_vendored = False
        for path, content in files:
            has_vendored = has_vendored or path.startswith(VENDORED)
            for start in range(0, len(content) or 1, MAX_DATA_BYTES):
                await self._channel.room()
                self._channel.send(File(path, content[start : start + MAX_DATA_BYTES]))
        return has_vendored

    def _send_begin(self, frame: Callable[[Opened], object], opened: Opened) -> None:
        invocations = self.inbox.opened
        invocations[opened.number] = opened
        opened.position = self._channel.position
        try:
            self._channel.send(frame(opened))
        except BaseException:
            del invocations[opened.number]
            for source in list(opened.sources):
                self.inbox.sources.forget(source)
            raise
        if len(invocations) == 1:
            # alone: nothing would be written with it
            self._channel.flush()

    def _check_ended(self) -> None:
        if self.ending is not None:
            raise IsolateEnded(self.ending)


class _Fetching:
    """The scope of one fetch."""

    __slots__ = ("_attendant", "_deadline_s", "_invocation", "_isolate", "_opened", "_request")

    def __init__(
        self,
        isolate: Isolate,
        request: HttpRequest,
        invocation: Invocation,
        attendant: Attendant,
        deadline_s: float | None,
    ) -> None:
        self._isolate = isolate
        self._request = request
        self._invocation = invocation
        self._attendant = attendant
        self._deadline_s = deadline_s
        self._opened: Opened | None = None

    async def __aenter__(self) -> HttpResponse:
        isolate, body = self._isolate, self._request.body
        try:
            opened = await isolate.begin(self._frame, self._attendant, is_fetch=True)
        except NeverBegan:
            raise
        except BaseException:
            await close(body)
            raise
        self._opened = opened
        try:
            response: HttpResponse = await opened.answer
            return response
        except BaseException:
            isolate.inbox.leave(opened)
            raise

    async def __aexit__(self, *_: object) -> None:
        opened = self._opened
        assert opened is not None
        # closed here rather than by the isolate, which may have ended long before
        passed, opened.passed = opened.passed, None
        self._isolate.inbox.leave(opened)
        if passed is not None:
            await close(passed)

    def _frame(self, opened: Opened) -> Fetch:
        request, invocation = self._request, self._invocation
        body, number = request.body, None
        if body is not None and not (isinstance(body, bytes) and len(body) <= MAX_DATA_BYTES):
            stream = BytesStream(body) if isinstance(body, bytes) else body
            number, body = self._isolate.inbox.sources.open(stream, opened), None
        return Fetch(
            opened.number,
            invocation.entrypoint,
            request.method,
            request.url,
            list(request.headers),
            body,
            number,
            self._isolate.seconds_left(self._deadline_s),
            trace_of(invocation),
        )


@asynccontextmanager
async def open_isolate(
    connection: socket.socket,
    *,
    outside: Attendant,
    limits: IsolateLimits = DEFAULT_LIMITS,
) -> AsyncIterator[Isolate]:
    """Own the runtime's end of a spawned isolate's stream; leaving the scope closes it.

    `outside` answers calls and takes logs of no invocation: the import, and tasks that outlive theirs.
    The process itself is not this scope's: its owner kills it once `ended` is set, and after the scope.
    """
    loop = asyncio.get_running_loop()
    isolate = Isolate(loop, connection, outside, limits)
    inbox = isolate.inbox
    connection.setblocking(False)
    failure: Exception | None = None
    async with anyio.create_task_group() as group:
        inbox.sources.group = inbox.calls.group = group
        try:
            await _connect(loop, inbox.channel, connection)
            yield isolate
        except Exception as error:
            # raised behind the group, which would wrap what its owner is to catch
            failure = error
        finally:
            inbox.channel.end(Ending(EndingKind.LEFT, "the isolate was given up"))
            group.cancel_scope.cancel()
    if failure is not None:
        raise failure


async def _connect(
    loop: asyncio.AbstractEventLoop, channel: Channel, connection: socket.socket
) -> None:
    try:
        await loop.create_connection(lambda: channel, sock=connection)
    except BaseException:
        connection.close()
        raise


def trace_of(invocation: Invocation) -> Trace:
    """Return where in whose trace an invocation is, as its isolate is told."""
    if not invocation.traceparent:
        return NO_TRACE
    return Trace(invocation.traceparent, invocation.tracestate)


def _binding_value(binding: Binding, values: Mapping[str, object]) -> BindingValue:
    match binding:
        case AiBinding():
            return BindingValue(binding.name, "ai")
        case KvBinding():
            return BindingValue(binding.name, "kv")
        case ServiceBinding():
            return BindingValue(binding.name, "service")
        case _:
            return BindingValue(binding.name, "value", values[binding.name])
