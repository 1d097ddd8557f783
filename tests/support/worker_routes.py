"""An edge's way to workers without any: a real server, an engine of functions, and names in a table."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import anyio
import httpx
from anyio.abc import TaskGroup
from starlette.types import ASGIApp, Receive, Scope, Send

from tenantry_runtime.core import TenantId
from tenantry_runtime.edge.open_requests import OpenRequests
from tenantry_runtime.edge.server import EdgeServer, listening
from tenantry_runtime.edge.worker_routes import (
    Directory,
    OpenByAccount,
    Parts,
    RouteLimits,
    WorkerRoutes,
    WorkerUrls,
    open_directory,
)
from tenantry_runtime.errors import NoSuchRecord
from tenantry_runtime.tenancy.workers import Deployed, Settings, Worker
from tenantry_runtime.workers.interface import (
    Event,
    HeaderList,
    HttpRequest,
    HttpResponse,
    Invocation,
    Record,
)
from tenantry_runtime.workers.spec import WorkerVersion

Handler: TypeAlias = Callable[[HttpRequest, Invocation], Awaitable[HttpResponse]]

ACCOUNT = TenantId("acme")


def a_version(worker: str = "hello", **fields: Any) -> WorkerVersion:
    return WorkerVersion(
        **{
            "tenant": ACCOUNT,
            "worker": worker,
            "version_id": f"version-of-{worker}",
            "number": 1,
            "main_module": "entry.py",
            "files": (),
            **fields,
        }
    )


def deployed(
    *versions: tuple[WorkerVersion, float], has_url: bool = True, worker: str = "hello"
) -> Deployed:
    return Deployed(
        worker=Worker(
            id="0",
            account=ACCOUNT,
            name=worker,
            created_ms=0,
            modified_ms=0,
            has_url=has_url,
            has_preview_urls=False,
            settings=Settings(),
        ),
        deployment_id="0",
        versions=versions or ((a_version(worker), 100.0),),
    )


def a_record(**fields: Any) -> Record:
    return Record(
        **{
            "version": a_version(),
            "invocation": Invocation(id="0" * 8),
            "event": Event(kind="fetch", method="GET", url="http://hello.acme.localhost/"),
            "started_ms": 0,
            **fields,
        }
    )


@dataclass(slots=True)
class TableSource:
    """What a store would know; counts its questions."""

    workers: dict[tuple[str, str], Deployed] = field(
        default_factory=lambda: {(ACCOUNT, "hello"): deployed()}
    )
    routes: dict[tuple[str, str], tuple[TenantId, str]] = field(default_factory=dict)
    num_asked: int = 0
    problem: Exception | None = None

    async def current(self, account: TenantId, worker: str) -> Deployed:
        self.num_asked += 1
        if self.problem is not None:
            raise self.problem
        found = self.workers.get((account, worker))
        if found is None:
            raise NoSuchRecord("worker", worker)
        return found

    async def by_route(self, host: str, path: str) -> tuple[TenantId, str] | None:
        self.num_asked += 1
        return self.routes.get((host, path))


class FunctionEngine:
    """Runs a function as every worker; remembers what it was asked, and how each call ended."""

    def __init__(self, handler: Handler) -> None:
        self.handler = handler
        self.requests: list[tuple[WorkerVersion, HttpRequest, Invocation]] = []
        self.scheduled_calls: list[tuple[str, str, int]] = []
        self.scheduled_in: list[Invocation] = []
        self.num_cancelled = 0
        self.problem: Exception | None = None
        """How the last call failed, be it in who reads its response."""
        self.ended = anyio.Event()
        self._was_scheduled = anyio.Event()

    @asynccontextmanager
    async def fetch(
        self, version: WorkerVersion, request: HttpRequest, invocation: Invocation
    ) -> AsyncIterator[HttpResponse]:
        self.requests.append((version, request, invocation))
        try:
            yield await self.handler(request, invocation)
        except anyio.get_cancelled_exc_class():
            self.num_cancelled += 1
            raise
        except Exception as error:
            self.problem = error
            raise
        finally:
            self.ended.set()

    async def scheduled(
        self, version: WorkerVersion, cron: str, scheduled_ms: int, invocation: Invocation
    ) -> None:
        self.scheduled_calls.append((version.worker, cron, scheduled_ms))
        self.scheduled_in.append(invocation)
        self._was_scheduled.set()
        self._was_scheduled = anyio.Event()

    async def until_scheduled(self, num_calls: int) -> None:
        """Wait until triggers have run so often."""
        while len(self.scheduled_calls) < num_calls:
            await self._was_scheduled.wait()

    async def rpc(
        self,
        version: WorkerVersion,
        method: str,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        invocation: Invocation,
    ) -> object:
        raise NotImplementedError

    async def try_load(self, version: WorkerVersion, *, cpu_ms: float = 1000.0) -> float:
        raise NotImplementedError


def answering(
    body: Any = b"hello", status: int = 200, headers: HeaderList = (), **fields: Any
) -> Handler:
    async def handler(request: HttpRequest, invocation: Invocation) -> HttpResponse:
        return HttpResponse(status=status, headers=headers, body=body, **fields)

    return handler


class Pieces:
    """A body in pieces, which says that it was closed."""

    def __init__(self, pieces: AsyncIterator[bytes]) -> None:
        self._pieces = pieces
        self.is_closed = False

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self._pieces

    async def aclose(self) -> None:
        self.is_closed = True


@dataclass(slots=True, kw_only=True)
class RoutedEdge:
    port: int
    engine: FunctionEngine
    source: TableSource
    parts: Parts
    directory: Directory
    tasks: TaskGroup

    @asynccontextmanager
    async def client(self) -> AsyncIterator[httpx.AsyncClient]:
        base = f"http://127.0.0.1:{self.port}"
        async with httpx.AsyncClient(base_url=base, timeout=30) as client:
            yield client

    async def get(
        self, path: str = "/", host: str = "hello.acme.localhost", **options: Any
    ) -> httpx.Response:
        headers = {"host": host, **options.pop("headers", {})}
        async with self.client() as client:
            return await client.request(
                options.pop("method", "GET"), path, headers=headers, **options
            )


@asynccontextmanager
async def a_routed_edge(
    handler: Handler,
    *,
    limits: RouteLimits | None = None,
    source: TableSource | None = None,
    app: ASGIApp | None = None,
    draw: Callable[[], float] = lambda: 0.0,
    **fields: Any,
) -> AsyncIterator[RoutedEdge]:
    """Serve on a port of loopback until the block ends."""
    engine, source = FunctionEngine(handler), source or TableSource()
    limits = limits or RouteLimits()
    with listening("127.0.0.1", 0) as bound:
        port = bound.getsockname()[1]
        async with anyio.create_task_group() as tasks, open_directory(source, draw=draw) as names:
            parts = Parts(
                **{
                    "engine": engine,
                    "directory": names,
                    "tasks": tasks,
                    "open_requests": OpenRequests(limits.max_requests),
                    "accounts": OpenByAccount(limits.max_requests_each),
                    "urls": WorkerUrls(routed=["shop.example"]),
                    "limits": limits,
                    **fields,
                }
            )
            server = EdgeServer(WorkerRoutes(app or the_edges_own, parts), bound)
            tasks.start_soon(server.serve)
            yield RoutedEdge(
                port=port, engine=engine, source=source, parts=parts, directory=names, tasks=tasks
            )
            server.end()
            tasks.cancel_scope.deadline = anyio.current_time() + 1


async def the_edges_own(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer in the place of the edge's API."""
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"the edge's own", "more_body": False})
