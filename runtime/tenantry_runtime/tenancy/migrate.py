"""Bringing the store's tables to the newest revision when it is opened."""

from __future__ import annotations

import fcntl
from pathlib import Path

import anyio.to_thread
import sqlalchemy as sa
from alembic import command
from alembic.config import Config
from alembic.util import CommandError
from sqlalchemy.ext.asyncio import AsyncEngine

from tenantry_runtime.errors import ConfigurationError

MIGRATIONS = Path(__file__).parent / "migrations"

_LOCK = 0x74656E616E747279
"""PostgreSQL's advisory lock of whoever migrates."""


async def upgrade_sqlite(path: Path) -> None:
    """Run the migrations that a file lacks; processes that start at once take turns.

    Raises `ConfigurationError` for a file that is no database of this program, or of a newer one.
    """
    await anyio.to_thread.run_sync(_upgrade_sqlite, path)


async def upgrade_postgresql(engine: AsyncEngine, *, name: str) -> None:
    """Run the migrations that a database lacks, as `upgrade_sqlite` does; `name` is for messages."""
    try:
        async with engine.begin() as connection:
            await connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_LOCK)))
            await connection.run_sync(_upgrade)
    except CommandError as error:
        raise ConfigurationError(f"{name} is of another version: {error}") from error
    except sa.exc.DBAPIError as error:
        raise ConfigurationError(f"{name} is unusable: {error.orig}") from error
    except OSError as error:
        raise ConfigurationError(
            f"{name} cannot be reached: {str(error) or 'no answer in time'}"
        ) from error


def _upgrade_sqlite(path: Path) -> None:
    # a connection of its own, without foreign keys: a table that is altered is made anew
    engine = sa.create_engine(sa.URL.create("sqlite", database=str(path)))
    try:
        with path.with_suffix(".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            with engine.connect() as connection:
                # here, where others wait: two connections that change the mode at once may both fail
                connection.exec_driver_sql("PRAGMA journal_mode = WAL")
            with engine.begin() as connection:
                _upgrade(connection)
    except CommandError as error:
        raise ConfigurationError(f"{path} is of another version: {error}") from error
    except sa.exc.DBAPIError as error:
        raise ConfigurationError(f"{path} is unusable: {error.orig}") from error
    finally:
        engine.dispose()


def _upgrade(connection: sa.Connection) -> None:
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    config.attributes["connection"] = connection
    command.upgrade(config, "head")
