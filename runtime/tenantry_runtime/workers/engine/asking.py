"""Whoever asks a worker, while the invocation runs: what it is given, and what it raises."""

from __future__ import annotations

from types import TracebackType
from typing import NoReturn, Protocol

from tenantry_runtime.workers.interface import (
    Event,
    HttpRequest,
    HttpResponse,
    Invocation,
    WorkerFailed,
)
from tenantry_runtime.workers.isolate import InvocationFailed, IsolateEnded, NeverBegan
from tenantry_runtime.workers.outcome import Outcome
from tenantry_runtime.workers.spec import WorkerVersion

from .response import ResponseBody, failure_of, limited
from .running import Running
from .verdict import Verdict

_CANCELED = Verdict(Outcome.CANCELED, "whoever asked went away")


class Begin(Protocol):
    """`WorkerEngine.begin`."""

    async def __call__(
        self,
        version: WorkerVersion,
        invocation: Invocation,
        event: Event,
        *,
        moved: Running | None = None,
    ) -> Running: ...


class Awaited:
    """The time in which somebody waits for an invocation; what it raises becomes `WorkerFailed`.

    But `NeverBegan`, with which the invocation goes on elsewhere.
    """

    __slots__ = ("_running",)

    def __init__(self, running: Running) -> None:
        self._running = running

    async def __aenter__(self) -> None:
        pass

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: object
    ) -> None:
        running = self._running
        if error is None:
            running.resident.leave(running)
        elif isinstance(error, NeverBegan):
            pass
        elif isinstance(error, InvocationFailed | IsolateEnded):
            await _fail(running, error)
        else:
            running.judge(_CANCELED)
            running.resident.leave(running)


class Fetching:
    """Entered with the response of a worker, and left when it has ended, or is wanted no more."""

    __slots__ = ("_begin", "_body", "_invocation", "_request", "_response", "_running", "_version")

    def __init__(
        self,
        begin: Begin,
        version: WorkerVersion,
        request: HttpRequest,
        invocation: Invocation,
    ) -> None:
        self._begin = begin
        self._version = version
        self._request = request
        self._invocation = invocation
        self._body: ResponseBody | None = None

    async def __aenter__(self) -> HttpResponse:
        request = self._request
        event = Event(kind="fetch", method=request.method, url=request.url, headers=request.headers)
        running = await self._begin(self._version, self._invocation, event)
        response = None
        while response is None:
            try:
                response = await self._ask(running)
            except NeverBegan:
                running = await self._begin(self._version, self._invocation, event, moved=running)
        running.record.status = response.status
        try:
            response, self._body = limited(response, running)
        except WorkerFailed as error:
            await self.__aexit__(type(error), error, error.__traceback__)
            raise
        return response

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        running = self._running
        if isinstance(error, WorkerFailed):
            # what is wrong with the response is found by who forwards it, too
            running.judge(Verdict(error.outcome, error.message))
        elif self._body is not None and not self._body.has_ended:
            running.judge(_CANCELED)
        try:
            await self._response.__aexit__(kind, error, trace)
        finally:
            running.resident.leave(running)

    async def _ask(self, running: Running) -> HttpResponse:
        self._running = running
        self._response = running.resident.confined.isolate.fetch(
            self._request, self._invocation, running, deadline_s=running.deadline_s
        )
        try:
            return await self._response.__aenter__()
        except NeverBegan:
            raise
        except (InvocationFailed, IsolateEnded) as error:
            await _fail(running, error)
        except BaseException:
            running.judge(_CANCELED)
            running.resident.leave(running)
            raise


async def _fail(running: Running, error: InvocationFailed | IsolateEnded) -> NoReturn:
    """Raise `WorkerFailed`, when all is known."""
    if isinstance(error, IsolateEnded):
        # it never began where the isolate had ended before
        running.finished()
    try:
        failure = await failure_of(running, error)
    finally:
        running.resident.leave(running)
    raise failure from error
