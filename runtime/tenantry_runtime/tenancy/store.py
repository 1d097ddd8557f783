"""The store: what the database keeps of who may call."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from pathlib import Path

import sqlalchemy as sa

from tenantry_runtime.errors import StoreUnavailable

from . import schema
from .accounts import Account, Accounts
from .batches import Batches
from .database import Database, open_database
from .incidents import IncidentStore
from .kv import KeyValues
from .plans import Plans
from .tokens import NewToken, Scope, Tokens


class Store:
    """Made by `open_store`; safe to share between tasks."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.accounts = Accounts(database)
        self.plans = Plans(database)
        self.tokens = Tokens(database)
        self.incidents = IncidentStore(database)
        self.batches = Batches(database)
        self.kv = KeyValues(database)

    async def check(self) -> None:
        """Raise `StoreUnavailable` unless the store answers, with its tables."""
        try:
            async with self.database.connect() as connection:
                await connection.execute(sa.select(schema.accounts.c.id).limit(1))
        except sa.exc.DBAPIError as error:
            raise StoreUnavailable(str(error.orig)) from error

    async def create_account(self, account: str, *, name: str | None = None) -> Account:
        """Create an account without limits, or return the one that exists."""
        return await self.accounts.ensure(account, name=name)

    async def create_token(
        self, account: str, *, name: str, scopes: Iterable[str] = (Scope.RUN,)
    ) -> NewToken:
        """Create a token of an account that has no end."""
        return await self.tokens.create(account, name=name, scopes=scopes)

    async def revoke_token(self, token_id: str) -> bool:
        """Revoke a token for good; False if there is none that is not revoked."""
        return await self.tokens.revoke(token_id)


@asynccontextmanager
async def open_store(
    state_dir: Path, *, url: str | None = None, now_ms: Callable[[], int] | None = None
) -> AsyncIterator[Store]:
    """Open the store of a database, as `open_database` does."""
    async with open_database(state_dir, url=url, now_ms=now_ms) as database:
        yield Store(database)
