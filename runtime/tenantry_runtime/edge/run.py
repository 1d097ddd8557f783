"""One request for text, in any dialect: from its headers to its last byte."""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Callable, Sequence
from functools import partial
from math import inf
from typing import TypeVar

import anyio
from starlette.requests import ClientDisconnect, Request
from starlette.types import Receive, Scope, Send

from tenantry_runtime.core import Event, RequestId
from tenantry_runtime.errors import (
    GenerationFailed,
    InvalidInput,
    LimitExceeded,
    NodeUnavailable,
    RequestTimeout,
    TenantryError,
)
from tenantry_runtime.telemetry import ClientGone, RequestSpan
from tenantry_runtime.tenancy import Principal, Scope as TokenScope

from .authorization import Identify, by_token
from .body import read_body
from .dialects.dialect import SESSION_HEADER, Dialect, Printer
from .generation import Emit, Generation
from .off_loop import off_loop
from .presence import while_there
from .reply import Reply
from .services import Services
from .trail import Trail

T = TypeVar("T")

_log = logging.getLogger(__name__)


class RunEndpoint:
    """An ASGI application for one route, in one dialect."""

    def __init__(
        self,
        services: Services,
        dialect: Dialect,
        route: str,
        *,
        identify: Identify | None = None,
        deadline_s: float = inf,
    ) -> None:
        """The route's path may have `account`, else the token says whose it is; and `model`.

        `identify` says who calls where no token does. `deadline_s`, on anyio's clock, is when nobody
        waits for the end any more; the limits may say so before.
        """
        self._services = services
        self._dialect = dialect
        self._route = route
        self._identify = identify or by_token(services.authenticator, TokenScope.RUN)
        self._deadline_s = deadline_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        request_id = RequestId(str(uuid.uuid4()))
        span = RequestSpan(
            self._services.tracer,
            headers=request.headers,
            method=request.method,
            route=self._route,
            server=_server(scope),
            request_id=request_id,
            meter=self._services.meter,
        )
        trail = Trail()
        reply = Reply(
            send,
            dialect=self._dialect,
            headers={"cf-ai-req-id": request_id},
            late_headers=partial(_late_headers, trail, self._services.show_routing),
            stall_timeout_s=self._services.limits.stall_timeout_s,
        )
        try:
            await self._answer_or_fail(request, request_id, span, reply, trail)
        except ClientDisconnect:
            span.failed(ClientGone())
        finally:
            span.end(status=reply.status)

    async def _answer_or_fail(
        self,
        request: Request,
        request_id: RequestId,
        span: RequestSpan,
        reply: Reply,
        trail: Trail,
    ) -> None:
        try:
            with self._services.open_requests.admit(is_spared=lambda: trail.is_whole) as admission:
                trail.admission = admission
                await self._answer(request, request_id, span, reply, trail)
            if admission.cancelled_caught:
                raise NodeUnavailable(request.path_params.get("model", "any model"))
        except TenantryError as error:
            if isinstance(error, LimitExceeded):
                self._note_refusal(error, request_id, span, trail)
            span.failed(error)
            await reply.fail(error)
        except ClientDisconnect:
            raise
        except Exception as error:
            # the outermost place that knows the dialect: a bug is an answer too, and is logged
            _log.exception("request %s failed", request_id)
            span.failed(error)
            await reply.fail(GenerationFailed("internal error"))

    async def _answer(
        self,
        request: Request,
        request_id: RequestId,
        span: RequestSpan,
        reply: Reply,
        trail: Trail,
    ) -> None:
        services = self._services
        principal = await self._identify(request)
        trail.tenant = principal.tenant
        _check_query(request)
        model: str | None = request.path_params.get("model")
        if model is not None:
            # before its body, so that a client is told before it has sent all
            self._admit(principal, model, trail)
        body = await read_body(
            request,
            max_bytes=services.limits.max_body_bytes,
            timeout_s=services.limits.body_timeout_s,
        )
        if model is None:
            model = await self._read(self._dialect.model, body)
            assert model is not None, "a path without a model has a dialect whose bodies name one"
            self._admit(principal, model, trail)
        offer = services.offers.resolve(model)
        session = request.headers.get(SESSION_HEADER)
        parse = partial(self._dialect.parse, target=offer.target, session=session)
        parsed = await self._read(parse, body)
        span.asked(parsed, model=model, tenant=principal.tenant)
        printer = self._dialect.printer(
            parsed,
            offer.target,
            response_id=f"{self._dialect.id_prefix}{request_id}",
            created_s=int(time.time()),
        )
        generation = Generation(
            request=parsed,
            body_bytes=len(body),
            request_id=request_id,
            principal=principal,
            offer=offer,
            nodes=services.nodes,
            limiter=services.limiter,
            ledger=services.ledger,
            span=span,
            threads=services.threads,
            trail=trail,
            drift=services.drift,
        )
        await self._serve(generation, printer, request.receive, reply)

    def _admit(self, principal: Principal, model: str, trail: Trail) -> None:
        """Refuse a model that there is not, and one of which the tenant has had its part."""
        offer = self._services.offers.resolve(model)
        trail.limits = partial(self._services.limiter.headers, principal, offer.entry.id)
        self._services.limiter.precheck(principal, offer.entry.id)

    def _note_refusal(
        self, error: LimitExceeded, request_id: RequestId, span: RequestSpan, trail: Trail
    ) -> None:
        storms = self._services.storms
        if storms is not None and trail.tenant is not None:
            storms.refused(
                trail.tenant, limit=error.limit, request_id=request_id, trace_id=span.trace_id
            )

    async def _read(self, read: Callable[[bytes], T], body: bytes) -> T:
        return await off_loop(
            partial(read, body), num_bytes=len(body), limiter=self._services.threads
        )

    async def _serve(
        self, generation: Generation, printer: Printer, receive: Receive, reply: Reply
    ) -> None:
        if generation.request.stream:
            await self._serve_stream(generation, printer, receive, reply)
            return
        choices: list[list[Event]] = [[] for _ in range(generation.request.num_choices)]
        with self._in_time() as deadline:
            generation.trail.deadline = deadline
            last = await while_there(
                receive,
                partial(generation.run, _keep_in(choices), response_id=printer.response_id),
            )
            for events, ending in zip(choices, last, strict=True):
                events += ending
        if deadline.cancelled_caught:
            raise RequestTimeout
        await reply.whole(printer.result(choices))

    async def _serve_stream(
        self, generation: Generation, printer: Printer, receive: Receive, reply: Reply
    ) -> None:
        limits = self._services.limits
        reply.will_stream(printer)
        has_begun = False
        with self._in_time() as deadline:
            generation.trail.deadline = deadline

            async def write(events: Sequence[Event], choice: int) -> None:
                nonlocal has_begun
                if not has_begun:
                    # who has the beginning may take any time to hear the end
                    has_begun = True
                    deadline.deadline = self._deadline_s
                await reply.write(events, choice)

            last = await while_there(
                receive,
                partial(generation.run, write, response_id=printer.response_id),
                beside=partial(reply.keep_alive, limits.keep_alive_s),
            )
            deadline.deadline = inf
            for choice, ending in enumerate(last):
                await reply.write(ending, choice)
            await reply.end()
        if deadline.cancelled_caught:
            raise RequestTimeout

    def _in_time(self) -> anyio.CancelScope:
        limit_s = anyio.current_time() + self._services.limits.request_timeout_s
        return anyio.CancelScope(deadline=min(limit_s, self._deadline_s))


def _late_headers(trail: Trail, show_routing: bool) -> dict[str, str]:
    return {**trail.limits(), **(trail.headers() if show_routing else {})}


def _keep_in(choices: list[list[Event]]) -> Emit:
    async def keep(events: Sequence[Event], choice: int) -> None:
        choices[choice].extend(events)

    return keep


def _check_query(request: Request) -> None:
    """Refuse what would ask for another kind of answer; `tags` label a request, no more."""
    for name, value in request.query_params.multi_items():
        if name != "tags" and (name, value) != ("queueRequest", "false"):
            raise InvalidInput(f"?{name[:100]}", "is not supported")


def _server(scope: Scope) -> tuple[str, int | None] | None:
    server = scope.get("server")
    if server is None:
        return None
    address, port = server
    # granian has the port as a string
    return address, None if port is None else int(port)
