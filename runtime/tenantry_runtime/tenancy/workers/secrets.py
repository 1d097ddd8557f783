"""Workers' secrets: a version has its own values, which a later version may have too.

To put or delete a secret makes a version out of the newest one and deploys it, so that a rollback
brings back what was. What a secret was is therefore kept as long as a version has it.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any

import sqlalchemy as sa
from msgspec.structs import replace
from sqlalchemy.ext.asyncio import AsyncConnection

from tenantry_runtime.core import TenantId
from tenantry_runtime.errors import InvalidInput, NewestNotDeployed
from tenantry_runtime.tenancy import schema
from tenantry_runtime.tenancy.database import Database
from tenantry_runtime.tenancy.secret_keys import KeySource
from tenantry_runtime.tenancy.secrets import Place, Plaintext, Secrets, checked, seal
from tenantry_runtime.workers.spec import SecretBinding, WorkerVersion

from .changes import (
    Draft,
    add_version,
    deploy,
    load_deployments,
    newest_version,
    next_number,
    secret_ids_of,
)
from .names import check_bindings
from .records import Notes, SecretListing, Share, StoredVersion, Worker
from .rows import lock_worker, no_worker, require_worker

_links, _secrets = schema.worker_version_secrets, schema.worker_secrets


class WorkerSecrets:
    """What `WorkerStore.secrets` is."""

    def __init__(self, database: Database, keys: KeySource) -> None:
        self._database = database
        self._sealing = Secrets(database, keys)

    async def values(self, version: WorkerVersion) -> dict[str, Plaintext]:
        """Decrypt the secrets of a version, by the names of their bindings.

        Raises `SecretKeyMissing` or `SecretDamaged`.
        """
        wanted = (
            sa.select(_secrets, _links.c.name.label("binding"))
            .select_from(_links.join(_secrets))
            .where(_links.c.version_id == version.version_id)
        )
        async with self._database.connect() as connection:
            rows = (await connection.execute(wanted)).all()
        if not rows:
            return {}
        ring = self._sealing.keys()
        values: dict[str, Plaintext] = {}
        for row in rows:
            # the tenant is the version's: what was moved there from another's worker does not open
            place = Place(version.tenant, row.name, row.worker_id)
            plain = self._sealing.opened(ring, place, row.key_id, row.sealed)
            values[row.binding] = Plaintext(plain.decode())
        return values

    async def list(self, account: TenantId, name: str) -> list[SecretListing]:
        """Return the secrets of the newest version, by name; raise `NoSuchRecord` for the worker."""
        async with self._database.connect() as connection:
            worker = await require_worker(connection, account, name)
            newest = await newest_version(connection, worker, has_files=False)
            if newest is None:
                raise no_worker(name)
            wanted = (
                sa.select(_links.c.name, _secrets.c.created_ms)
                .select_from(_links.join(_secrets))
                .where(_links.c.version_id == newest.version.version_id)
                .order_by(_links.c.name)
            )
            rows = (await connection.execute(wanted)).all()
        return [SecretListing(name=row.name, created_ms=row.created_ms) for row in rows]

    async def require_deployed(self, account: TenantId, name: str) -> None:
        """Raise `NewestNotDeployed` unless the newest version answers all requests."""
        async with self._database.connect() as connection:
            worker = await require_worker(connection, account, name)
            newest = await newest_version(connection, worker, has_files=False)
            if newest is None:
                raise no_worker(name)
            await _require_deployed(connection, worker, newest)

    async def change(
        self,
        account: TenantId,
        name: str,
        values: Mapping[str, Plaintext | None],
        notes: Notes,
    ) -> StoredVersion:
        """Put secrets, and delete those whose value is None, in a new version that is deployed.

        To delete what is not there changes nothing. Raises `NoSuchRecord` for the worker,
        `NewestNotDeployed`, `InvalidInput`, and what `Secrets.put` raises about keys.
        """
        async with self._database.begin() as connection:
            worker = await lock_worker(connection, account, name)
            newest = await newest_version(connection, worker)
            if newest is None:
                raise no_worker(name)
            await _require_deployed(connection, worker, newest)
            draft = await self._draft(connection, worker, newest, values, notes)
            await add_version(connection, worker, draft)
            shares = [Share(draft.version.version_id, 100.0)]
            await deploy(connection, self._database, worker, shares, notes)
        return StoredVersion(
            version=draft.version,
            notes=notes,
            num_bytes=newest.num_bytes,
            startup_ms=newest.startup_ms,
        )

    async def seal(
        self, connection: AsyncConnection, worker: Worker, values: Mapping[str, Plaintext]
    ) -> dict[str, str]:
        """Keep values, which no version has yet; return their ids."""
        plain = {name: checked(name, value) for name, value in values.items()}
        if not plain:
            return {}
        key = await self._sealing.writer(connection)
        rows = [
            {
                "id": uuid.uuid4().hex,
                "worker_id": worker.id,
                "account_id": worker.account,
                "name": name,
                "key_id": key.id,
                "sealed": seal(key, worker.account, name, value, worker=worker.id),
                "created_ms": self._database.now_ms(),
            }
            for name, value in plain.items()
        ]
        await connection.execute(sa.insert(_secrets), rows)
        return {str(row["name"]): str(row["id"]) for row in rows}

    async def _draft(
        self,
        connection: AsyncConnection,
        worker: Worker,
        newest: StoredVersion,
        values: Mapping[str, Plaintext | None],
        notes: Notes,
    ) -> Draft:
        old = newest.version
        others = [
            binding
            for binding in old.bindings
            if not isinstance(binding, SecretBinding) or binding.name not in values
        ]
        put = {name: value for name, value in values.items() if value is not None}
        taken = {each.name for each in others if not isinstance(each, SecretBinding)}
        for name in put:
            if name in taken:
                raise InvalidInput(
                    "name", f"{name} is a binding of another kind already; choose another name"
                )
        bindings = (*others, *(SecretBinding(name=name) for name in put))
        check_bindings(bindings)
        kept = await secret_ids_of(connection, old.version_id)
        added = await self.seal(connection, worker, put)
        secret_ids: dict[str, Any] = {
            name: id for name, id in {**kept, **added}.items() if name not in values or name in put
        }
        version = replace(
            old,
            version_id=str(uuid.uuid4()),
            number=await next_number(connection, worker),
            bindings=bindings,
            created_ms=self._database.now_ms(),
            tag="",
            message=notes.message,
        )
        return Draft(
            version=version, notes=notes, secret_ids=secret_ids, startup_ms=newest.startup_ms
        )


async def _require_deployed(
    connection: AsyncConnection, worker: Worker, newest: StoredVersion
) -> None:
    kept = await load_deployments(connection, worker)
    shares = kept[0].shares if kept else ()
    if [share.version_id for share in shares] != [newest.version.version_id]:
        raise NewestNotDeployed(worker.name)
