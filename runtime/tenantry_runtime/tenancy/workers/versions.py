"""Versions of workers: added once, seen when they have been imported once, never changed."""

from __future__ import annotations

import uuid
from collections.abc import Mapping

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from tenantry_runtime.core import TenantId
from tenantry_runtime.errors import InvalidInput, NoSuchRecord
from tenantry_runtime.tenancy.accounts import require_account
from tenantry_runtime.tenancy.database import Database
from tenantry_runtime.workers.spec import Binding, SecretBinding, WorkerVersion

from .blobs import BlobStore
from .changes import (
    Draft,
    add_version,
    create_worker,
    newest_version,
    next_number,
    secret_ids_of,
)
from .names import can_be_known, check_bindings, check_worker_name
from .records import NewVersion, Notes, StoredVersion, Worker, names_of
from .rows import load_versions, lock_worker, no_worker, require_worker, versions, workers
from .secrets import WorkerSecrets


class Versions:
    """What `WorkerStore.versions` is."""

    def __init__(self, database: Database, secrets: WorkerSecrets, blobs: BlobStore) -> None:
        self._database = database
        self._secrets = secrets
        self._blobs = blobs

    async def add(
        self, account: TenantId, name: str, new: NewVersion, notes: Notes
    ) -> WorkerVersion:
        """Add a version, and the worker if it is the first. Nobody sees it before `accept`.

        Raises `InvalidInput`, `NoSuchRecord` for the account, and what `WorkerSecrets` raises.
        """
        check_worker_name(name)
        async with self._database.begin() as connection:
            await require_account(connection, account)
            await create_worker(connection, self._database, account, name)
            worker = await lock_worker(connection, account, name)
            before = await newest_version(connection, worker, has_files=False)
            bindings = _bindings(new, before)
            check_bindings(bindings)
            source = before.version if before is not None and new.keeps_environment else new
            version = WorkerVersion(
                tenant=account,
                worker=name,
                version_id=str(uuid.uuid4()),
                number=await next_number(connection, worker),
                main_module=new.main_module,
                files=new.files,
                bindings=bindings,
                dependencies=source.dependencies,
                lock=source.lock,
                isolation=source.isolation,
                limits=new.limits,
                compatibility_date=new.compatibility_date,
                compatibility_flags=new.compatibility_flags,
                created_ms=self._database.now_ms(),
                tag=new.tag,
                message=new.message,
            )
            secret_ids = await self._secret_ids(connection, worker, new, version, before)
            draft = Draft(version=version, notes=notes, secret_ids=secret_ids, startup_ms=None)
            await add_version(connection, worker, draft)
        return version

    async def accept(self, version_id: str, startup_ms: float) -> None:
        """Let a version be seen, which has been imported."""
        async with self._database.begin() as connection:
            await connection.execute(
                sa.update(versions).where(versions.c.id == version_id).values(startup_ms=startup_ms)
            )
        # of versions that gave way to it, and of uploads that came to nothing
        await self._blobs.collect()

    async def discard(self, version_id: str) -> None:
        """Forget a version that cannot be imported, and its worker if it has no other."""
        ours = sa.select(versions.c.worker_id).where(versions.c.id == version_id)
        async with self._database.begin() as connection:
            worker_id = (await connection.execute(ours)).scalar_one_or_none()
            held = sa.select(workers.c.id).where(workers.c.id == worker_id).with_for_update()
            await connection.execute(held)
            await connection.execute(sa.delete(versions).where(versions.c.id == version_id))
            has_more = sa.exists().where(versions.c.worker_id == workers.c.id)
            await connection.execute(sa.delete(workers).where(workers.c.id == worker_id, ~has_more))

    async def get(self, account: TenantId, name: str, version_id: str) -> StoredVersion:
        """Return one; raise `NoSuchRecord` for the worker or the version."""
        async with self._database.connect() as connection:
            worker = await require_worker(connection, account, name)
            if not can_be_known(version_id):
                raise NoSuchRecord("version", version_id)
            found = await load_versions(
                connection,
                versions.c.worker_id == worker.id,
                versions.c.id == version_id,
                versions.c.startup_ms.is_not(None),
            )
        if not found:
            raise NoSuchRecord("version", version_id)
        return found[0]

    async def list(self, account: TenantId, name: str) -> list[StoredVersion]:
        """Return all that are kept, the newest first, without their files.

        Raises `NoSuchRecord` for the worker.
        """
        async with self._database.connect() as connection:
            worker = await require_worker(connection, account, name)
            return await load_versions(
                connection,
                versions.c.worker_id == worker.id,
                versions.c.startup_ms.is_not(None),
                has_files=False,
            )

    async def newest(
        self, account: TenantId, name: str, *, has_files: bool = True
    ) -> StoredVersion:
        """Return the newest; raise `NoSuchRecord` where there is none."""
        async with self._database.connect() as connection:
            worker = await require_worker(connection, account, name)
            found = await newest_version(connection, worker, has_files=has_files)
        if found is None:
            raise no_worker(name)
        return found

    async def _secret_ids(
        self,
        connection: AsyncConnection,
        worker: Worker,
        new: NewVersion,
        version: WorkerVersion,
        before: StoredVersion | None,
    ) -> Mapping[str, str]:
        kept: dict[str, str] = {}
        if before is not None:
            kept = await secret_ids_of(connection, before.version.version_id)
        added = await self._secrets.seal(connection, worker, new.secrets)
        names = {each.name for each in version.bindings if isinstance(each, SecretBinding)}
        return {name: id for name, id in {**kept, **added}.items() if name in names}


def _bindings(new: NewVersion, before: StoredVersion | None) -> tuple[Binding, ...]:
    taken = set(names_of(new.bindings))
    known = () if before is None else before.version.bindings
    kept = [
        binding
        for binding in known
        if binding.name not in taken
        and (binding.name in new.inherited or _type(binding) in new.keep_types)
    ]
    missing = new.inherited - taken - set(names_of(kept))
    if missing:
        raise InvalidInput(
            "bindings",
            f"{', '.join(sorted(missing))} cannot be inherited: the version before has none of the name",
        )
    return (*new.bindings, *kept)


def _type(binding: Binding) -> str:
    return str(binding.__struct_config__.tag)
