"""Workers that this edge can run: what their versions depend on is on its disk before they are named.

Another edge may have resolved a version's dependencies. They are in its lock, and are installed here when
the worker is first asked for.
"""

from __future__ import annotations

import logging

from tenantry_runtime.core import TenantId
from tenantry_runtime.errors import NoSuchRecord, TenantryError
from tenantry_runtime.tenancy.workers import Deployed, WorkerStore
from tenantry_runtime.workers.bundles.dependencies import Dependencies, DependencySet
from tenantry_runtime.workers.spec import WorkerVersion

from .worker_routes import Directory

_log = logging.getLogger(__name__)


class InstalledWorkers:
    """A `worker_routes.Source` over the store."""

    def __init__(self, store: WorkerStore, dependencies: Dependencies) -> None:
        self._store = store
        self._dependencies = dependencies

    async def current(self, account: TenantId, worker: str) -> Deployed:
        """Return what answers now, as `WorkerStore.current` does."""
        deployed = await self._store.current(account, worker)
        for version, _ in deployed.versions:
            await self._install(version)
        return deployed

    async def by_route(self, host: str, path: str) -> tuple[TenantId, str] | None:
        """Return whose worker a host and a path lead to."""
        return await self._store.by_route(host, path)

    async def _install(self, version: WorkerVersion) -> None:
        if not version.dependencies:
            return
        wanted = DependencySet(digest=version.dependencies, lock=version.lock)
        try:
            await self._dependencies.ensure(wanted)
        except TenantryError as error:
            # its isolates cannot start, which its own log says; others of the deployment can
            _log.error("%s %s cannot start: %s", version.worker, version.version_id, error)


class KnownVersions:
    """What of a worker answers its tenant's other workers: what answers requests, as it is remembered."""

    def __init__(self, directory: Directory) -> None:
        self._directory = directory

    async def resolve(self, account: TenantId, worker: str, entropy: float) -> WorkerVersion:
        """Return a version; the directory draws which. Raises `NoSuchRecord`, `AccountSuspended`."""
        version = await self._directory.version(account, worker)
        if version is None:
            raise NoSuchRecord("worker", worker)
        return version
