"""Running models for whoever is in this process and known: a tenant's workers.

The same endpoints as over HTTP answer, so that limits, ledger, fairness and traces are the same; only
who calls is told them by the runtime, not by a token.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

import anyio
import msgspec
from anyio.abc import TaskGroup
from starlette.requests import Request
from starlette.types import ASGIApp, Scope

from tenantry_runtime.errors import TenantryError
from tenantry_runtime.tenancy import Principal

from . import envelope
from .batch import BatchEndpoint
from .dialects.dialect import SESSION_HEADER
from .dialects.workers_ai import WorkersAI
from .errors import answer
from .exchange import Exchange
from .run import RunEndpoint
from .services import Services

ROUTE = "/ai/run/{model:path} (binding)"
"""Names its spans."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InternalRun:
    """A request for a model."""

    principal: Principal
    model: str
    body: bytes
    """JSON, as over HTTP."""
    session: str | None = None
    traceparent: str = ""
    tracestate: str = ""
    deadline_s: float = inf
    """On anyio's clock."""
    is_batch: bool = False
    """Whether it submits a batch, or polls one."""


class RunRefused(Exception):
    """An answer that is none: what the API says instead."""

    def __init__(self, status: int, code: int, message: str) -> None:
        self.status = status
        self.code = code
        self.message = message
        super().__init__(status, code, message)


class _Failure(msgspec.Struct, frozen=True):
    errors: list[envelope.ErrorEntry]


_failure = msgspec.json.Decoder(_Failure)


class InternalRuns:
    """Runs requests in the task group that it is given; leaving the response early ends one."""

    def __init__(self, services: Services, tasks: TaskGroup) -> None:
        self._services = services
        self._tasks = tasks
        self._dialect = WorkersAI()

    async def run(self, asked: InternalRun) -> Exchange:
        """Return the response when it begins; whoever gets it reads and closes it.

        Raises `RunRefused`. Cancelling this ends the request.
        """
        exchange = Exchange(self._application(asked), _scope(asked), asked.body)
        self._tasks.start_soon(exchange.run)
        try:
            await exchange.begun()
            if exchange.status < 400:
                return exchange
            [entry, *_] = _failure.decode(await exchange.read()).errors
        except TenantryError as error:
            entry = envelope.error_entry(error)
            raise RunRefused(answer(error).status, entry.code, entry.message) from error
        except anyio.get_cancelled_exc_class():
            exchange.leave()
            raise
        raise RunRefused(exchange.status, entry.code, entry.message)

    def _application(self, asked: InternalRun) -> ASGIApp:
        async def identify(_: Request) -> Principal:
            return asked.principal

        run = RunEndpoint(
            self._services, self._dialect, ROUTE, identify=identify, deadline_s=asked.deadline_s
        )
        if not asked.is_batch:
            return run
        return BatchEndpoint(self._services, self._dialect, run, identify=identify)


def _scope(asked: InternalRun) -> Scope:
    headers = {
        SESSION_HEADER: asked.session or "",
        "traceparent": asked.traceparent,
        "tracestate": asked.tracestate,
    }
    return {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "POST",
        "scheme": "http",
        # what is of it is in `path_params`
        "path": "/ai/run",
        "raw_path": b"/ai/run",
        "root_path": "",
        "query_string": b"queueRequest=true" if asked.is_batch else b"",
        "headers": [
            (name.encode(), text.encode("latin-1")) for name, text in headers.items() if text
        ],
        "path_params": {"account": asked.principal.tenant, "model": asked.model},
        "client": None,
        "server": None,
    }
