"""The seam below this module: whoever runs a worker gives it a `Host`, and starts it by `Worker`.

An isolate's host speaks frames to the runtime; `tenantry.workers.testing` has one that answers in
process. What crosses the seam is Python's own values, bytes, and streams:

| body of a reply or of a call | what the host does with it |
|---|---|
| `None`, `bytes` | sends it |
| a `HostStream` of its own, as it gave it | names it, so that its bytes never come here |
| any other async iterator of bytes | pulls it, at its receiver's pace, and closes it with `aclose()` |

Calls of bindings, as `Host.call` gets them:

| binding | method | args | body |
|---|---|---|---|
| an `ai` | `run` | model, inputs, options | JSON of the inputs, if they are long; they are None then |
| | `models` | params | |
| a `kv` | `get`, `getWithMetadata` | key or list of keys, `{"type", "cacheTtl"}` | |
| | `put` | key, value, `{"expiration", "expirationTtl", "metadata"}` | the value, which is then None |
| | `delete` | key | |
| | `list` | `{"prefix", "limit", "cursor"}` | |
| a `service` | `fetch` | method, url, headers, body or None | the body, if it is long or a stream |
| | any other | list of arguments, dict of named ones | |
| `FETCH` | `fetch` | method, url, headers, body or None, `{"redirect"}` | as above |

Keys that say nothing are left out of options. A value that is too long for an answer comes as a
stream: of JSON (`content_type` is `application/json`), or of the value's bytes; one with metadata as
a response whose `cf-kv-metadata` has them.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar, Token
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeGuard

if TYPE_CHECKING:
    from ._env import Env

INLINE_BYTES = 64 << 10
"""Longer bodies and values are not arguments of a call, but its body."""

HeaderList: TypeAlias = list[tuple[str, str]]
"""Names in lower case, in their order, which may come more than once."""


class HostStream(Protocol):
    """Bytes that the host has, and sends here only if they are asked for.

    It is read once, from its first `__anext__` on. Whoever holds it closes it, or gives it back as a
    body before that; a broken one raises `ConnectionError`.
    """

    content_type: str

    def __aiter__(self) -> AsyncIterator[bytes]: ...

    async def aclose(self) -> None:
        """End it where it is."""
        ...


def is_stream(value: object) -> TypeGuard[HostStream]:
    """Whether it is a host's stream: those say what their bytes are, and can be closed."""
    return hasattr(value, "content_type") and hasattr(value, "aclose")


Body: TypeAlias = bytes | HostStream | AsyncIterator[bytes] | None


class HostResponse:
    """The response that a call returns."""

    __slots__ = ("body", "headers", "status", "url")

    status: int
    headers: HeaderList
    body: bytes | HostStream | None
    url: str

    def __init__(
        self, status: int, headers: HeaderList, body: bytes | HostStream | None, url: str = ""
    ) -> None:
        self.status = status
        self.headers = headers
        self.body = body
        self.url = url


class HostRequest:
    """A request for an entrypoint; its URL is absolute."""

    __slots__ = ("body", "headers", "method", "url")

    method: str
    url: str
    headers: HeaderList
    body: bytes | HostStream | None

    def __init__(
        self, method: str, url: str, headers: HeaderList, body: bytes | HostStream | None = None
    ) -> None:
        self.method = method
        self.url = url
        self.headers = headers
        self.body = body


class HostReply:
    """What an entrypoint answers. A body that is pulled is pulled in the invocation's own task."""

    __slots__ = ("body", "headers", "status")

    status: int
    headers: HeaderList
    body: Body

    def __init__(self, status: int, headers: HeaderList, body: Body = None) -> None:
        self.status = status
        self.headers = headers
        self.body = body


class Host(Protocol):
    """Runs one worker: carries its calls out, and takes what it logs."""

    async def call(
        self, binding: str, method: str, args: list[Any], body: Body = None
    ) -> object | HostResponse | HostStream:
        """Call what a binding offers, for the current invocation. Cancelling ends the call.

        `args` are values that MessagePack knows. Raises what `_errors.call_error` makes of a refusal.
        """
        ...

    def log(self, level: str, text: str) -> None:
        """Take lines for the current invocation's log: `debug`, `info`, `log`, `warn` or `error`."""
        ...


class Invocation:
    """What a worker's code runs for: a request, a cron trigger, a call; id 0 is the isolate's own.

    The host makes the isolate's own once, enters it, imports the worker, and `begin`s one for each
    thing that it asks `Worker` to run. `tasks` are what `wait_until` was given, held until they are
    done; they outlive the response and its cancellation, and `settle` waits for them.
    """

    __slots__ = (
        "closing",
        "env",
        "host",
        "id",
        "isolate",
        "lasting",
        "tasks",
        "traceparent",
        "tracestate",
    )

    id: int
    host: Host
    env: Env
    traceparent: str
    tracestate: str
    isolate: Invocation
    """The isolate's own."""
    tasks: set[asyncio.Task[Any]]
    closing: list[Callable[[], Awaitable[None]]]
    """Of the isolate's own: what has to be called before it ends, last first."""
    lasting: dict[int, object]
    """Of the isolate's own: what lives as long as it does, by the `id` of what it is of."""

    def __init__(self, host: Host, env: Env) -> None:
        self.id = 0
        self.host = host
        self.env = env
        self.traceparent = ""
        self.tracestate = ""
        self.isolate = self
        self.tasks = set()
        self.closing = []
        self.lasting = {}

    def begin(self, id: int, *, traceparent: str = "", tracestate: str = "") -> Invocation:
        """Make one that has the isolate's host and `env`."""
        begun = Invocation(self.host, self.env)
        begun.id = id
        begun.isolate = self
        begun.traceparent = traceparent
        begun.tracestate = tracestate
        return begun

    async def settle(self) -> None:
        """Wait until all that `wait_until` was given, and what came to it meanwhile, has ended.

        A task's own exception is in the log by then and is not raised. Cancelling it cancels them all.
        """
        try:
            while self.tasks:
                await asyncio.wait(self.tasks)
        except asyncio.CancelledError:
            for task in self.tasks:
                task.cancel()
            raise


_current: ContextVar[Invocation] = ContextVar("invocation")


def enter(invocation: Invocation) -> Token[Invocation]:
    """Make it the current one of this context; an isolate does so once with that of its import."""
    return _current.set(invocation)


@contextmanager
def entered(invocation: Invocation) -> Generator[Invocation]:
    """Make it the current one inside."""
    token = _current.set(invocation)
    try:
        yield invocation
    finally:
        _current.reset(token)


def current() -> Invocation:
    """Return for what the running code runs. Raises `RuntimeError` outside of workers."""
    invocation = _current.get(None)
    if invocation is None:
        raise RuntimeError(
            "this is no worker: bindings, fetch and wait_until are there while one is imported or "
            "runs; in tests, tenantry.workers.testing runs it"
        )
    return invocation


def current_id() -> int:
    """Return the current invocation's id; 0 where there is none."""
    invocation = _current.get(None)
    return 0 if invocation is None else invocation.id
