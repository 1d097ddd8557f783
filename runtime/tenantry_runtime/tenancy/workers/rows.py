"""Between rows of the tables and records."""

from __future__ import annotations

from typing import Any

import msgspec
import sqlalchemy as sa
from msgspec.structs import replace
from sqlalchemy.ext.asyncio import AsyncConnection

from tenantry_runtime.core import TenantId
from tenantry_runtime.errors import NoSuchRecord
from tenantry_runtime.tenancy import schema
from tenantry_runtime.workers.spec import SourceFile, WorkerVersion

from .names import can_be_known
from .records import Deployment, Notes, Settings, Share, StoredVersion, Worker

workers, versions, files = schema.workers, schema.worker_versions, schema.worker_files
deployments = schema.worker_deployments


def no_worker(name: str) -> NoSuchRecord:
    """Return the error for a worker that is not there."""
    return NoSuchRecord("worker", name, "deploy it first, or see if the name is right")


async def lock_worker(connection: AsyncConnection, account: TenantId, name: str) -> Worker:
    """Return a worker that nobody else changes before the transaction ends; raise `NoSuchRecord`."""
    return await require_worker(connection, account, name, changes=True)


async def require_worker(
    connection: AsyncConnection, account: TenantId, name: str, *, changes: bool = False
) -> Worker:
    """Return a worker; raise `NoSuchRecord`."""
    if not can_be_known(account, name):
        raise no_worker(name)
    wanted = sa.select(workers).where(workers.c.account_id == account, workers.c.name == name)
    if changes:
        wanted = wanted.with_for_update()
    row = (await connection.execute(wanted)).mappings().one_or_none()
    if row is None:
        raise no_worker(name)
    return to_worker(row)


def to_worker(row: sa.RowMapping) -> Worker:
    return Worker(
        id=row["id"],
        account=row["account_id"],
        name=row["name"],
        created_ms=row["created_ms"],
        modified_ms=row["modified_ms"],
        has_url=row["has_url"],
        has_preview_urls=row["has_preview_urls"],
        settings=msgspec.convert(row["settings"], Settings),
    )


def to_deployment(row: sa.RowMapping) -> Deployment:
    return Deployment(
        id=row["id"],
        number=row["number"],
        created_ms=row["created_ms"],
        shares=to_shares(row["shares"]),
        notes=msgspec.convert(row["notes"], Notes),
    )


def to_shares(stored: list[tuple[str, float]]) -> tuple[Share, ...]:
    return tuple(Share(version_id, percentage) for version_id, percentage in stored)


# Any: what the column holds
def spec_of(version: WorkerVersion) -> dict[str, Any]:
    """Return what the column has of a version."""
    spec: dict[str, Any] = msgspec.to_builtins(replace(version, files=()))
    return spec


async def load_versions(
    connection: AsyncConnection,
    *chosen: sa.ColumnElement[bool],
    limit: int | None = None,
    has_files: bool = True,
) -> list[StoredVersion]:
    """Return versions, the newest first; those without `has_files` have none."""
    wanted = sa.select(versions).where(*chosen).order_by(versions.c.number.desc()).limit(limit)
    rows = (await connection.execute(wanted)).all()
    ids = [row.id for row in rows]
    by_version = await _files_of(connection, ids) if has_files else {id: [] for id in ids}
    return [
        StoredVersion(
            version=replace(
                msgspec.convert(row.spec, WorkerVersion), files=tuple(by_version[row.id])
            ),
            notes=msgspec.convert(row.notes, Notes),
            num_bytes=row.num_bytes,
            startup_ms=row.startup_ms or 0.0,
        )
        for row in rows
    ]


async def _files_of(
    connection: AsyncConnection, version_ids: list[str]
) -> dict[str, list[SourceFile]]:
    wanted = (
        sa.select(files)
        .where(files.c.version_id.in_(version_ids))
        .order_by(files.c.version_id, files.c.path)
    )
    found: dict[str, list[SourceFile]] = {version_id: [] for version_id in version_ids}
    for row in (await connection.execute(wanted)).all():
        file = SourceFile(
            path=row.path,
            digest=row.digest,
            num_bytes=row.num_bytes,
            content_type=row.content_type,
        )
        found[row.version_id].append(file)
    return found
