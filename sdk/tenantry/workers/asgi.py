"""Applications of ASGI, such as FastAPI's and Starlette's, as workers.

    class Default(WorkerEntrypoint):
        async def fetch(self, request):
            return await asgi.fetch(app, request, self.env)

The application finds `env` in `scope["env"]`. Its lifespan begins with the first request of an isolate
and ends with the isolate, so that all its requests share what start-up made. What it does after its
response, such as background tasks, goes on as `wait_until` does. When the client goes away, it receives
`http.disconnect`, and sending raises `OSError`.

Where the worker is called by a path, `/workers/<account>/<worker>/`, that is the application's `root_path`:
the links and redirects that frameworks make, and their pages of documentation, lead there.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, TypeAlias
from urllib.parse import unquote, urlsplit

from ._entrypoints import Context, keep
from ._env import Env
from ._headers import Headers
from ._host import Invocation, current, enter
from ._mount import mount_of
from ._request import Request
from ._response import NULL_BODY, Response
from ._streams import Passage, ReadableStream

Message: TypeAlias = MutableMapping[str, Any]
# Any: frameworks write the types of scope and messages in ways of their own
App: TypeAlias = Callable[[Any, Any, Any], Awaitable[None]]

# 2.3: an application is told by `receive` that its client has gone, even while it sends nothing
ASGI = {"version": "3.0", "spec_version": "2.3"}


async def fetch(
    app: App, request: Request, env: Env | None = None, ctx: Context | None = None
) -> Response:
    """Have an application answer a request; returns as soon as it has begun to.

    Raises what the application raises before that, and `RuntimeError` if it ends without an answer.
    """
    invocation = current()
    lifespan = await _started(invocation.isolate, app)
    exchange = _Exchange(request.take_body())
    scope = _scope_of(request, invocation.env if env is None else env, lifespan.state)
    task = keep(invocation, exchange.run(app, scope))
    try:
        return await exchange.answer
    except asyncio.CancelledError:
        task.cancel()
        raise


class _Exchange:
    """One request and its response: the application's two ends, and the worker's."""

    def __init__(self, body: bytes | ReadableStream | None) -> None:
        self.answer: asyncio.Future[Response] = asyncio.get_running_loop().create_future()
        self._body = body
        self._has_received = False
        self._start: Message | None = None
        self._pieces = _Pieces()

    async def run(self, app: App, scope: dict[str, Any]) -> None:
        try:
            await app(scope, self.receive, self.send)
            if not self._pieces.is_over.is_set():
                what = "end" if self.answer.done() else "begin"
                raise RuntimeError(f"the application returned and did not {what} its response")
        except Exception as error:
            # whoever reads the response raises it; after the response, the log has it
            if not self.answer.done():
                self.answer.set_exception(error)
            elif self._pieces.is_streamed and not self._pieces.is_over.is_set():
                await self._pieces.put(error)
            elif not (self._pieces.has_gone and isinstance(error, OSError)):
                raise
        finally:
            self._pieces.is_over.set()

    async def receive(self) -> Message:
        if self._has_received:
            await self._pieces.is_over.wait()
            return {"type": "http.disconnect"}
        piece, has_more = self._body or b"", False
        if isinstance(piece, ReadableStream):
            piece = await anext(piece, b"")
            has_more = bool(piece)
        self._has_received = not has_more
        return {"type": "http.request", "body": bytes(piece), "more_body": has_more}

    async def send(self, message: Message) -> None:
        match message["type"]:
            case "http.response.start":
                self._start = message
            case "http.response.body":
                await self._send_body(message.get("body", b""), message.get("more_body", False))
            case kind:
                raise ValueError(f"a worker cannot send {kind!r}")

    async def _send_body(self, body: bytes, has_more: bool) -> None:
        if self._start is None:
            raise RuntimeError("the application sent a body before http.response.start")
        if not self.answer.done():
            self.answer.set_result(self._begin(self._start, None if has_more else body))
        elif self._pieces.is_over.is_set() and not self._pieces.has_gone:
            raise RuntimeError("the application sent a body after its end")
        if self._pieces.is_streamed:
            if body:
                await self._pieces.put(bytes(body))
            if not has_more:
                await self._pieces.put(None)
        if not has_more:
            self._pieces.is_over.set()

    def _begin(self, start: Message, whole: bytes | None) -> Response:
        status = int(start["status"])
        headers = Headers.of_pairs(
            [
                (bytes(name).decode("latin-1").lower(), bytes(value).decode("latin-1"))
                for name, value in start.get("headers", ())
            ]
        )
        if status in NULL_BODY:
            # as of a middleware that streams whatever it wraps: what comes is left out
            return Response(None, status, headers=headers)
        if whole is None:
            self._pieces.is_streamed = True
            return Response(ReadableStream(self._pieces), status, headers=headers)
        return Response(bytes(whole), status, headers=headers)


class _Pieces(Passage):
    """A response's body, between the application that sends it and the worker's host that pulls it."""

    def __init__(self) -> None:
        super().__init__()
        self.is_streamed = False
        self.is_over = asyncio.Event()
        self.has_gone = False

    async def put(self, piece: bytes | Exception | None) -> None:
        if not self.has_gone:
            await super().put(piece)
        if self.has_gone:
            raise OSError("the client has gone")

    async def aclose(self) -> None:
        if not self.is_over.is_set():
            self.has_gone = True
            self.is_over.set()
            if not self._waiting.empty():
                self._waiting.get_nowait()


class _Lifespan:
    """An application's start-up and shutdown in an isolate."""

    def __init__(self, isolate: Invocation, app: App) -> None:
        self.state: dict[str, Any] = {}
        loop = asyncio.get_running_loop()
        self.started: asyncio.Future[None] = loop.create_future()
        self._stopped: asyncio.Future[None] = loop.create_future()
        self._isolate = isolate
        self._app = app
        self._events: asyncio.Queue[Message] = asyncio.Queue(1)
        # what start-up begins belongs to no request
        context = contextvars.copy_context()
        context.run(enter, isolate)
        self._task = loop.create_task(self._run(), context=context)

    async def close(self) -> None:
        """Have the application shut down, and wait until it has."""
        if not self._task.done():
            await self._events.put({"type": "lifespan.shutdown"})
            await self._stopped
        await asyncio.wait([self._task])

    async def _run(self) -> None:
        scope = {"type": "lifespan", "asgi": ASGI, "state": self.state, "env": self._isolate.env}
        self._events.put_nowait({"type": "lifespan.startup"})
        try:
            await self._app(scope, self._events.get, self._send)
        except Exception as error:
            # ASGI: an application that raises at once has no lifespan; one that has started failed
            if self.started.done() and not self.started.exception() and not self._stopped.done():
                self._isolate.host.log("error", f"the application's lifespan failed: {error!r}")
        finally:
            for future in (self.started, self._stopped):
                if not future.done():
                    future.set_result(None)

    async def _send(self, message: Message) -> None:
        text = message.get("message") or "the application did not say why"
        match message["type"]:
            case "lifespan.startup.complete":
                self.started.set_result(None)
            case "lifespan.startup.failed":
                self.started.set_exception(
                    RuntimeError(f"the application's start-up failed: {text}")
                )
            case "lifespan.shutdown.failed":
                self._isolate.host.log("error", f"the application's shutdown failed: {text}")
                self._stopped.set_result(None)
            case _:
                self._stopped.set_result(None)


