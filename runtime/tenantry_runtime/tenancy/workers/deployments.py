"""Deployments: which versions of a worker answer, and what answers now."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

import sqlalchemy as sa

from tenantry_runtime.core import TenantId
from tenantry_runtime.errors import AccountSuspended, NoSuchRecord
from tenantry_runtime.tenancy import schema
from tenantry_runtime.tenancy.database import Database
from tenantry_runtime.workers.spec import WorkerVersion

from .changes import deploy, load_deployments
from .names import can_be_known
from .records import Deployed, Deployment, Notes, Share
from .rows import (
    deployments,
    load_versions,
    lock_worker,
    no_worker,
    require_worker,
    to_shares,
    to_worker,
    versions,
    workers,
)

MAX_KNOWN = 1024
"""Versions that are kept in memory: they never change."""


class Deployments:
    """What `WorkerStore.deployments` is."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._known: OrderedDict[str, WorkerVersion] = OrderedDict()

    async def deploy(
        self, account: TenantId, name: str, shares: Sequence[Share], notes: Notes
    ) -> Deployment:
        """Let versions of a worker answer from now on; percentages are 100 together.

        Raises `InvalidInput`, or `NoSuchRecord` for the worker or a version.
        """
        async with self._database.begin() as connection:
            worker = await lock_worker(connection, account, name)
            return await deploy(connection, self._database, worker, shares, notes)

    async def list(self, account: TenantId, name: str) -> list[Deployment]:
        """Return the deployments that are kept, the latest, which is in force, first."""
        async with self._database.connect() as connection:
            worker = await require_worker(connection, account, name)
            return await load_deployments(connection, worker)

    async def current(self, account: TenantId, name: str) -> Deployed:
        """Return what answers now.

        Raises `NoSuchRecord` for a worker that is not there or has no deployment, and
        `AccountSuspended`.
        """
        if not can_be_known(account, name):
            raise no_worker(name)
        wanted = (
            sa.select(
                workers,
                deployments.c.id.label("deployment_id"),
                deployments.c.shares,
                schema.accounts.c.suspended_ms,
            )
            .select_from(workers.join(deployments).join(schema.accounts))
            .where(
                workers.c.account_id == account,
                workers.c.name == name,
                schema.accounts.c.deleted_ms.is_(None),
            )
            .order_by(deployments.c.number.desc())
            .limit(1)
        )
        async with self._database.connect() as connection:
            row = (await connection.execute(wanted)).mappings().one_or_none()
        if row is None:
            raise no_worker(name)
        if row["suspended_ms"] is not None:
            raise AccountSuspended
        shares = to_shares(row["shares"])
        known = await self._versions([share.version_id for share in shares])
        return Deployed(
            worker=to_worker(row),
            deployment_id=row["deployment_id"],
            versions=tuple((known[share.version_id], share.percentage) for share in shares),
        )

    async def _versions(self, version_ids: Sequence[str]) -> dict[str, WorkerVersion]:
        missing = [each for each in version_ids if each not in self._known]
        if missing:
            async with self._database.connect() as connection:
                loaded = await load_versions(connection, versions.c.id.in_(missing))
            self._known.update({each.version.version_id: each.version for each in loaded})
        for version_id in version_ids:
            if version_id not in self._known:
                # deleted since, with its worker
                raise NoSuchRecord("version", version_id)
            self._known.move_to_end(version_id)
        found = {version_id: self._known[version_id] for version_id in version_ids}
        while len(self._known) > MAX_KNOWN:
            self._known.popitem(last=False)
        return found
