"""Deleting what nobody finds any more in namespaces of keys and values."""

from __future__ import annotations

import sqlalchemy as sa

from . import schema
from .database import Database
from .kv_schema import are, counted, entries, namespaces

MAX_PER_STEP = 200
"""Entries that one transaction deletes."""
MAX_STEPS = 20
"""Of one sweep, so that others come between."""


class KvSweeper:
    """Several may sweep at one time."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def sweep(self) -> int:
        """Delete some of what has expired, or was in a namespace that is deleted; return how much."""
        num_deleted = 0
        for step in (self._delete_expired, self._delete_namespace):
            for _ in range(MAX_STEPS):
                deleted = await step()
                num_deleted += deleted or 0
                if deleted is None:
                    break
        return num_deleted

    async def _delete_expired(self) -> int | None:
        """Delete expired entries of one namespace; None: there are none anywhere."""
        has_expired = entries.c.expires_ms <= self._database.now_ms()
        expired = sa.select(entries.c.namespace_id).where(has_expired)
        async with self._database.connect() as connection:
            found = await connection.execute(expired.order_by(entries.c.expires_ms).limit(1))
            namespace_id = found.scalar_one_or_none()
        if namespace_id is None:
            return None
        async with self._database.begin() as connection:
            row = sa.select(namespaces.c.id).where(namespaces.c.id == namespace_id)
            await connection.execute(row.with_for_update(key_share=True))
            some = (
                sa.select(entries.c.key, entries.c.num_bytes)
                .where(entries.c.namespace_id == namespace_id, has_expired)
                .order_by(entries.c.key)
                .limit(MAX_PER_STEP)
            )
            old = (await connection.execute(some)).all()
            theirs = are(namespace_id, [each.key for each in old])
            await connection.execute(sa.delete(entries).where(theirs))
            num_bytes = sum(each.num_bytes for each in old)
            await connection.execute(counted(namespace_id, -len(old), -num_bytes))
        return len(old)

    async def _delete_namespace(self) -> int | None:
        """Delete entries of one namespace that is deleted, and its row with the last of them."""
        accounts = schema.accounts
        is_gone = sa.or_(namespaces.c.title.is_(None), accounts.c.deleted_ms.is_not(None))
        gone = (
            sa.select(namespaces.c.id)
            .join(accounts)
            .where(is_gone)
            .order_by(namespaces.c.id)
            .limit(1)
            # who sweeps the same just now need not be waited for
            .with_for_update(of=namespaces, skip_locked=True)
        )
        async with self._database.begin() as connection:
            namespace_id = (await connection.execute(gone)).scalar_one_or_none()
            if namespace_id is None:
                return None
            mine = sa.select(entries.c.key).where(entries.c.namespace_id == namespace_id)
            some = (await connection.execute(mine.limit(MAX_PER_STEP))).scalars().all()
            await connection.execute(sa.delete(entries).where(are(namespace_id, some)))
            if len(some) < MAX_PER_STEP:
                await connection.execute(
                    sa.delete(namespaces).where(namespaces.c.id == namespace_id)
                )
        return len(some)
