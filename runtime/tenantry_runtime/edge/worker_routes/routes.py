"""The ASGI application in front of the edge's own: requests for workers go to the engine, others on.

On the hot path it is plain ASGI: no routing table, no request object, no task of its own.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass, field
from urllib.parse import parse_qs

from anyio.abc import TaskGroup
from opentelemetry.trace import Tracer
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Receive, Scope, Send

from tenantry_runtime.edge.open_requests import OpenRequests
from tenantry_runtime.errors import AccountSuspended, CapacityExceeded, StoreUnavailable
from tenantry_runtime.telemetry import WorkerSpan
from tenantry_runtime.workers.interface import Engine, HttpRequest, WorkerFailed
from tenantry_runtime.workers.spec import WorkerVersion

from .addresses import Address, WorkerUrls, is_possible
from .authority import Authority, authority_of
from .departure import Departure, Departures
from .directory import Directory
from .limits import RouteLimits
from .open_by_account import OpenByAccount
from .pages import (
    UNAVAILABLE,
    Problem,
    Refused,
    of_failure,
    of_refusal,
    printed,
    unknown_worker,
)
from .ray import Rays
from .request import Head, raw_path
from .request_body import RequestBody, open_body
from .response import WorkerResponse

_log = logging.getLogger(__name__)


SCHEDULED_PATH = b"/__scheduled"

_FULL = Refused(503, "too many requests are open", code=UNAVAILABLE, retry_after_s=1)
_ENDING = Refused(503, "the server is ending", code=UNAVAILABLE, retry_after_s=1)
_NO_STORE = Refused(503, "cannot be found at the moment", code=UNAVAILABLE, retry_after_s=1)
_SUSPENDED = Refused(403, "its account is suspended")
_INTERNAL = Refused(500, "an internal error", code=UNAVAILABLE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What serves requests for workers."""

    engine: Engine
    directory: Directory
    tasks: TaskGroup
    """Lives as long as the server."""
    open_requests: OpenRequests
    accounts: OpenByAccount
    urls: WorkerUrls
    limits: RouteLimits
    tracer: Tracer | None = None
    """None: nothing is traced."""
    test_scheduled: bool = False
    """Whether `/__scheduled` runs a trigger, as it does in wrangler's development server."""
    departures: Departures = field(default_factory=Departures)
    rays: Rays = field(default_factory=Rays)


class WorkerRoutes:
    """Serves workers, and hands all else to the edge's own application."""

    def __init__(self, app: ASGIApp, parts: Parts) -> None:
        self._app = app
        self._parts = parts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        try:
            authority = authority_of(scope)
        except Refused as refused:
            # whoever is meant: the edge's own pages and API are behind this too
            await _refuse(refused, scope, receive, send, self._parts)
            return
        address = await self._address(authority.name, raw_path(scope))
        if address is None:
            await self._app(scope, receive, send)
        else:
            await _Exchange(self._parts, scope, receive, send, authority, address).run()

    async def _address(self, host: str, path: bytes) -> Address | None:
        """Return the worker that a request is for."""
        urls, directory = self._parts.urls, self._parts.directory
        by_host = urls.of_host(host, path)
        try:
            if by_host is not None and await directory.knows(by_host.account, by_host.worker):
                return by_host
            if urls.may_be_routed(host):
                routed = await directory.route(host, path.decode("latin-1"))
                if routed is not None:
                    return Address(*routed, path, is_route=True)
        except StoreUnavailable:
            # a worker's client is told so
            pass
        return by_host or (None if urls.is_tenants(host) else urls.of_path(path))


async def _refuse(
    refused: Refused, scope: Scope, receive: Receive, send: Send, parts: Parts
) -> None:
    """Answer a request that is for nobody."""
    ray = parts.rays.make()
    response = WorkerResponse(
        send,
        Departure(receive, parts.tasks),
        method=scope["method"],
        ray=ray,
        stall_timeout_s=parts.limits.stall_timeout_s,
    )
    await _tell(response, of_refusal(refused, "", ray), as_html=False)


