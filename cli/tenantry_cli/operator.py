"""What all commands of an operator share: which store they work on, and how they end."""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from .installed import require_packages, runtime_imports

if TYPE_CHECKING:
    # a base install lacks what it imports
    from tenantry_runtime.tenancy import Store

STORE_PACKAGES = ("sqlalchemy", "alembic", "aiosqlite", "asyncpg")

STORE_VARIABLE = "TENANTRY_STORE"

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class StoreAddress:
    """Where the store is. Not to be printed: the URL may hold a password."""

    state_dir: Path
    url: str | None
    """Of PostgreSQL; None: SQLite in `state_dir`."""


def store_option(command: Callable[..., T]) -> Callable[..., T]:
    """Add `--store`, as `store_url`."""
    return click.option(
        "--store",
        "store_url",
        metavar="URL",
        envvar=STORE_VARIABLE,
        help=f"postgresql://USER@HOST/DATABASE instead of SQLite; else the URL in {STORE_VARIABLE}.",
    )(command)


def store_options(command: Callable[..., T]) -> Callable[..., T]:
    """Add `--state-dir` and `--store` to a command, which gets `store_at`, a `StoreAddress`."""

    @click.option(
        "--state-dir",
        type=click.Path(file_okay=False, path_type=Path),
        default=Path(".tenantry"),
        show_default=True,
        help="Where the store lies, unless it is PostgreSQL.",
    )
    @store_option
    @functools.wraps(command)
    # Any: as click calls it, by the names of its options
    def with_address(*args: Any, state_dir: Path, store_url: str | None, **options: Any) -> T:
        store_at = StoreAddress(state_dir=state_dir, url=store_url or None)
        return command(*args, store_at=store_at, **options)

    return with_address


def use_store(
    store_at: StoreAddress, work: Callable[[Store], Awaitable[T]], *, makes: bool = False
) -> T:
    """Open the store, do the work, and return what it returns.

    What the runtime refuses ends the command in one line, and so does a store that is not there,
    unless the command `makes` it.
    """
    require_packages(STORE_PACKAGES)
    with runtime_imports():
        import anyio

        from tenantry_runtime.errors import TenantryError
        from tenantry_runtime.tenancy import open_store
        from tenantry_runtime.tenancy.database import DATABASE_FILE

    if store_at.url is None and not makes and not (store_at.state_dir / DATABASE_FILE).exists():
        raise click.ClickException(
            f"there is no store in {store_at.state_dir}: name its directory with --state-dir or its "
            "URL with --store; `workerctl tenant create` makes one"
        )

    async def open_and_work() -> T:
        async with open_store(store_at.state_dir, url=store_at.url) as store:
            return await work(store)

    try:
        return anyio.run(open_and_work)
    except TenantryError as error:
        raise click.ClickException(" ".join(str(error).split())) from error
