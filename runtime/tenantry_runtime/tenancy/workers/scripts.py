"""Workers themselves: what holds for all their versions, and their end."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from tenantry_runtime.core import TenantId
from tenantry_runtime.errors import RecordInUse
from tenantry_runtime.tenancy.database import Database
from tenantry_runtime.workers.spec import ServiceBinding

from .blobs import BlobStore
from .names import can_be_known
from .records import Settings, Worker
from .rows import (
    deployments,
    load_versions,
    lock_worker,
    no_worker,
    to_shares,
    to_worker,
    versions,
    workers,
)


class Scripts:
    """What `WorkerStore.scripts` is."""

    def __init__(self, database: Database, blobs: BlobStore) -> None:
        self._database = database
        self._blobs = blobs

    async def list(self, account: TenantId) -> list[Worker]:
        """Return an account's workers, by name."""
        wanted = (
            sa.select(workers)
            .where(workers.c.account_id == account, _is_seen())
            .order_by(workers.c.name)
        )
        async with self._database.connect() as connection:
            return [to_worker(row) for row in (await connection.execute(wanted)).mappings()]

    async def get(self, account: TenantId, name: str) -> Worker:
        """Return one; raise `NoSuchRecord`."""
        if not can_be_known(account, name):
            raise no_worker(name)
        wanted = sa.select(workers).where(
            workers.c.account_id == account, workers.c.name == name, _is_seen()
        )
        async with self._database.connect() as connection:
            row = (await connection.execute(wanted)).mappings().one_or_none()
        if row is None:
            raise no_worker(name)
        return to_worker(row)

    async def set_url(
        self,
        account: TenantId,
        name: str,
        *,
        has_url: bool | None = None,
        has_preview_urls: bool | None = None,
    ) -> Worker:
        """Say whether a worker answers at its own name, and its versions at theirs; None: as it is."""
        async with self._database.begin() as connection:
            worker = await lock_worker(connection, account, name)
            values = {
                "has_url": worker.has_url if has_url is None else has_url,
                "has_preview_urls": (
                    worker.has_preview_urls if has_preview_urls is None else has_preview_urls
                ),
            }
            here = workers.c.id == worker.id
            await connection.execute(sa.update(workers).where(here).values(values))
        return await self.get(account, name)

    async def set_settings(self, account: TenantId, name: str, settings: Settings) -> Worker:
        """Replace a worker's settings."""
        async with self._database.begin() as connection:
            worker = await lock_worker(connection, account, name)
            values = {
                "settings": msgspec.to_builtins(settings),
                "modified_ms": self._database.now_ms(),
            }
            here = workers.c.id == worker.id
            await connection.execute(sa.update(workers).where(here).values(values))
        return await self.get(account, name)

    async def callers_of(self, account: TenantId, name: str) -> Sequence[str]:
        """Return the workers of the account that have this one as a service in what is deployed."""
        async with self._database.connect() as connection:
            return await self._callers_of(connection, account, name)

    async def delete(self, account: TenantId, name: str, *, force: bool = False) -> None:
        """End a worker, with its versions, secrets, routes and schedules.

        Raises `NoSuchRecord`, and `RecordInUse` where others call it and it is not forced.
        """
        async with self._database.begin() as connection:
            worker = await lock_worker(connection, account, name)
            callers = [] if force else await self._callers_of(connection, account, name)
            if callers:
                raise RecordInUse("worker", name, f"is called by {', '.join(callers)}")
            await connection.execute(sa.delete(workers).where(workers.c.id == worker.id))
        await self._blobs.collect()

    async def _callers_of(
        self, connection: AsyncConnection, account: TenantId, name: str
    ) -> Sequence[str]:
        latest = (
            sa.select(deployments.c.shares)
            .select_from(workers.join(deployments))
            .where(
                workers.c.account_id == account,
                workers.c.name != name,
                deployments.c.number == workers.c.num_deployments,
            )
        )
        shares = (await connection.execute(latest)).scalars().all()
        ids = [share.version_id for stored in shares for share in to_shares(stored)]
        deployed = await load_versions(connection, versions.c.id.in_(ids), has_files=False)
        return sorted(
            {
                each.version.worker
                for each in deployed
                for binding in each.version.bindings
                if isinstance(binding, ServiceBinding) and binding.service == name
            }
        )


def _is_seen() -> sa.ColumnElement[bool]:
    return sa.exists().where(
        versions.c.worker_id == workers.c.id, versions.c.startup_ms.is_not(None)
    )
