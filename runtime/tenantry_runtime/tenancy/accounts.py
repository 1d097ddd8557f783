"""Accounts, as the database keeps them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from tenantry_runtime.core import TenantId
from tenantry_runtime.errors import NoSuchRecord, RecordExists

from . import schema
from .database import Database
from .names import check_id, check_name
from .plan import Plan
from .plans import DEFAULT_PLAN, terms_of
from .terms import Changes, changed, to_plan


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    id: TenantId
    name: str
    created_ms: int
    plan_id: str
    overrides: dict[str, Any]
    """What differs from the plan, key by key (`tenancy.terms`)."""
    terms: Plan
    """What holds: the plan's with the overrides."""
    suspended_ms: int | None
    deleted_ms: int | None


class Accounts:
    """What `workerctl tenant` works on. An id is used once, for good: usage is known by it."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def create(
        self,
        account: str,
        *,
        name: str | None = None,
        plan_id: str = DEFAULT_PLAN,
        changes: Changes | None = None,
    ) -> Account:
        """Create an account; `changes` are to the plan's terms, for it alone.

        Raises `InvalidInput`, `NoSuchRecord` for the plan, or `RecordExists`, also for an account
        that is deleted.
        """
        name = account if name is None else name
        check_id("account", account)
        check_name(name)
        async with self._database.begin() as connection:
            terms = await terms_of(connection, plan_id)
            overrides = changed({}, changes or {}, plan=terms)
            to_plan(terms, overrides)
            row = {
                "id": account,
                "name": name,
                "created_ms": self._database.now_ms(),
                "plan_id": plan_id,
                "overrides": overrides,
            }
            insert = self._database.insert(schema.accounts).values(row).on_conflict_do_nothing()
            if (await connection.execute(insert)).rowcount == 0:
                raise _taken(await _get(connection, account))
        return await self.get(account)

    async def ensure(self, account: str, *, name: str | None = None) -> Account:
        """Create an account, or return the one that exists; raise `RecordExists` if it is deleted."""
        try:
            return await self.create(account, name=name)
        except RecordExists:
            found = await self.get(account)
            if found.deleted_ms is not None:
                raise
            return found

    async def list(self, *, deleted: bool = False) -> list[Account]:
        """Return all by id, those that are deleted too if asked for."""
        wanted = _selection().order_by(schema.accounts.c.id)
        if not deleted:
            wanted = wanted.where(schema.accounts.c.deleted_ms.is_(None))
        async with self._database.connect() as connection:
            found = await connection.execute(wanted)
        return [_account(row) for row in found.mappings()]

    async def get(self, account: str) -> Account:
        """Return one, deleted or not, or raise `NoSuchRecord`."""
        async with self._database.connect() as connection:
            return await _get(connection, account)

    async def change(
        self,
        account: str,
        *,
        name: str | None = None,
        plan_id: str | None = None,
        changes: Changes | None = None,
    ) -> Account:
        """Change an account, from its next request on.

        Raises `InvalidInput`, or `NoSuchRecord` for the account or the plan.
        """
        if name is not None:
            check_name(name)
        async with self._database.begin() as connection:
            found = await _get(connection, account, changes=True)
            plan_id = plan_id or found.plan_id
            terms = await terms_of(connection, plan_id)
            overrides = changed(found.overrides, changes or {}, plan=terms)
            to_plan(terms, overrides)
            await _update(
                connection,
                account,
                name=name or found.name,
                plan_id=plan_id,
                overrides=overrides,
            )
        return await self.get(account)

    async def suspend(self, account: str) -> Account:
        """Refuse an account's requests from now on; what runs is not ended."""
        async with self._database.begin() as connection:
            found = await _get(connection, account, changes=True)
            if found.suspended_ms is None:
                await _update(connection, account, suspended_ms=self._database.now_ms())
        return await self.get(account)

    async def resume(self, account: str) -> Account:
        """Undo `suspend`."""
        async with self._database.begin() as connection:
            await _get(connection, account, changes=True)
            await _update(connection, account, suspended_ms=None)
        return await self.get(account)

    async def delete(self, account: str) -> None:
        """End an account for good: its tokens are revoked, secrets and workers gone, its usage kept."""
        tokens, secrets = schema.tokens, schema.secrets
        async with self._database.begin() as connection:
            await _get(connection, account, changes=True)
            now_ms = self._database.now_ms()
            await _update(connection, account, deleted_ms=now_ms)
            await connection.execute(
                sa.update(tokens)
                .where(tokens.c.account_id == account, tokens.c.revoked_ms.is_(None))
                .values(revoked_ms=now_ms)
            )
            await connection.execute(sa.delete(secrets).where(secrets.c.account_id == account))
            await connection.execute(
                sa.delete(schema.workers).where(schema.workers.c.account_id == account)
            )


async def require_account(connection: AsyncConnection, account: str) -> None:
    """Raise `NoSuchRecord` unless there is one; it is not deleted before the transaction ends."""
    accounts = schema.accounts
    wanted = (
        sa.select(accounts.c.id)
        .where(accounts.c.id == account, accounts.c.deleted_ms.is_(None))
        .with_for_update(read=True)
    )
    if (await connection.execute(wanted)).one_or_none() is None:
        raise no_account(account)


def no_account(account: str) -> NoSuchRecord:
    return NoSuchRecord("account", account, "`workerctl tenant list` lists them")


def _selection() -> sa.Select[tuple[Any, ...]]:
    plans = schema.plans
    return sa.select(schema.accounts, plans.c.terms).join(plans)


async def _get(connection: AsyncConnection, account: str, *, changes: bool = False) -> Account:
    """Return an account. One that `changes` it holds it until the transaction ends, if not deleted."""
    accounts = schema.accounts
    wanted = _selection().where(accounts.c.id == account)
    if changes:
        wanted = wanted.where(accounts.c.deleted_ms.is_(None)).with_for_update(of=accounts)
    row = (await connection.execute(wanted)).mappings().one_or_none()
    if row is None:
        raise no_account(account)
    return _account(row)


# Any: whatever the columns hold
async def _update(connection: AsyncConnection, account: str, **values: Any) -> None:
    accounts = schema.accounts
    await connection.execute(sa.update(accounts).where(accounts.c.id == account).values(**values))


def _account(row: sa.RowMapping) -> Account:
    return Account(**{**row, "terms": to_plan(row["terms"], row["overrides"])})


def _taken(found: Account) -> RecordExists:
    if found.deleted_ms is None:
        return RecordExists("account", found.id)
    return RecordExists("account", found.id, "is deleted, and its usage is kept")
