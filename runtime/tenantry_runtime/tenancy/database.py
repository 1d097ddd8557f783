"""The database of a store: SQLite in a state directory, or PostgreSQL by URL."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine
from sqlalchemy.pool import ConnectionPoolEntry

from tenantry_runtime.durable import sync
from tenantry_runtime.errors import ConfigurationError, StoreUnavailable
from tenantry_runtime.store_url import check_store_url, shown_store_url

from .migrate import upgrade_postgresql, upgrade_sqlite

DATABASE_FILE = "tenantry.db"

_log = logging.getLogger(__name__)

BUSY_TIMEOUT_MS = 5_000
"""How long a writer waits for another in SQLite; every transaction here is a few statements."""

NUM_CONNECTIONS = 16
"""Of one process to PostgreSQL. Its server takes 100 by default, of all edges together."""

CLOSE_S = 5.0
"""That closing may take."""
CONNECT_TIMEOUT_S = 5.0
STATEMENT_TIMEOUT_S = 30.0

PAUSED_TRANSACTION_S = 10.0
"""A process that stands still in the middle of a transaction loses it, and others its locks."""

RESTED_S = 1.0
"""A connection that has rested for so long is tried before it is used: its server may be gone. One in
steady use is not, which would double the time of a statement."""


class Database:
    """Transactions on tables, the same on either. Made by `open_database`; safe to share between tasks."""

    def __init__(self, engine: AsyncEngine, *, now_ms: Callable[[], int]) -> None:
        self._reading = engine
        if engine.dialect.name == "postgresql":
            # a statement that reads needs no transaction around it, which would be two more round trips
            self._reading = engine.execution_options(isolation_level="AUTOCOMMIT")
        self._writing = engine.execution_options(writes=True)
        self._is_answering = True
        self.now_ms = now_ms
        """Unix time in milliseconds."""

    @property
    def is_sqlite(self) -> bool:
        return self._writing.dialect.name == "sqlite"

    @asynccontextmanager
    async def connect(self) -> AsyncIterator[AsyncConnection]:
        """Open a connection to read from; each statement sees what is committed when it runs.

        Raises `StoreUnavailable` when the database does not answer, inside the block too.
        """
        with self._answering(), self._undivided():
            async with self._reading.connect() as connection:
                yield connection

    @asynccontextmanager
    async def begin(self) -> AsyncIterator[AsyncConnection]:
        """Open a transaction, which leaving the block commits, or rolls back after an error.

        In SQLite there is one at a time: it takes the lock that writers need when it begins. Raises
        `StoreUnavailable` as `connect` does; whether what was asked is committed is then unknown.
        """
        with self._answering(), self._undivided():
            async with self._writing.begin() as connection:
                yield connection

    def _undivided(self) -> anyio.CancelScope:
        """Keep a cancellation until the end of a block, where the driver cannot bear it.

        That of SQLite may never end a connection of which a statement was canceled, and the process
        with it. A block is short: nothing in SQLite waits for longer than `BUSY_TIMEOUT_MS`.
        """
        return anyio.CancelScope(shield=self.is_sqlite)

    def insert(self, table: sa.Table) -> sqlite.Insert | postgresql.Insert:
        """Return an insert that knows `on_conflict_do_nothing` and `on_conflict_do_update`."""
        return sqlite.insert(table) if self.is_sqlite else postgresql.insert(table)

    async def harden(self) -> None:
        """Return when all that has been committed outlives a crash of the machine.

        PostgreSQL commits nothing otherwise. SQLite leaves the end of its log to the kernel, which
        keeps it when processes die.
        """
        if self.is_sqlite:
            await anyio.to_thread.run_sync(
                _sync_if_there, Path(f"{self._writing.url.database}-wal")
            )

    @contextmanager
    def _answering(self) -> Iterator[None]:
        """Raise `StoreUnavailable` for what a database raises that does not answer, or not now."""
        try:
            yield
        except (sa.exc.OperationalError, sa.exc.InterfaceError) as error:
            raise self._unavailable(error.orig) from error
        except sa.exc.DBAPIError as error:
            # of no kind in particular: refused, broken off, or chosen as the victim of a deadlock
            if type(error) is not sa.exc.DBAPIError and not error.connection_invalidated:
                raise
            raise self._unavailable(error.orig) from error
        # no connection was free in time, or none came about
        except (sa.exc.TimeoutError, OSError) as error:
            raise self._unavailable(error) from error
        if not self._is_answering:
            self._is_answering = True
            _log.warning("the store answers again")

    def _unavailable(self, error: BaseException | None) -> StoreUnavailable:
        reason = str(error) or type(error).__name__
        # once, not for each of the requests that it fails
        if self._is_answering:
            self._is_answering = False
            _log.warning("the store does not answer: %s", reason)
        return StoreUnavailable(reason)


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
        await _close(engine)


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
    try:
        check_store_url(url)
    except ValueError as error:
        raise ConfigurationError(f"the store's URL {error}") from error
    engine = create_async_engine(
        "postgresql+asyncpg://",
        # the driver reads all that a URL may say, and asks the environment for what it does not
        connect_args={
            "dsn": url,
            "timeout": CONNECT_TIMEOUT_S,
            "command_timeout": STATEMENT_TIMEOUT_S,
            "server_settings": {
                "idle_in_transaction_session_timeout": str(round(PAUSED_TRANSACTION_S * 1000)),
            },
        },
        pool_size=NUM_CONNECTIONS,
        max_overflow=0,
        pool_timeout=CONNECT_TIMEOUT_S,
    )
    _watch(engine)
    try:
        await upgrade_postgresql(engine, name=shown_store_url(url))
    except BaseException:
        await _close(engine)
        raise
    return engine


async def _close(engine: AsyncEngine) -> None:
    """Close all connections, also for whoever is canceled: half closed they complain and linger."""
    with anyio.move_on_after(CLOSE_S, shield=True):
        await engine.dispose()


def _make_private(path: Path) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    # one that is there is not opened: to close a file drops all locks that this process has on it, those
    # of other connections of SQLite's too, whose log another process would then delete
    with suppress(FileExistsError):
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    # SQLite gives its -wal and -shm files the mode of the database
    os.chmod(path, 0o600)


def _watch(engine: AsyncEngine) -> None:
    """Have connections that have rested tried; one that is dead is replaced, and nobody hears of it."""
    dialect = engine.dialect

    # Any: the DBAPI connection, adapted by SQLAlchemy, has no public type
    def rest(_connection: Any, record: ConnectionPoolEntry) -> None:
        record.info["rests_since_s"] = time.monotonic()

    def wake(connection: Any, record: ConnectionPoolEntry, _proxy: object) -> None:
        now_s = time.monotonic()
        if now_s - record.info.get("rests_since_s", now_s) < RESTED_S:
            return
        try:
            dialect.do_ping(connection)
        except dialect.loaded_dbapi.Error as error:
            raise sa.exc.DisconnectionError from error

    sa.event.listen(engine.sync_engine, "checkin", rest)
    sa.event.listen(engine.sync_engine, "checkout", wake)


# Any: the DBAPI connection, adapted by SQLAlchemy, has no public type
def _configure(connection: Any, _record: object) -> None:
    # the driver would begin at the first write, too late for the lock; `_begin` does it instead
    connection.isolation_level = None
    cursor = connection.cursor()
    for pragma in (
        "synchronous = NORMAL",
        "foreign_keys = ON",
        f"busy_timeout = {BUSY_TIMEOUT_MS}",
    ):
        cursor.execute(f"PRAGMA {pragma}")
    cursor.close()


def _begin(connection: sa.Connection) -> None:
    # a statement that reads needs none
    if connection.get_execution_options().get("writes", False):
        connection.exec_driver_sql("BEGIN IMMEDIATE")


def _sync_if_there(path: Path) -> None:
    try:
        sync(path)
    except FileNotFoundError:
        # then all of it is in the database's own file, which SQLite has synced
        pass


def _unix_ms() -> int:
    return time.time_ns() // 1_000_000
