"""From a bearer token to the tenant that calls, and what it may."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import anyio
import sqlalchemy as sa

from tenantry_runtime.core import TenantId
from tenantry_runtime.errors import (
    AccountSuspended,
    ConfigurationError,
    Forbidden,
    InvalidInput,
    Unauthenticated,
)

from . import schema
from .database import Database
from .last_use import LastUse
from .plan import Plan
from .store import Store
from .terms import to_plan
from .tokens import Scope, digest

REFUSAL_TICK_S = 0.005
"""Ten times what a look at the store takes, so that all refusals but a few come at the first tick."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Principal:
    """Who calls, and what the token allows."""

    tenant: TenantId
    token_id: str
    """Empty: one of the tenant's workers calls, without a token."""
    scopes: frozenset[str]
    plan: Plan = field(default_factory=Plan)
    worker: str = ""
    """That calls; empty: none."""
    worker_version: str = ""


class Authenticator:
    """Checks tokens against the store, each time: a revoked one stops at once, at every edge.

    A token that is unknown, malformed, revoked, expired or of a deleted account takes one way: the
    same statement finds nothing. How many rows it looked at before, microseconds, is not to be told
    by a clock either: the refusal comes at a multiple of `REFUSAL_TICK_S` after the question.
    """

    def __init__(self, store: Store) -> None:
        self._database = store.database
        self.last_use = LastUse(store.database)
        """Of the tokens that were good; whoever runs the process keeps it (`LastUse.keep`)."""

    async def authenticate(
        self, secret: str | None, account: str | None, scope: Scope = Scope.RUN
    ) -> Principal:
        """Return who calls, where the token is good for the account and the scope.

        Without an account it is good for its own.

        Raises `Unauthenticated` for a missing token or one that is none, `Forbidden` for one of
        another account, whether that exists or not, or without the scope, and `AccountSuspended`.
        """
        started_s = anyio.current_time()
        now_ms = self._database.now_ms()
        known = {"digest": digest(secret or ""), "now_ms": now_ms}
        async with self._database.connect() as connection:
            row = (await connection.execute(_VALID, known)).one_or_none()
        if row is None:
            await _next_tick(started_s)
            raise Unauthenticated
        token_id, tenant, scopes, suspended_ms, terms, overrides = row
        if account is not None and tenant != account:
            raise Forbidden
        if suspended_ms is not None:
            raise AccountSuspended
        principal = Principal(
            tenant=tenant,
            token_id=token_id,
            scopes=frozenset(scopes),
            plan=_plan(tenant, terms, overrides),
        )
        require_scope(principal, scope)
        self.last_use.note(token_id, now_ms)
        return principal

    async def principal_of(self, tenant: TenantId, *, worker: str, version: str) -> Principal:
        """Return as whom a worker calls models: as its tenant, on the terms that hold now.

        For whoever runs the worker and knows whose it is. Raises `AccountSuspended`, or `Forbidden`
        for an account that is deleted.
        """
        return await account_principal(
            self._database, tenant, worker=worker, worker_version=version
        )


async def account_principal(
    database: Database, tenant: TenantId, *, worker: str, worker_version: str
) -> Principal:
    """Return the principal of what runs for an account without a token, as `principal_of` does."""
    async with database.connect() as connection:
        row = (await connection.execute(_TERMS, {"tenant": tenant})).one_or_none()
    if row is None:
        raise Forbidden
    suspended_ms, terms, overrides = row
    if suspended_ms is not None:
        raise AccountSuspended
    return Principal(
        tenant=tenant,
        token_id="",
        scopes=frozenset((Scope.RUN,)),
        plan=_plan(tenant, terms, overrides),
        worker=worker,
        worker_version=worker_version,
    )


async def _next_tick(started_s: float) -> None:
    num_ticks = math.floor((anyio.current_time() - started_s) / REFUSAL_TICK_S) + 1
    await anyio.sleep_until(started_s + num_ticks * REFUSAL_TICK_S)


def require_scope(principal: Principal, scope: Scope) -> None:
    """Raise `Forbidden` where a token is not good for something."""
    if not principal.scopes & {scope, Scope.ADMIN}:
        raise Forbidden


# Any: as the columns have it
def _valid() -> sa.Select[tuple[Any, ...]]:
    tokens, accounts, plans = schema.tokens, schema.accounts, schema.plans
    return (
        sa.select(
            tokens.c.id,
            tokens.c.account_id,
            tokens.c.scopes,
            accounts.c.suspended_ms,
            plans.c.terms,
            accounts.c.overrides,
        )
        .select_from(tokens.join(accounts).join(plans))
        .where(
            tokens.c.digest == sa.bindparam("digest"),
            tokens.c.revoked_ms.is_(None),
            sa.or_(
                tokens.c.expires_ms.is_(None),
                tokens.c.expires_ms > sa.bindparam("now_ms", type_=sa.BigInteger),
            ),
            accounts.c.deleted_ms.is_(None),
        )
    )


_VALID = _valid()


# Any: as the columns have it
def _terms() -> sa.Select[tuple[Any, ...]]:
    accounts, plans = schema.accounts, schema.plans
    return (
        sa.select(accounts.c.suspended_ms, plans.c.terms, accounts.c.overrides)
        .join(plans)
        .where(accounts.c.id == sa.bindparam("tenant"), accounts.c.deleted_ms.is_(None))
    )


_TERMS = _terms()


def _plan(tenant: str, terms: dict[str, object], overrides: dict[str, object]) -> Plan:
    try:
        return to_plan(terms, overrides)
    except InvalidInput as error:
        # nobody can write such ones but past this program
        raise ConfigurationError(f"the terms of account {tenant!r}: {error}") from error
