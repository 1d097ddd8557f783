"""In the place of an engine where workers cannot run: it says why."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from tenantry_runtime.workers.interface import (
    HttpRequest,
    HttpResponse,
    Invocation,
    LoadError,
    WorkerFailed,
)
from tenantry_runtime.workers.outcome import Outcome
from tenantry_runtime.workers.spec import WorkerVersion


class NoEngine:
    """An `Engine` that runs nothing."""

    def __init__(self, problem: str) -> None:
        self._problem = problem

    @asynccontextmanager
    async def fetch(
        self, version: WorkerVersion, request: HttpRequest, invocation: Invocation
    ) -> AsyncIterator[HttpResponse]:
        raise self._failed()
        yield HttpResponse(status=500)

    async def scheduled(
        self, version: WorkerVersion, cron: str, scheduled_ms: int, invocation: Invocation
    ) -> None:
        raise self._failed()

    async def rpc(
        self,
        version: WorkerVersion,
        method: str,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        invocation: Invocation,
    ) -> object:
        raise self._failed()

    async def try_load(self, version: WorkerVersion, *, cpu_ms: float = 1000.0) -> float:
        raise LoadError("WorkersUnavailable", f"workers do not run here: {self._problem}")

    def _failed(self) -> WorkerFailed:
        return WorkerFailed(Outcome.LOAD_FAILED, f"workers do not run here: {self._problem}")
