"""One request to the control plane: who asks, what for, and the answer's wrapping."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, TypeAlias, TypeVar

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from tenantry_runtime.core import TenantId
from tenantry_runtime.edge import errors
from tenantry_runtime.edge.authorization import by_token
from tenantry_runtime.edge.body import read_body
from tenantry_runtime.edge.reply import JSON
from tenantry_runtime.errors import Forbidden, InvalidInput, RouteNotFound, TenantryError
from tenantry_runtime.tenancy import Principal, Scope
from tenantry_runtime.tenancy.workers import Notes
from tenantry_runtime.tenancy.workers.names import can_be_known

from .errors import refused
from .services import ControlServices

T = TypeVar("T")

BODY_TIMEOUT_S = 30.0

MAX_PER_PAGE = 1000
DEFAULT_PER_PAGE = 100

CLIENT_GONE = 499
"""Nobody reads it; logs show it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A request whose token is good for what it asks."""

    request: Request
    services: ControlServices
    principal: Principal

    @property
    def account(self) -> TenantId:
        return self.principal.tenant

    @property
    def worker(self) -> str:
        return str(self.request.path_params["script"])

    def flag(self, name: str) -> bool:
        """Say whether a query parameter is true."""
        return self.request.query_params.get(name, "").lower() in ("true", "1")

    def number(self, name: str, *, default: int, least: int = 1, most: int = 1 << 31) -> int:
        """Return a number from the query; raise `InvalidInput`."""
        text = self.request.query_params.get(name, str(default))
        is_number = text.isascii() and text.isdecimal() and len(text) <= 10
        if not (is_number and least <= int(text) <= most):
            raise InvalidInput(f"?{name}", f"must be a number from {least} to {most}")
        return int(text)

    async def body(self, *, max_bytes: int | None = None) -> bytes:
        """Return the whole body; raises as `read_body` does."""
        limit = max_bytes or self.services.limits.body_bytes
        return await read_body(self.request, max_bytes=limit, timeout_s=BODY_TIMEOUT_S)

    async def json(self, kind: type[T], *, max_bytes: int | None = None) -> T:
        """Read the body as JSON of a type; raise `InvalidInput`."""
        return decoded(await self.body(max_bytes=max_bytes), kind)

    def notes(self, triggered_by: str, message: str = "") -> Notes:
        """Say who does this."""
        agent = self.request.headers.get("user-agent", "").lower()
        known = next((name for name in ("wrangler", "workerctl") if agent.startswith(name)), "api")
        return Notes(
            author=self.principal.token_id,
            source=known,
            message=message,
            triggered_by=triggered_by,
        )


def decoded(raw: bytes, kind: type[T]) -> T:
    """Read JSON of a type; raise `InvalidInput`."""
    try:
        return msgspec.json.decode(raw, type=kind)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise InvalidInput("", f"the body is malformed: {error}") from error


Handler: TypeAlias = Callable[[Call], Awaitable[Response]]
Endpoint: TypeAlias = Callable[[Request], Awaitable[Response]]


def endpoint(
    services: ControlServices,
    handler: Handler,
    scopes: Sequence[Scope] = (Scope.DEPLOY,),
    *,
    changes_workers: bool = False,
) -> Endpoint:
    """Make a route's endpoint of a handler, for tokens that have one of the scopes."""

    async def answer(request: Request) -> Response:
        try:
            _check_path(request)
            principal = await _authenticate(services, request, scopes)
            call = Call(request=request, services=services, principal=principal)
            try:
                return await handler(call)
            finally:
                # however it ended: it may have been committed
                if changes_workers:
                    services.changed(call.account)
        except ClientDisconnect:
            return Response(status_code=CLIENT_GONE)
        except TenantryError as error:
            return _refusal(error)

    return answer


def _check_path(request: Request) -> None:
    for name, value in request.path_params.items():
        # a key may be any text, and is checked where keys are
        if name not in ("key", "rest") and not can_be_known(value):
            raise RouteNotFound


async def _authenticate(
    services: ControlServices, request: Request, scopes: Sequence[Scope]
) -> Principal:
    *others, last = scopes
    for scope in others:
        try:
            return await by_token(services.authenticator, scope)(request)
        except Forbidden:
            continue
    return await by_token(services.authenticator, last)(request)


# Any: anything that msgspec can print
def success(
    result: Any,
    *,
    info: Any = None,
    messages: Sequence[str] = (),
    status: int = 200,
) -> Response:
    """Wrap a result; `info` says where in a list it is."""
    wrapped: dict[str, Any] = {
        "result": result,
        "success": True,
        "errors": [],
        "messages": [{"code": 0, "message": message} for message in messages],
    }
    if info is not None:
        wrapped["result_info"] = info
    return Response(msgspec.json.encode(wrapped), status, headers=JSON)


def paged(call: Call, found: Sequence[Any]) -> Response:
    """Answer with the page of a list that the query asks for."""
    page, per_page = page_of(call)
    shown = found[(page - 1) * per_page : page * per_page]
    return success(shown, info=page_info(page, per_page, len(shown), len(found)))


def page_of(call: Call) -> tuple[int, int]:
    """Return number and size of the page that the query asks for; raise `InvalidInput`."""
    page = call.number("page", default=1)
    return page, call.number("per_page", default=DEFAULT_PER_PAGE, most=MAX_PER_PAGE)


# Any: JSON
def page_info(page: int, per_page: int, count: int, total: int) -> dict[str, Any]:
    return {
        "page": page,
        "per_page": per_page,
        "count": count,
        "total_count": total,
        "total_pages": -(-total // per_page),
    }


def _refusal(error: TenantryError) -> Response:
    status, entry = refused(error)
    body = {"result": None, "success": False, "errors": [entry], "messages": []}
    return Response(msgspec.json.encode(body), status, headers={**JSON, **errors.headers(error)})


def timestamp(unix_ms: int) -> str:
    """Write a time as the API does."""
    moment = datetime.fromtimestamp(unix_ms / 1000, UTC)
    return moment.isoformat(timespec="microseconds").replace("+00:00", "Z")
