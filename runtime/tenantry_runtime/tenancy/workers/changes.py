"""Changes to a worker inside a transaction that holds it (`rows.lock_worker`)."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec
import sqlalchemy as sa
from msgspec.structs import replace
from sqlalchemy.ext.asyncio import AsyncConnection

from tenantry_runtime.core import TenantId
from tenantry_runtime.errors import InvalidInput, NoSuchRecord
from tenantry_runtime.tenancy import schema
from tenantry_runtime.tenancy.database import Database
from tenantry_runtime.workers.spec import WorkerVersion

from .names import can_be_known
from .records import Deployment, Notes, Settings, Share, StoredVersion, Worker
from .rows import deployments, files, load_versions, spec_of, to_deployment, versions, workers

MAX_WORKERS = 500
"""Of one account."""
MAX_VERSIONS = 100
"""Of one worker. With one more the oldest goes that none of its kept deployments names."""
MAX_DEPLOYMENTS = 20
"""Of one worker that are kept; each can be rolled back to."""
MAX_SHARES = 2
"""Versions of one deployment."""
MAX_ACCOUNT_BYTES = 4 << 30
"""Of all versions of an account, also where they have files in common."""

_links, _secrets = schema.worker_version_secrets, schema.worker_secrets


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """A version that is about to be added."""

    version: WorkerVersion
    notes: Notes
    secret_ids: Mapping[str, str]
    """Of the values that its secrets have, by their names."""
    startup_ms: float | None
    """None: not imported yet."""


async def create_worker(
    connection: AsyncConnection, database: Database, account: TenantId, name: str
) -> None:
    """Create a worker unless there is one; raise `InvalidInput` for one too many."""
    now_ms = database.now_ms()
    row = {
        "id": uuid.uuid4().hex,
        "account_id": account,
        "name": name,
        "created_ms": now_ms,
        "modified_ms": now_ms,
        "num_versions": 0,
        "num_deployments": 0,
        "has_url": False,
        "has_preview_urls": False,
        "settings": msgspec.to_builtins(Settings()),
    }
    insert = database.insert(workers).values(row).on_conflict_do_nothing()
    if (await connection.execute(insert)).rowcount == 0:
        return
    total = sa.select(sa.func.count()).where(workers.c.account_id == account)
    if (await connection.execute(total)).scalar_one() > MAX_WORKERS:
        raise InvalidInput("name", f"the account has {MAX_WORKERS} workers; delete one first")


async def newest_version(
    connection: AsyncConnection, worker: Worker, *, has_files: bool = True
) -> StoredVersion | None:
    """Return the newest version that has been imported."""
    is_seen = versions.c.startup_ms.is_not(None)
    of_worker = versions.c.worker_id == worker.id
    found = await load_versions(connection, of_worker, is_seen, limit=1, has_files=has_files)
    return found[0] if found else None


async def next_number(connection: AsyncConnection, worker: Worker) -> int:
    """Return the number of a version that is added now."""
    counted = (
        sa.update(workers)
        .where(workers.c.id == worker.id)
        .values(num_versions=workers.c.num_versions + 1)
        .returning(workers.c.num_versions)
    )
    number: int = (await connection.execute(counted)).scalar_one()
    return number


async def add_version(connection: AsyncConnection, worker: Worker, draft: Draft) -> None:
    """Add a version, and forget old ones that are too many."""
    version = draft.version
    num_bytes = sum(file.num_bytes for file in version.files)
    await _check_room(connection, worker.account, num_bytes)
    row = {
        "id": version.version_id,
        "worker_id": worker.id,
        "number": version.number,
        "created_ms": version.created_ms,
        "spec": spec_of(version),
        "notes": msgspec.to_builtins(draft.notes),
        "num_bytes": num_bytes,
        "startup_ms": draft.startup_ms,
    }
    await connection.execute(sa.insert(versions).values(row))
    await connection.execute(
        sa.insert(files),
        [{"version_id": version.version_id, **msgspec.to_builtins(file)} for file in version.files],
    )
    if draft.secret_ids:
        await connection.execute(
            sa.insert(_links),
            [
                {"version_id": version.version_id, "name": name, "secret_id": secret_id}
                for name, secret_id in draft.secret_ids.items()
            ],
        )
    await _forget_old_versions(connection, worker)


async def _check_room(connection: AsyncConnection, account: TenantId, num_bytes: int) -> None:
    total = (
        sa.select(sa.func.coalesce(sa.func.sum(versions.c.num_bytes), 0))
        .select_from(versions.join(workers))
        .where(workers.c.account_id == account)
    )
    kept = int((await connection.execute(total)).scalar_one())
    if kept + num_bytes > MAX_ACCOUNT_BYTES:
        raise InvalidInput(
            "", f"the account's workers have {kept} bytes of {MAX_ACCOUNT_BYTES}; delete some first"
        )


async def _forget_old_versions(connection: AsyncConnection, worker: Worker) -> None:
    of_worker = versions.c.worker_id == worker.id
    by_age = sa.select(versions.c.id).where(of_worker).order_by(versions.c.number.desc())
    old = list(await connection.scalars(by_age.offset(MAX_VERSIONS)))
    if not old:
        return
    named = {
        share.version_id
        for deployment in await load_deployments(connection, worker)
        for share in deployment.shares
    }
    gone = [version_id for version_id in old if version_id not in named]
    await connection.execute(sa.delete(versions).where(versions.c.id.in_(gone)))
    await forget_unused_secrets(connection, worker)


async def forget_unused_secrets(connection: AsyncConnection, worker: Worker) -> None:
    """Forget values of secrets that no version has any more."""
    is_used = sa.exists().where(_links.c.secret_id == _secrets.c.id)
    await connection.execute(sa.delete(_secrets).where(_secrets.c.worker_id == worker.id, ~is_used))


async def secret_ids_of(connection: AsyncConnection, version_id: str) -> dict[str, str]:
    """Return which values a version's secrets have."""
    wanted = sa.select(_links.c.name, _links.c.secret_id).where(_links.c.version_id == version_id)
    return {row.name: row.secret_id for row in (await connection.execute(wanted)).all()}


