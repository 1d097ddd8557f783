"""The database of a store: SQLite in a state directory, or PostgreSQL by URL."""

from __future__ import annotations

import os
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

from tenantry_runtime.errors import ConfigurationError

from .migrate import upgrade_postgresql, upgrade_sqlite

DATABASE_FILE = "tenantry.db"

BUSY_TIMEOUT_MS = 5_000
"""How long a writer waits for another in SQLite; every transaction here is a few statements."""

SCHEMES = ("postgresql://", "postgres://")
"""What a URL begins with."""


class Database:
    """Transactions on tables, the same on either. Made by `open_database`; safe to share between tasks."""

    def __init__(self, engine: AsyncEngine, *, now_ms: Callable[[], int]) -> None:
        self._engine = engine
        self._writing = engine.execution_options(writes=True)
        self.now_ms = now_ms
        """Unix time in milliseconds."""

    @property
    def is_sqlite(self) -> bool:
        return self._engine.dialect.name == "sqlite"

    def connect(self) -> AbstractAsyncContextManager[AsyncConnection]:
        """Open a connection to read from."""
        return self._engine.connect()

    def begin(self) -> AbstractAsyncContextManager[AsyncConnection]:
        """Open a transaction, which leaving the block commits, or rolls back after an error.

        In SQLite there is one at a time: it takes the lock that writers need when it begins.
        """
        return self._writing.begin()

    def insert(self, table: sa.Table) -> sqlite.Insert | postgresql.Insert:
        """Return an insert that knows `on_conflict_do_nothing` and `on_conflict_do_update`."""
        return sqlite.insert(table) if self.is_sqlite else postgresql.insert(table)

    async def check(self) -> None:
        """Raise `ConfigurationError` unless the database answers."""
        try:
            async with self.connect() as connection:
                await connection.execute(sa.select(1))
        except (sa.exc.DBAPIError, OSError) as error:
            raise ConfigurationError(f"the store is unusable: {_reason(error)}") from error


@asynccontextmanager
async def open_database(
    state_dir: Path, *, url: str | None = None, now_ms: Callable[[], int] | None = None
) -> AsyncIterator[Database]:
    """Open the database that a URL names, or else the one in a directory; migrate it as needed.

    Of files, only the owner can read them. Raises `ConfigurationError` for a directory or a
    database that cannot be used.
    """
    engine = await _sqlite(state_dir) if url is None else await _postgresql(url)
    try:
        yield Database(engine, now_ms=now_ms or _unix_ms)
    finally:
        await engine.dispose()


async def _sqlite(state_dir: Path) -> AsyncEngine:
    path = state_dir / DATABASE_FILE
    try:
        _make_private(path)
        await upgrade_sqlite(path)
    except OSError as error:
        raise ConfigurationError(f"the state directory {state_dir} is unusable: {error}") from error
    engine = create_async_engine(sa.URL.create("sqlite+aiosqlite", database=str(path)))
    sa.event.listen(engine.sync_engine, "connect", _configure)
    sa.event.listen(engine.sync_engine, "begin", _begin)
    return engine


async def _postgresql(url: str) -> AsyncEngine:
    if not url.startswith(SCHEMES):
        raise ConfigurationError("a store's URL begins with postgresql://")
    try:
        parsed = sa.make_url(url).set(drivername="postgresql+asyncpg")
    except sa.exc.ArgumentError as error:
        raise ConfigurationError("the store's URL cannot be read") from error
    engine = create_async_engine(parsed, pool_pre_ping=True)
    try:
        await upgrade_postgresql(engine)
    except BaseException:
        await engine.dispose()
        raise
    return engine


def _make_private(path: Path) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    # SQLite gives its -wal and -shm files the mode of the database
    os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
    os.chmod(path, 0o600)


# Any: the DBAPI connection, adapted by SQLAlchemy, has no public type
def _configure(connection: Any, _record: object) -> None:
    # the driver would begin at the first write, too late for the lock; `_begin` does it instead
    connection.isolation_level = None
    cursor = connection.cursor()
    for pragma in (
        "journal_mode = WAL",
        "synchronous = NORMAL",
        "foreign_keys = ON",
        f"busy_timeout = {BUSY_TIMEOUT_MS}",
    ):
        cursor.execute(f"PRAGMA {pragma}")
    cursor.close()


def _begin(connection: sa.Connection) -> None:
    writes = connection.get_execution_options().get("writes", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


def _reason(error: Exception) -> object:
    return error.orig if isinstance(error, sa.exc.DBAPIError) else error


def _unix_ms() -> int:
    return time.time_ns() // 1_000_000
