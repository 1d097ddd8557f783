"""Who sends a request: the token that it carries, or whoever is known to call from inside."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeAlias

from starlette.datastructures import Headers
from starlette.requests import Request

from tenantry_runtime.tenancy import Authenticator, Principal, Scope

Identify: TypeAlias = Callable[[Request], Awaitable[Principal]]
"""Says who calls, or raises why it may not: `Unauthenticated`, `Forbidden`, `AccountSuspended`."""


def bearer_token(headers: Headers) -> str | None:
    """Return the bearer token; None for another scheme, or without the header."""
    scheme, _, token = headers.get("authorization", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else None


def by_token(authenticator: Authenticator, scope: Scope) -> Identify:
    """Identify callers by their tokens, which are good for the scope, and the path's account if any."""

    async def identify(request: Request) -> Principal:
        account = request.path_params.get("account")
        return await authenticator.authenticate(bearer_token(request.headers), account, scope)

    return identify
