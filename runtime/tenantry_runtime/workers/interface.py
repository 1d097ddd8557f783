"""Where the parts of `workers` meet: who runs a version, what answers a binding, who hears of it.

`edge` asks an `Engine` to run versions; an engine asks `Bindings` to answer calls, and tells a `LogSink`
what happened. All are made by the edge's composition root.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Any, Protocol

from tenantry_runtime.core import TenantId

from .outcome import Outcome
from .spec import SourceFile, WorkerVersion

HeaderList = Sequence[tuple[str, str]]
"""Names in lower case, in their order, which may come more than once."""


class ByteStream(Protocol):
    """Bytes that come in pieces; whoever holds it closes it."""

    def __aiter__(self) -> AsyncIterator[bytes]: ...

    async def aclose(self) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpRequest:
    """A request for a worker, or one of its own."""

    method: str
    url: str
    """Absolute."""
    headers: HeaderList = ()
    body: bytes | ByteStream | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpResponse:
    """A response; a body in pieces is read once, by whoever was given it."""

    status: int
    headers: HeaderList = ()
    body: bytes | ByteStream = b""
    url: str = ""
    cold_start_ms: float | None = None
    """What an engine's response waited for an isolate; None: one was there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamResult:
    """What a call returns in pieces: the events of an answer."""

    stream: ByteStream
    content_type: str = "text/event-stream"


@dataclass(frozen=True, slots=True, kw_only=True)
class Invocation:
    """What is known of an invocation before it runs; an isolate is never asked for any of it."""

    id: str
    """A UUID: also the request's id in logs and in `cf-ray`."""
    traceparent: str = ""
    tracestate: str = ""
    session: str | None = None
    """The caller's `x-session-affinity`; a worker's AI calls inherit it."""
    entrypoint: str = ""
    depth: int = 0
    """How many workers have called each other to get here."""
    client_ip: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallContext:
    """On whose behalf a binding is called."""

    version: WorkerVersion
    invocation: Invocation
    deadline_s: float | None = None
    """On anyio's clock."""

    @property
    def tenant(self) -> TenantId:
        """The tenant that pays, and whose data it is."""
        return self.version.tenant


FETCH = "FETCH"
"""The binding of outbound requests, which every worker has."""


class CallRefused(Exception):
    """A call that raises in the worker, with a name that tenants know."""

    def __init__(self, name: str, message: str, code: int | None = None) -> None:
        self.name = name
        self.message = message
        self.code = code
        super().__init__(name, message)


class Bindings(Protocol):
    """Answers calls of all workers. Cancelling an `await` cancels what the call began."""

    async def call(
        self,
        context: CallContext,
        binding: str,
        method: str,
        args: Sequence[Any],
        body: ByteStream | None,
    ) -> object | HttpResponse | StreamResult:
        """Answer a call by the version's own binding of that name; `FETCH` is everybody's.

        Raises `CallRefused`. What returns is a value that MessagePack knows, a response, or a stream.
        """
        ...

    async def values(self, version: WorkerVersion) -> Mapping[str, object]:
        """Return what vars, secrets and version metadata of a version are, by their names."""
        ...


class Bundles(Protocol):
    """Where the bytes of files are."""

    async def read(self, file: SourceFile) -> bytes:
        """Return a file's bytes, compared with their digest."""
        ...

    def dependencies(self, digest: str) -> str:
        """Return the directory, complete and never written again, of a set of dependencies."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class LogLine:
    """Something that a worker printed or logged."""

    level: str
    text: str
    time_ms: int
    """Unix time."""
    num_dropped: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorLine:
    """An exception that a worker did not catch, or what ended its isolate."""

    name: str
    message: str
    time_ms: int
    stack: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """What called a worker, for its log."""

    kind: str
    """`fetch`, `scheduled` or `rpc`."""
    method: str = ""
    url: str = ""
    headers: HeaderList = ()
    cron: str = ""
    scheduled_ms: int = 0
    rpc_method: str = ""


@dataclass(slots=True, kw_only=True)
class Record:
    """All that is told of one invocation, when it has finished."""

    version: WorkerVersion
    invocation: Invocation
    event: Event
    started_ms: int
    """Unix time."""
    outcome: Outcome = Outcome.OK
    status: int | None = None
    """Of the response, if there was one."""
    logs: list[LogLine] = field(default_factory=list)
    errors: list[ErrorLine] = field(default_factory=list)
    cpu_ms: float = 0.0
    """About: of the isolate while the invocation ran, shared among those that ran."""
    wall_ms: float = 0.0
    cold_start_ms: float | None = None
    """What it waited for an isolate; None: one was there."""


class LogSink(Protocol):
    """Hears of every invocation; never waits, never raises."""

    def record(self, record: Record) -> None:
        """Take what is known of an invocation that has finished."""
        ...


class WorkerFailed(Exception):
    """An invocation that ended without its response: outcome, and what its own log says."""

    def __init__(self, outcome: Outcome, message: str, *, retry_after_s: int | None = None) -> None:
        self.outcome = outcome
        self.message = message
        self.retry_after_s = retry_after_s
        super().__init__(outcome, message)


def outcome_of(error: BaseException) -> str:
    """Return what spans say of an invocation that ended with an error: an `Outcome`, or a bug's class."""
    if isinstance(error, WorkerFailed):
        return error.outcome
    return type(error).__name__ if isinstance(error, Exception) else Outcome.CANCELED


class CalledEngine(Protocol):
    """What of an engine other workers reach."""

    def fetch(
        self, version: WorkerVersion, request: HttpRequest, invocation: Invocation
    ) -> AbstractAsyncContextManager[HttpResponse]:
        """Enter with the response; leaving it early cancels the handler, its body and its calls.

        Raises `WorkerFailed`.
        """
        ...

    async def rpc(
        self,
        version: WorkerVersion,
        method: str,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        invocation: Invocation,
    ) -> object:
        """Call a method of an entrypoint. Raises `WorkerFailed`."""
        ...


class Engine(CalledEngine, Protocol):
    """Runs versions of workers in isolates of their own."""

    async def scheduled(
        self, version: WorkerVersion, cron: str, scheduled_ms: int, invocation: Invocation
    ) -> None:
        """Run a cron trigger to its end. Raises `WorkerFailed`."""
        ...

    async def try_load(self, version: WorkerVersion, *, cpu_ms: float = 1000.0) -> float:
        """Import a version in an isolate that is thrown away; return the CPU time in milliseconds.

        Raises `LoadError` with the tenant's file and line.
        """
        ...


class LoadError(Exception):
    """A version that cannot be imported."""

    def __init__(
        self, name: str, message: str, *, path: str = "", line: int = 0, trace: str = ""
    ) -> None:
        self.name = name
        self.message = message
        self.path = path
        self.line = line
        self.trace = trace
        super().__init__(name, message)
