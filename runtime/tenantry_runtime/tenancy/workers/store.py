"""Everything that the database keeps of workers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tenantry_runtime.core import TenantId
from tenantry_runtime.tenancy.database import Database
from tenantry_runtime.tenancy.secret_keys import KeySource
from tenantry_runtime.workers.spec import WorkerVersion

from .blobs import BlobStore
from .deployments import Deployments
from .records import Deployed, WorkerSchedule
from .scripts import Scripts
from .secrets import WorkerSecrets
from .triggers import Triggers
from .versions import Versions


class WorkerStore:
    """The workers of all tenants; safe to share between tasks."""

    def __init__(
        self,
        database: Database,
        keys: KeySource,
        *,
        domains: Mapping[TenantId, Sequence[str]] | None = None,
    ) -> None:
        """`domains`: at and below which an account may have routes, besides `<account>.localhost`."""
        self.database = database
        self.blobs = BlobStore(database)
        self.scripts = Scripts(database, self.blobs)
        self.secrets = WorkerSecrets(database, keys)
        self.versions = Versions(database, self.secrets, self.blobs)
        self.deployments = Deployments(database)
        self.triggers = Triggers(database, domains or {})

    async def current(self, account: TenantId, worker: str) -> Deployed:
        """Return what of a worker answers now: whoever keeps it is that much behind.

        Raises `NoSuchRecord` for a worker that is not there or not deployed, `AccountSuspended`.
        """
        return await self.deployments.current(account, worker)

    async def resolve(self, account: TenantId, worker: str, entropy: float) -> WorkerVersion:
        """Return the version that answers, for a number from 0 (included) to 1 (not).

        Raises as `current` does.
        """
        return (await self.current(account, worker)).choose(entropy)

    async def by_route(self, host: str, path: str) -> tuple[TenantId, str] | None:
        """Return account and name of the worker that a host, without a port, and a path lead to."""
        return await self.triggers.by_route(host, path)

    async def schedules(self) -> list[WorkerSchedule]:
        """Return the cron triggers of all workers that can run."""
        return await self.triggers.schedules()
