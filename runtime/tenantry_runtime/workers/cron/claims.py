"""Which edge runs a trigger: the one whose claim the store takes first."""

from __future__ import annotations

import sqlalchemy as sa

from tenantry_runtime.core import TenantId
from tenantry_runtime.tenancy.database import Database
from tenantry_runtime.tenancy.schema import worker_cron_claims as claims


class StoredClaims:
    """Claims of all edges of a store."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def claim(self, account: TenantId, worker: str, cron: str, due_ms: int) -> bool:
        """Take on a trigger's time; False where that one, or a later one, is taken.

        Raises `StoreUnavailable`, and then nobody knows whether it is.
        """
        row = {"account_id": account, "worker": worker, "cron": cron, "due_ms": due_ms}
        insert = self._database.insert(claims).values(row)
        later = insert.on_conflict_do_update(
            index_elements=[claims.c.account_id, claims.c.worker, claims.c.cron],
            set_={"due_ms": due_ms},
            where=claims.c.due_ms < due_ms,
        )
        async with self._database.begin() as connection:
            return (await connection.execute(later)).rowcount > 0

    async def forget(self, older_than_ms: int) -> None:
        """Drop what was claimed for times that nobody claims any more."""
        async with self._database.begin() as connection:
            await connection.execute(sa.delete(claims).where(claims.c.due_ms < older_than_ms))
