"""Who may look at everything: admin tokens of the one account that the deployment names."""

from __future__ import annotations

from starlette.requests import Request

from tenantry_runtime.core import TenantId
from tenantry_runtime.edge.authorization import bearer_token
from tenantry_runtime.tenancy import Authenticator, Scope

COOKIE = "tenantry_console"
"""Has the token, for a browser that cannot send a header with a page."""


class OperatorAccess:
    """Lets an operator in, by header or cookie."""

    def __init__(self, authenticator: Authenticator, account: TenantId) -> None:
        self._authenticator = authenticator
        self._account = account

    async def require(self, request: Request) -> None:
        """Raise `Unauthenticated` or `Forbidden` unless the request is an operator's."""
        await self.check(bearer_token(request.headers) or request.cookies.get(COOKIE))

    async def check(self, token: str | None) -> None:
        """Raise `Unauthenticated` or `Forbidden` unless it is an operator's token."""
        await self._authenticator.authenticate(token, self._account, Scope.ADMIN)