async def load_deployments(connection: AsyncConnection, worker: Worker) -> list[Deployment]:
    """Return the deployments that are kept, the latest first."""
    wanted = (
        sa.select(deployments)
        .where(deployments.c.worker_id == worker.id)
        .order_by(deployments.c.number.desc())
    )
    return [to_deployment(row) for row in (await connection.execute(wanted)).mappings()]


async def deploy(
    connection: AsyncConnection,
    database: Database,
    worker: Worker,
    shares: Sequence[Share],
    notes: Notes,
) -> Deployment:
    """Let versions answer from now on; raise `InvalidInput`, or `NoSuchRecord` for a version."""
    _check_shares(shares)
    for share in shares:
        if not can_be_known(share.version_id):
            raise NoSuchRecord("version", share.version_id)
    newest = await _newest_of(connection, worker, shares)
    kept = await load_deployments(connection, worker)
    if kept and not notes.triggered_by:
        before = await _newest_of(connection, worker, kept[0].shares)
        notes = replace(notes, triggered_by="rollback" if newest < before else "")
    counted = (
        sa.update(workers)
        .where(workers.c.id == worker.id)
        .values(num_deployments=workers.c.num_deployments + 1, modified_ms=database.now_ms())
        .returning(workers.c.num_deployments)
    )
    made = Deployment(
        id=str(uuid.uuid4()),
        number=(await connection.execute(counted)).scalar_one(),
        created_ms=database.now_ms(),
        shares=tuple(shares),
        notes=notes,
    )
    row = {
        "id": made.id,
        "worker_id": worker.id,
        "number": made.number,
        "created_ms": made.created_ms,
        "shares": [(share.version_id, share.percentage) for share in shares],
        "notes": msgspec.to_builtins(notes),
    }
    await connection.execute(sa.insert(deployments).values(row))
    too_old = deployments.c.number <= made.number - MAX_DEPLOYMENTS
    await connection.execute(
        sa.delete(deployments).where(deployments.c.worker_id == worker.id, too_old)
    )
    return made


def _check_shares(shares: Sequence[Share]) -> None:
    if not 0 < len(shares) <= MAX_SHARES:
        raise InvalidInput("versions", f"must be 1 to {MAX_SHARES}, not {len(shares)}")
    if len({share.version_id for share in shares}) < len(shares):
        raise InvalidInput("versions", "must differ")
    if not all(0 <= share.percentage <= 100 for share in shares):
        raise InvalidInput("percentage", "must be from 0 to 100")
    total = sum(share.percentage for share in shares)
    # percentages may have decimals
    if abs(total - 100) > 1e-6:
        raise InvalidInput("percentage", f"must be 100 together, not {total:g}")


async def _newest_of(connection: AsyncConnection, worker: Worker, shares: Sequence[Share]) -> int:
    """Return the highest of the numbers of versions; raise `NoSuchRecord` for one that is not there."""
    wanted = {share.version_id for share in shares}
    there = sa.select(versions.c.id, versions.c.number).where(
        versions.c.worker_id == worker.id,
        versions.c.id.in_(wanted),
        versions.c.startup_ms.is_not(None),
    )
    numbers: dict[str, int] = {
        row.id: row.number for row in (await connection.execute(there)).all()
    }
    for missing in sorted(wanted - set(numbers)):
        raise NoSuchRecord("version", missing)
    return max(numbers.values())
