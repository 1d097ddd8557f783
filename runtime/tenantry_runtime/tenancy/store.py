"""Accounts and tokens, kept in SQLite."""

from __future__ import annotations

import os
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from tenantry_runtime.core import TenantId
from tenantry_runtime.errors import ConfigurationError

from . import schema
from .migrate import upgrade
from .tokens import digest, new_secret, new_token_id

DATABASE_FILE = "tenantry.db"

DEFAULT_SCOPES = ("run",)

BUSY_TIMEOUT_MS = 5_000
"""How long a writer waits for another; every transaction here is one statement or two."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    id: TenantId
    name: str
    created_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """All that is known of a token; the token itself is not."""

    id: str
    account_id: TenantId
    name: str
    digest: bytes
    scopes: tuple[str, ...]
    created_ms: int
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

    def __init__(self, engine: AsyncEngine, *, now_ms: Callable[[], int]) -> None:
        self._engine = engine
        self._now_ms = now_ms

    async def check(self) -> None:
        """Raise `ConfigurationError` unless the store answers."""
        try:
            async with self._engine.connect() as connection:
                await connection.execute(sa.select(sa.func.count()).select_from(schema.accounts))
        except sa.exc.DBAPIError as error:
            raise ConfigurationError(f"the store is unusable: {error.orig}") from error

    async def create_account(self, account: TenantId, *, name: str | None = None) -> Account:
        """Create an account, or return the one that exists."""
        accounts = schema.accounts
        created = {"id": account, "name": name or account, "created_ms": self._now_ms()}
        try:
            async with self._engine.begin() as connection:
                await connection.execute(sa.insert(accounts).values(created))
        except sa.exc.IntegrityError:
            # it exists, made long ago or by another process just now
            pass
        async with self._engine.connect() as connection:
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
            "created_ms": self._now_ms(),
        }
        try:
            async with self._engine.begin() as connection:
                await connection.execute(sa.insert(schema.tokens).values(row))
        except sa.exc.IntegrityError as error:
            raise LookupError(f"no account {account!r}") from error
        return created

    async def find_token(self, secret: str) -> Token | None:
        """Look a token up, revoked or not."""
        wanted = sa.select(schema.tokens).where(schema.tokens.c.digest == digest(secret))
        async with self._engine.connect() as connection:
            row = (await connection.execute(wanted)).mappings().one_or_none()
        return None if row is None else Token(**{**row, "scopes": tuple(row["scopes"])})

    async def revoke_token(self, token_id: str) -> bool:
        """Revoke a token for good; False if there is none that is valid."""
        tokens = schema.tokens
        async with self._engine.begin() as connection:
            revoked = await connection.execute(
                sa.update(tokens)
                .where(tokens.c.id == token_id, tokens.c.revoked_ms.is_(None))
                .values(revoked_ms=self._now_ms())
            )
        return revoked.rowcount > 0


@asynccontextmanager
async def open_store(
    state_dir: Path, *, now_ms: Callable[[], int] | None = None
) -> AsyncIterator[Store]:
    """Open the store in a directory, made and migrated as needed.

    Only the owner can read the files. Raises `ConfigurationError` for a directory or a database
    that cannot be used.
    """
    path = state_dir / DATABASE_FILE
    try:
        _make_private(path)
        await upgrade(path)
    except OSError as error:
        raise ConfigurationError(f"the state directory {state_dir} is unusable: {error}") from error
    engine = _connect(path)
    try:
        yield Store(engine, now_ms=now_ms or _unix_ms)
    finally:
        await engine.dispose()


def _make_private(path: Path) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    # SQLite gives its -wal and -shm files the mode of the database
    os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
    os.chmod(path, 0o600)


def _connect(path: Path) -> AsyncEngine:
    engine = create_async_engine(sa.URL.create("sqlite+aiosqlite", database=str(path)))
    sa.event.listen(engine.sync_engine, "connect", _configure)
    return engine


# Any: the DBAPI connection, adapted by SQLAlchemy, has no public type
def _configure(connection: Any, _record: object) -> None:
    cursor = connection.cursor()
    for pragma in (
        "journal_mode = WAL",
        "synchronous = NORMAL",
        "foreign_keys = ON",
        f"busy_timeout = {BUSY_TIMEOUT_MS}",
    ):
        cursor.execute(f"PRAGMA {pragma}")
    cursor.close()


def _unix_ms() -> int:
    return time.time_ns() // 1_000_000
