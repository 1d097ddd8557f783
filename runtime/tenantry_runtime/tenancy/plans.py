"""Plans, as the database keeps them."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from tenantry_runtime.errors import InvalidInput, NoSuchRecord, RecordExists, RecordInUse

from . import schema
from .database import Database
from .names import check_id
from .plan import Plan
from .terms import Changes, Document, changed, to_plan

DEFAULT_PLAN = "unlimited"
"""Of accounts that name none. The migrations make it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredPlan:
    id: str
    terms: Plan
    created_ms: int
    num_accounts: int
    """That have it and are not deleted."""


class Plans:
    """What `workerctl plan` works on."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def create(self, plan_id: str, changes: Changes) -> StoredPlan:
        """Create a plan from what differs from no limits at all.

        Raises `InvalidInput` or `RecordExists`.
        """
        check_id("plan", plan_id)
        row = {
            "id": plan_id,
            "terms": _document(to_plan(changed({}, changes))),
            "created_ms": self._database.now_ms(),
        }
        insert = self._database.insert(schema.plans).values(row).on_conflict_do_nothing()
        async with self._database.begin() as connection:
            if (await connection.execute(insert)).rowcount == 0:
                raise RecordExists("plan", plan_id)
        return await self.get(plan_id)

    async def list(self) -> list[StoredPlan]:
        """Return all, by id."""
        async with self._database.connect() as connection:
            found = await connection.execute(_selection().order_by(schema.plans.c.id))
        return [_plan(row) for row in found.mappings()]

    async def get(self, plan_id: str) -> StoredPlan:
        """Return one, or raise `NoSuchRecord`."""
        async with self._database.connect() as connection:
            found = await connection.execute(_selection().where(schema.plans.c.id == plan_id))
        row = found.mappings().one_or_none()
        if row is None:
            raise _no_plan(plan_id)
        return _plan(row)

    async def change(self, plan_id: str, changes: Changes) -> StoredPlan:
        """Change a plan for all accounts that have it, from their next request on.

        Raises `NoSuchRecord`, and `InvalidInput` also where an account's exceptions do not fit.
        """
        plans = schema.plans
        async with self._database.begin() as connection:
            terms = changed(await terms_of(connection, plan_id, changes=True), changes)
            document = _document(to_plan(terms))
            await _check_accounts(connection, plan_id, document)
            await connection.execute(
                sa.update(plans).where(plans.c.id == plan_id).values(terms=document)
            )
        return await self.get(plan_id)

    async def delete(self, plan_id: str) -> None:
        """Delete a plan that no account has, or raise `RecordInUse` or `NoSuchRecord`."""
        if plan_id == DEFAULT_PLAN:
            raise RecordInUse(
                "plan",
                plan_id,
                "is what accounts get that name none: it can be changed, not deleted",
            )
        plans, accounts = schema.plans, schema.accounts
        async with self._database.begin() as connection:
            await terms_of(connection, plan_id, changes=True)
            using = await connection.scalars(
                sa.select(accounts.c.id)
                .where(accounts.c.plan_id == plan_id, accounts.c.deleted_ms.is_(None))
                .order_by(accounts.c.id)
                .limit(1)
            )
            if (account := using.one_or_none()) is not None:
                raise RecordInUse(
                    "plan", plan_id, f"is that of account {account!r}; give it another one first"
                )
            # those that are deleted keep their rows, and need some plan
            await connection.execute(
                sa.update(accounts)
                .where(accounts.c.plan_id == plan_id)
                .values(plan_id=DEFAULT_PLAN)
            )
            await connection.execute(sa.delete(plans).where(plans.c.id == plan_id))


async def terms_of(
    connection: AsyncConnection, plan_id: str, *, changes: bool = False
) -> dict[str, object]:
    """Return a plan's document, or raise `NoSuchRecord`.

    It stays as it is until the transaction ends, and nobody else who `changes` it gets it.
    """
    wanted = (
        sa.select(schema.plans.c.terms)
        .where(schema.plans.c.id == plan_id)
        .with_for_update(read=not changes)
    )
    terms: dict[str, object] | None = (await connection.execute(wanted)).scalar_one_or_none()
    if terms is None:
        raise _no_plan(plan_id)
    return terms


async def _check_accounts(connection: AsyncConnection, plan_id: str, terms: Document) -> None:
    accounts = schema.accounts
    of_plan = await connection.execute(
        sa.select(accounts.c.id, accounts.c.overrides).where(
            accounts.c.plan_id == plan_id, accounts.c.deleted_ms.is_(None)
        )
    )
    for account, overrides in of_plan:
        try:
            to_plan(terms, overrides)
        except InvalidInput as error:
            raise InvalidInput(
                error.field, f"{error.problem}, with the exceptions of account {account!r}"
            ) from error


def _selection() -> sa.Select[tuple[object, ...]]:
    plans, accounts = schema.plans, schema.accounts
    num_accounts = (
        sa.select(sa.func.count())
        .select_from(accounts)
        .where(accounts.c.plan_id == plans.c.id, accounts.c.deleted_ms.is_(None))
        .scalar_subquery()
    )
    return sa.select(plans, num_accounts.label("num_accounts"))


def _plan(row: sa.RowMapping) -> StoredPlan:
    return StoredPlan(**{**row, "terms": to_plan(row["terms"])})


def _document(plan: Plan) -> dict[str, object]:
    document: dict[str, object] = msgspec.to_builtins(plan)
    return document


def _no_plan(plan_id: str) -> NoSuchRecord:
    return NoSuchRecord("plan", plan_id, "`workerctl plan list` lists them")
