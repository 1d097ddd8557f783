"""A worker that calls another by a service binding, which handlers of tests answer instead of isolates."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio

from support.bindings import OTHER_TENANT, Caller, World, a_version, a_world
from tenantry_runtime.workers.interface import (
    CalledEngine,
    HttpRequest,
    HttpResponse,
    Invocation,
    WorkerFailed,
)
from tenantry_runtime.workers.outcome import Outcome
from tenantry_runtime.workers.spec import ServiceBinding, WorkerVersion

Handler = Callable[[WorkerVersion, HttpRequest, Invocation], Awaitable[HttpResponse]]


async def greet(_: WorkerVersion, request: HttpRequest, __: Invocation) -> HttpResponse:
    return HttpResponse(status=200, body=f"{request.method} {request.url}".encode())


@dataclass(slots=True)
class FakeEngine:
    """Runs handlers of tests as if they were workers."""

    handler: Handler = greet
    seen: list[tuple[WorkerVersion, Any, Invocation]] = field(default_factory=list)
    entered: anyio.Event = field(default_factory=anyio.Event)
    left: anyio.Event = field(default_factory=anyio.Event)

    @asynccontextmanager
    async def fetch(
        self, version: WorkerVersion, request: HttpRequest, invocation: Invocation
    ) -> AsyncIterator[HttpResponse]:
        self.seen.append((version, request, invocation))
        self.entered.set()
        try:
            yield await self.handler(version, request, invocation)
        finally:
            self.left.set()

    async def rpc(
        self,
        version: WorkerVersion,
        method: str,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        invocation: Invocation,
    ) -> object:
        self.seen.append((version, (method, args, kwargs), invocation))
        if method == "fails":
            raise WorkerFailed(Outcome.EXCEPTION, "it broke")
        return {"called": method}


@asynccontextmanager
async def a_caller(
    folder: Path, engine: CalledEngine, *, service: str = "callee"
) -> AsyncIterator[tuple[World, Caller]]:
    async with a_world(folder) as world:
        world.versions.known += [
            a_version(worker="callee"),
            a_version(worker="theirs", tenant=OTHER_TENANT),
        ]
        world.bindings.attach(engine)
        yield world, world.caller(ServiceBinding(name="SVC", service=service, entrypoint="Admin"))
