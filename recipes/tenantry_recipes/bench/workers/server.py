"""An edge that serves the workers: `python -m tenantry_recipes.bench.workers.server KIND LEVEL`.

KIND is `isolates`, or `alone`: the same edge with an engine that answers by itself what the workers
would. Prints its port, and ends when its standard input does.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import anyio
from starlette.responses import PlainTextResponse

from tenantry_runtime.core import TenantId
from tenantry_runtime.edge.event_loop import EdgeLoop
from tenantry_runtime.edge.open_requests import OpenRequests
from tenantry_runtime.edge.server import EdgeServer, listening
from tenantry_runtime.edge.worker_routes import Parts, RouteLimits, WorkerRoutes, WorkerUrls
from tenantry_runtime.edge.worker_routes.directory import open_directory
from tenantry_runtime.edge.worker_routes.open_by_account import OpenByAccount
from tenantry_runtime.garbage import collected_rarely
from tenantry_runtime.tenancy.workers import Deployed, Settings, Worker
from tenantry_runtime.workers.engine import EngineConfig
from tenantry_runtime.workers.interface import Engine, HttpRequest, HttpResponse, Invocation
from tenantry_runtime.workers.sandbox import Level
from tenantry_runtime.workers.spec import WorkerVersion

from .subjects import CODE, HELLO, STREAMS, EventStream, a_version, an_engine


class Deployments:
    """A store in which each worker has one version."""

    def __init__(self) -> None:
        self._versions = {name: a_version(name) for name in CODE}

    async def current(self, account: TenantId, worker: str) -> Deployed:
        version = self._versions[worker]
        described = Worker(
            id=worker,
            account=account,
            name=worker,
            created_ms=0,
            modified_ms=0,
            has_url=True,
            has_preview_urls=False,
            settings=Settings(),
        )
        return Deployed(worker=described, deployment_id=worker, versions=((version, 100.0),))

    async def by_route(self, host: str, path: str) -> None:
        return None


class AloneEngine:
    """An `Engine` without isolates: what an edge does without them is the rest of its work."""

    @asynccontextmanager
    async def fetch(
        self, version: WorkerVersion, request: HttpRequest, invocation: Invocation
    ) -> AsyncIterator[HttpResponse]:
        if version.worker == HELLO:
            headers = [("content-type", "text/plain;charset=UTF-8")]
            yield HttpResponse(status=200, headers=headers, body=b"hello")
        else:
            headers = [("content-type", "text/event-stream")]
            yield HttpResponse(
                status=200, headers=headers, body=EventStream(STREAMS[version.worker])
            )

    async def scheduled(
        self, version: WorkerVersion, cron: str, scheduled_ms: int, invocation: Invocation
    ) -> None:
        raise NotImplementedError

    # Any: as in the interface
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


async def serve(kind: str, floor: Level) -> None:
    async with AsyncExitStack() as stack:
        engine: Engine = AloneEngine()
        if kind == "isolates":
            engine = await stack.enter_async_context(an_engine(EngineConfig(), floor=floor))
        directory = await stack.enter_async_context(open_directory(Deployments()))
        tasks = await stack.enter_async_context(anyio.create_task_group())
        parts = Parts(
            engine=engine,
            directory=directory,
            tasks=tasks,
            open_requests=OpenRequests(4096),
            accounts=OpenByAccount(4096),
            urls=WorkerUrls(),
            limits=RouteLimits(),
        )
        bound = stack.enter_context(listening("127.0.0.1", 0))
        port = bound.getsockname()[1]
        server = EdgeServer(WorkerRoutes(PlainTextResponse("no worker"), parts), bound)
        tasks.start_soon(server.serve)
        sys.stdout.write(f"{port}\n")
        sys.stdout.flush()
        await anyio.to_thread.run_sync(sys.stdin.read)
        server.end()


if __name__ == "__main__":
    with collected_rarely():
        anyio.run(
            serve,
            sys.argv[1],
            Level(sys.argv[2]),
            backend_options={"loop_factory": EdgeLoop},
        )
