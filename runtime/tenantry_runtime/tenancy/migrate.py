"""Bringing the store's tables to the newest revision when it is opened."""

from __future__ import annotations

import fcntl
from pathlib import Path

import anyio.to_thread
import sqlalchemy as sa
from alembic import command
from alembic.config import Config
from alembic.util import CommandError

from tenantry_runtime.errors import ConfigurationError

MIGRATIONS = Path(__file__).parent / "migrations"


async def upgrade(path: Path) -> None:
    """Run the migrations that a database lacks; processes that start at once take turns.

    Raises `ConfigurationError` for a file that is no database of this program, or of a newer one.
    """
    await anyio.to_thread.run_sync(_upgrade, path)


def _upgrade(path: Path) -> None:
    engine = sa.create_engine(sa.URL.create("sqlite", database=str(path)))
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    try:
        with path.with_suffix(".lock").open("w") as lock, engine.begin() as connection:
            fcntl.flock(lock, fcntl.LOCK_EX)
            config.attributes["connection"] = connection
            command.upgrade(config, "head")
    except CommandError as error:
        raise ConfigurationError(f"{path} is of another version: {error}") from error
    except sa.exc.DBAPIError as error:
        raise ConfigurationError(f"{path} is unusable: {error.orig}") from error
    finally:
        engine.dispose()