async def _started(isolate: Invocation, app: App) -> _Lifespan:
    """Return the application's lifespan in this isolate; one whose start-up failed is begun again."""
    lifespan = isolate.lasting.get(id(app))
    if not isinstance(lifespan, _Lifespan):
        lifespan = isolate.lasting[id(app)] = _Lifespan(isolate, app)
        isolate.closing.append(lifespan.close)
    if not lifespan.started.done() or lifespan.started.exception() is not None:
        try:
            # shielded: other requests may wait for the same start-up
            await asyncio.shield(lifespan.started)
        except RuntimeError:
            isolate.lasting.pop(id(app), None)
            raise
    return lifespan


def _scope_of(request: Request, env: Env, state: dict[str, Any]) -> dict[str, Any]:
    url = urlsplit(request.url)
    root = mount_of(request)
    return {
        "type": "http",
        "asgi": ASGI,
        "http_version": "1.1",
        "method": str(request.method),
        "scheme": url.scheme,
        # ASGI: both begin with the root
        "path": root + unquote(url.path),
        "raw_path": (root + url.path).encode(),
        "root_path": root,
        "query_string": url.query.encode(),
        "headers": [
            (name.encode("latin-1"), value.encode("latin-1"))
            for name, value in request.headers.raw_items()
        ],
        "server": (url.hostname or "", url.port or (443 if url.scheme == "https" else 80)),
        "client": _client_of(request),
        # ASGI: each request has its own shallow copy
        "state": dict(state),
        "env": env,
    }


def _client_of(request: Request) -> tuple[str, int] | None:
    address = request.headers.get("cf-connecting-ip")
    return (address, 0) if address else None
