"""From a bearer token to the tenant that calls."""

from __future__ import annotations

import hmac
from dataclasses import dataclass, field

from tenantry_runtime.core import TenantId
from tenantry_runtime.errors import Forbidden, Unauthenticated

from .plan import Plan
from .store import Store
from .tokens import TOKEN_PREFIX, digest


@dataclass(frozen=True, slots=True, kw_only=True)
class Principal:
    """Who calls, and what the token allows."""

    tenant: TenantId
    token_id: str
    scopes: frozenset[str]
    plan: Plan = field(default_factory=Plan)


class Authenticator:
    """Checks tokens against the store, each time: a revoked token stops at once."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def authenticate(self, secret: str | None, account: str) -> Principal:
        """Return who calls.

        Raises `Unauthenticated` for a missing, unknown or revoked token, `Forbidden` for one of
        another account, whether that account exists or not.
        """
        if secret is None or not secret.startswith(TOKEN_PREFIX):
            raise Unauthenticated
        token = await self._store.find_token(secret)
        is_known = token is not None and hmac.compare_digest(token.digest, digest(secret))
        if token is None or not is_known or token.revoked_ms is not None:
            raise Unauthenticated
        if token.account_id != account:
            raise Forbidden
        return Principal(tenant=token.account_id, token_id=token.id, scopes=frozenset(token.scopes))