class _Exchange:
    """One request and its response."""

    def __init__(
        self,
        parts: Parts,
        scope: Scope,
        receive: Receive,
        send: Send,
        authority: Authority,
        address: Address,
    ) -> None:
        self._parts = parts
        self._head = Head(scope, authority)
        self._receive = receive
        self._address = address
        self._ray = parts.rays.make()
        self._departure = Departure(receive, parts.tasks, parts.departures)
        self._body: bytes | RequestBody | None = None
        self._span: WorkerSpan | None = None
        self._response = WorkerResponse(
            send,
            self._departure,
            method=self._head.method,
            ray=self._ray,
            stall_timeout_s=parts.limits.stall_timeout_s,
            has_shared_origin=address.has_shared_origin,
        )

    async def run(self) -> None:
        problem: Problem | None = None
        worker = self._address.worker
        try:
            with (
                self._parts.accounts.admit(self._address.account),
                self._parts.open_requests.admit() as admission,
            ):
                self._departure.cancels = admission
                problem = await self._answer()
            if admission.cancelled_caught and not self._departure.is_known:
                problem = of_refusal(_ENDING, worker, self._ray)
        except CapacityExceeded:
            problem = of_refusal(_FULL, worker, self._ray)
        except ClientDisconnect:
            pass
        if problem is not None and self._response.status is None and not self._departure.is_known:
            as_html = "text/html" in self._head.get("accept")
            await _tell(self._response, problem, as_html=as_html)
        # a response that had begun ends without its last piece, which clients see as broken off
        self._departure.over()
        if self._span is not None:
            outcome = problem.outcome if problem is not None else ""
            self._span.end(status=self._response.status, outcome=outcome)

    async def _answer(self) -> Problem | None:
        """Serve the request; return what is to be said where there is no response."""
        worker = self._address.worker
        try:
            self._head.check(self._parts.limits)
            version = await self._version()
            if version is None:
                return unknown_worker(self._address.account, worker, self._ray)
            self._body = await open_body(
                self._head, self._receive, self._departure, self._parts.limits
            )
            if self._parts.test_scheduled and self._address.path == SCHEDULED_PATH:
                await self._run_trigger(version)
            else:
                await self._invoke(version)
        except Refused as refused:
            return of_refusal(refused, worker, self._ray)
        except AccountSuspended:
            return of_refusal(_SUSPENDED, worker, self._ray)
        except StoreUnavailable:
            return of_refusal(_NO_STORE, worker, self._ray)
        except WorkerFailed as failed:
            if isinstance(self._body, RequestBody) and self._body.problem is not None:
                return of_refusal(self._body.problem, worker, self._ray)
            return of_failure(failed, worker, self._ray)
        except ClientDisconnect:
            return None
        except Exception:
            # the outermost place: a bug is an answer too, and is logged
            _log.exception("request %s for worker %s failed", self._ray, worker)
            return of_refusal(_INTERNAL, worker, self._ray)
        return None

    async def _version(self) -> WorkerVersion | None:
        account, worker = self._address.account, self._address.worker
        # what can be no name is not asked for
        if not is_possible(account, worker):
            return None
        return await self._parts.directory.version(
            account, worker, needs_url=not self._address.is_route
        )

    async def _invoke(self, version: WorkerVersion) -> None:
        started_s = time.perf_counter()
        request = HttpRequest(
            method=self._head.method,
            url=self._head.url(self._address),
            headers=self._head.headers(self._address, self._ray),
            body=self._body,
        )
        invocation = self._head.invocation(self._ray, self._begin_span(version))
        async with self._parts.engine.fetch(version, request, invocation) as response:
            if self._span is not None:
                self._span.responded(cold_start_ms=response.cold_start_ms)
            waited_ms = (time.perf_counter() - started_s) * 1000
            await self._response.forward(response, _timing(waited_ms, response.cold_start_ms))

    def _begin_span(self, version: WorkerVersion) -> WorkerSpan | None:
        if self._parts.tracer is not None:
            self._span = WorkerSpan(
                self._parts.tracer,
                headers=self._head.values,
                method=self._head.method,
                worker=version.worker,
                version_id=version.version_id,
                tenant=version.tenant,
                request_id=self._ray,
            )
        return self._span

    async def _run_trigger(self, version: WorkerVersion) -> None:
        """Run a trigger as if it were due; `?cron=` says which."""
        invocation = self._head.invocation(self._ray, self._begin_span(version))
        query = parse_qs(self._head.query)
        cron = query.get("cron", ["* * * * *"])[0]
        now_ms = time.time_ns() // 1_000_000
        await self._parts.engine.scheduled(version, cron, now_ms, invocation)
        headers = [(b"content-type", b"text/plain; charset=utf-8")]
        await self._response.whole(200, headers, b"Ran scheduled event")


async def _tell(response: WorkerResponse, problem: Problem, *, as_html: bool) -> None:
    body, content_type = printed(problem, as_html=as_html)
    headers = [
        (b"content-type", content_type.encode()),
        (b"cache-control", b"no-store"),
        (b"x-content-type-options", b"nosniff"),
    ]
    if problem.retry_after_s is not None:
        headers.append((b"retry-after", b"%d" % problem.retry_after_s))
    await response.whole(problem.status, headers, body)


def _timing(waited_ms: float, cold_start_ms: float | None) -> bytes:
    """Say how long the worker took to its headers, and of that its cold start if there was one."""
    timing = f"worker;dur={waited_ms:.2f}"
    if cold_start_ms is not None:
        timing += f", cold;dur={cold_start_ms:.2f}"
    return timing.encode()
