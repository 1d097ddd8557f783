"""A worker that runs in a test's process."""

from __future__ import annotations

import asyncio
import importlib.util
import inspect
import sys
import time
from collections.abc import AsyncGenerator, Generator, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any, Unpack

from tenantry.workers._aliases import install_aliases
from tenantry.workers._body import host_body
from tenantry.workers._env import make_env
from tenantry.workers._fetch import OUTBOUND
from tenantry.workers._host import Body, HostReply, HostRequest, Invocation, entered
from tenantry.workers._request import FetchKwargs, Request
from tenantry.workers._response import Response
from tenantry.workers._streams import Passage, ReadableStream
from tenantry.workers._worker import Worker

from ._bound import FakeFetch, Respond, as_host_response
from ._host import Fake, FakeStream, InProcessHost, LogLine, as_received, read_body

BASE_URL = "https://worker.test"
_ALIASED = ("workers", "asgi", "wsgi")
"""Names of other modules' that mean this one while a worker runs."""


class RunningWorker:
    """A worker whose entrypoints can be called; it may be a service in another's `env`."""

    kind = "service"

    def __init__(self, worker: Worker, host: InProcessHost, isolate: Invocation) -> None:
        self._worker = worker
        self._host = host
        self._isolate = isolate
        self._invocations: list[Invocation] = []
        self._tasks: set[asyncio.Task[Any]] = set()

    @property
    def logs(self) -> list[LogLine]:
        """What the worker's log has but for what it printed, which pytest captures."""
        return self._host.logs

    @property
    def entrypoints(self) -> dict[str, list[str]]:
        """Names of classes ("" for the default, and for functions), and their public methods."""
        return self._worker.entrypoints

    async def fetch(
        self, resource: Request | str = "/", *, entrypoint: str = "", **options: Unpack[FetchKwargs]
    ) -> Response:
        """Send it a request; a path is one of `https://worker.test`.

        Raises what the handler raises. Cancelling this, or closing the response's body before its
        end, is what a client does that goes away.
        """
        if isinstance(resource, str) and resource.startswith("/"):
            resource = BASE_URL + resource
        request = Request(resource, **options)
        body = host_body(request.take_body())
        if body is not None and not isinstance(body, bytes):
            body = FakeStream(aiter(body))
        pairs = request.headers.raw_items()
        received = HostRequest(str(request.method), request.url, pairs, body)
        return await self._exchange(entrypoint, received)

    async def scheduled(
        self, cron: str = "* * * * *", scheduled_ms: int | None = None, *, entrypoint: str = ""
    ) -> None:
        """Have a cron trigger come due, now unless `scheduled_ms` of Unix time says otherwise."""
        due_ms = int(time.time() * 1000) if scheduled_ms is None else scheduled_ms
        await self._run(self._worker.scheduled(self._begin(), entrypoint, cron, due_ms))

    async def call(self, method: str, /, *args: Any, entrypoint: str = "", **kwargs: Any) -> Any:
        """Call a public method, as another worker does."""
        calling = self._worker.rpc(
            self._begin(), entrypoint, method, as_received(list(args)), as_received(kwargs)
        )
        return as_received(await self._run(calling))

    async def settle(self) -> None:
        """Wait until all that `wait_until` was given has ended."""
        for invocation in self._invocations:
            await invocation.settle()

    async def answer(self, method: str, args: list[Any], body: Body) -> object:
        """Answer a call of a worker that has this one in its `env`."""
        if method != "fetch":
            positional, named = args
            return await self.call(method, *positional, **named)
        verb, url, headers, inline = args
        content = inline if inline is not None else (await read_body(body) or None)
        pairs = [(name, value) for name, value in headers]
        response = await self._exchange("", HostRequest(verb, url, pairs, content))
        return as_host_response(response, url)

    async def close(self) -> None:
        """End it: applications shut down, then what still runs is cancelled."""
        await self._worker.close(self._isolate)
        for invocation in self._invocations:
            self._tasks |= invocation.tasks
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _begin(self) -> Invocation:
        invocation = self._isolate.begin(len(self._invocations) + 1)
        self._invocations.append(invocation)
        return invocation

    async def _run(self, coroutine: Any) -> Any:
        """Run a handler in a task of its own, whose end is this one's."""
        task: asyncio.Task[Any] = asyncio.ensure_future(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        try:
            return await task
        except asyncio.CancelledError:
            task.cancel()
            await asyncio.wait([task])
            raise

    async def _exchange(self, entrypoint: str, request: HostRequest) -> Response:
        pump = _Pump()
        serving = pump.serve(self._worker.fetch(self._begin(), entrypoint, request))
        pump.task = task = asyncio.ensure_future(serving)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        try:
            reply = await pump.reply
        except asyncio.CancelledError:
            await pump.aclose()
            raise
        body: Any = reply.body
        if isinstance(body, FakeStream):
            body = ReadableStream(body.hand_on(), content_type=body.content_type)
        elif body is not None and not isinstance(body, bytes):
            body = ReadableStream(pump)
        response = Response(body, reply.status, headers=reply.headers)
        if "content-type" not in dict(reply.headers):
            response.headers.delete("content-type")
        return response


class _Pump(Passage):
    """Pulls a reply's body in the invocation's own task, a piece ahead of who reads it here."""

    def __init__(self) -> None:
        super().__init__()
        self.reply: asyncio.Future[HostReply] = asyncio.get_running_loop().create_future()
        self.task: asyncio.Task[None] | None = None

    async def serve(self, answering: Any) -> None:
        try:
            reply: HostReply = await answering
        except Exception as error:
            # of a handler that was cancelled, nobody waits for what it raises instead
            if not self.reply.done():
                self.reply.set_exception(error)
            return
        body: Any = reply.body
        if self.reply.done():
            await ReadableStream(body or b"").aclose()
            return
        self.reply.set_result(reply)
        if body is None or isinstance(body, bytes | FakeStream):
            return
        try:
            async for piece in body:
                await self.put(piece)
            await self.put(None)
        except Exception as error:
            await self.put(error)
        finally:
            await body.aclose()

    async def aclose(self) -> None:
        if self.task is not None:
            self.task.cancel()
            await asyncio.wait([self.task])


@asynccontextmanager
async def open_worker(
    main: str | Path | ModuleType,
    *,
    env: Mapping[str, Any] | None = None,
    fetch: Respond | FakeFetch | None = None,
) -> AsyncGenerator[RunningWorker]:
    """Run a worker: a path of its main module, whose folder is importable meanwhile, or a module.

    `env` has fakes, other running workers, and the values of vars and secrets. `fetch` answers
    outbound requests. Raises what the import raises, and `TypeError` for what is no worker.
    """
    given = dict(env or {})
    outbound = fetch if isinstance(fetch, FakeFetch) else FakeFetch(fetch)
    fakes: dict[str, Fake] = {name: each for name, each in given.items() if _is_fake(each)}
    host = InProcessHost({**fakes, OUTBOUND: outbound})
    bindings = [
        (name, fakes[name].kind, None) if name in fakes else (name, "value", as_received(each))
        for name, each in given.items()
    ]
    isolate = Invocation(host, make_env(host, bindings))
    with _imported(main, isolate) as module:
        running = RunningWorker(Worker(module), host, isolate)
        try:
            yield running
        finally:
            await running.close()


def _is_fake(value: object) -> bool:
    return hasattr(value, "kind") and inspect.iscoroutinefunction(getattr(value, "answer", None))


@contextmanager
def _imported(main: str | Path | ModuleType, isolate: Invocation) -> Generator[ModuleType]:
    """Import a main module as an isolate does; afterwards its folder's modules are forgotten."""
    if isinstance(main, ModuleType):
        yield main
        return
    path = Path(main).resolve()
    folder = str(path.parent)
    before = dict(sys.modules)
    for name in before:
        if name.split(".")[0] in _ALIASED:
            del sys.modules[name]
    finder = install_aliases()
    sys.path.insert(0, folder)
    try:
        spec = importlib.util.spec_from_file_location(path.stem, path)
        if spec is None or spec.loader is None:
            raise ImportError(f"{str(main)!r} is no Python module")
        module = sys.modules[path.stem] = importlib.util.module_from_spec(spec)
        with entered(isolate):
            spec.loader.exec_module(module)
        yield module
    finally:
        sys.path.remove(folder)
        sys.meta_path.remove(finder)
        _forget(folder, before)


def _forget(folder: str, before: Mapping[str, ModuleType]) -> None:
    """Put back what the modules of a folder, and the names of this one, took the place of."""
    for name, module in list(sys.modules.items()):
        is_there = str(getattr(module, "__file__", "")).startswith(folder)
        if is_there or name.split(".")[0] in _ALIASED:
            del sys.modules[name]
    sys.modules.update({name: each for name, each in before.items() if name not in sys.modules})
