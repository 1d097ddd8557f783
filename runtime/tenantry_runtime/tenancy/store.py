"""Accounts and tokens, as the database keeps them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import sqlalchemy as sa

from tenantry_runtime.core import TenantId
from tenantry_runtime.errors import ConfigurationError

from . import schema
from .database import Database, open_database
from .tokens import digest, new_secret, new_token_id

DEFAULT_SCOPES = ("run",)

DEFAULT_PLAN = "unlimited"


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    id: TenantId
    name: str
    created_ms: int
    plan_id: str
    overrides: dict[str, object]
    suspended_ms: int | None
    deleted_ms: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """All that is known of a token; the token itself is not."""

    id: str
    account_id: TenantId
    name: str
    digest: bytes
    scopes: tuple[str, ...]
    created_ms: int
    expires_ms: int | None
    last_used_ms: int | None
    revoked_ms: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class NewToken:
    """A token at the only moment at which it can be shown."""

    id: str
    secret: str

    def __repr__(self) -> str:
        return f"NewToken(id={self.id!r}, secret='[secret]')"


class Store:
    """Made by `open_store`; safe to share between tasks."""

    def __init__(self, database: Database) -> None:
        self.database = database

    async def check(self) -> None:
        """Raise `ConfigurationError` unless the store answers."""
        try:
            async with self.database.connect() as connection:
                await connection.execute(sa.select(sa.func.count()).select_from(schema.accounts))
        except sa.exc.DBAPIError as error:
            raise ConfigurationError(f"the store is unusable: {error.orig}") from error

    async def create_account(self, account: TenantId, *, name: str | None = None) -> Account:
        """Create an account, or return the one that exists."""
        accounts = schema.accounts
        created = {
            "id": account,
            "name": name or account,
            "created_ms": self.database.now_ms(),
            "plan_id": DEFAULT_PLAN,
            "overrides": {},
        }
        try:
            async with self.database.begin() as connection:
                await connection.execute(sa.insert(accounts).values(created))
        except sa.exc.IntegrityError:
            # it exists, made long ago or by another process just now
            pass
        async with self.database.connect() as connection:
            found = await connection.execute(sa.select(accounts).where(accounts.c.id == account))
            return Account(**found.mappings().one())

    async def create_token(
        self, account: TenantId, *, name: str, scopes: Sequence[str] = DEFAULT_SCOPES
    ) -> NewToken:
        """Create a token of an account; raise `LookupError` if there is no such account."""
        created = NewToken(id=new_token_id(), secret=new_secret())
        row = {
            "id": created.id,
            "account_id": account,
            "name": name,
            "digest": digest(created.secret),
            "scopes": list(scopes),
            "created_ms": self.database.now_ms(),
        }
        try:
            async with self.database.begin() as connection:
                await connection.execute(sa.insert(schema.tokens).values(row))
        except sa.exc.IntegrityError as error:
            raise LookupError(f"no account {account!r}") from error
        return created

    async def find_token(self, secret: str) -> Token | None:
        """Look a token up, revoked or not."""
        wanted = sa.select(schema.tokens).where(schema.tokens.c.digest == digest(secret))
        async with self.database.connect() as connection:
            row = (await connection.execute(wanted)).mappings().one_or_none()
        return None if row is None else Token(**{**row, "scopes": tuple(row["scopes"])})

    async def revoke_token(self, token_id: str) -> bool:
        """Revoke a token for good; False if there is none that is valid."""
        tokens = schema.tokens
        async with self.database.begin() as connection:
            revoked = await connection.execute(
                sa.update(tokens)
                .where(tokens.c.id == token_id, tokens.c.revoked_ms.is_(None))
                .values(revoked_ms=self.database.now_ms())
            )
        return revoked.rowcount > 0


@asynccontextmanager
async def open_store(
    state_dir: Path, *, url: str | None = None, now_ms: Callable[[], int] | None = None
) -> AsyncIterator[Store]:
    """Open the store of a database, as `open_database` does."""
    async with open_database(state_dir, url=url, now_ms=now_ms) as database:
        yield Store(database)
