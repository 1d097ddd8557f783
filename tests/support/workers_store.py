"""A store of workers with accounts in it, and versions to add."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from support.secret_keys import FIRST, named_keys
from tenantry_runtime.core import TenantId
from tenantry_runtime.tenancy import Store
from tenantry_runtime.tenancy.secret_keys import KeySource
from tenantry_runtime.tenancy.secrets import Plaintext
from tenantry_runtime.tenancy.workers import NewVersion, Notes, Share, WorkerStore
from tenantry_runtime.workers.spec import SecretBinding, SourceFile, WorkerVersion

ACME, GLOBEX = TenantId("acme"), TenantId("globex")

SOURCE = b"x = 1\n"
NOTES = Notes(author="tok_1", source="wrangler")


async def a_worker_store(store: Store, keys: KeySource | None = None) -> WorkerStore:
    for account in (ACME, GLOBEX):
        await store.create_account(account)
    domains = {ACME: ["acme.example"], GLOBEX: ["globex.example"]}
    return WorkerStore(store.database, keys or named_keys(FIRST), domains=domains)


async def a_version(
    workers: WorkerStore,
    *,
    account: TenantId = ACME,
    name: str = "hello",
    source: bytes = SOURCE,
    secrets: Mapping[str, str] | None = None,
    accept: bool = True,
    **fields: Any,
) -> WorkerVersion:
    """Add a version of a worker."""
    digest = await workers.blobs.put(source)
    given = secrets or {}
    bindings = (
        *fields.pop("bindings", ()),
        *(SecretBinding(name=each) for each in given),
    )
    new = NewVersion(
        main_module="entry.py",
        files=(SourceFile(path="entry.py", digest=digest, num_bytes=len(source)),),
        bindings=bindings,
        secrets={each: Plaintext(value) for each, value in given.items()},
        **fields,
    )
    version = await workers.versions.add(account, name, new, NOTES)
    if accept:
        await workers.versions.accept(version.version_id, 1.0)
    return version


async def a_deployed(workers: WorkerStore, **fields: Any) -> WorkerVersion:
    """Add a version and let it answer all requests."""
    version = await a_version(workers, **fields)
    await workers.deployments.deploy(
        version.tenant, version.worker, [Share(version.version_id, 100)], NOTES
    )
    return version


async def values_of(workers: WorkerStore, version: WorkerVersion) -> dict[str, str]:
    values = await workers.secrets.values(version)
    return {name: value.value for name, value in values.items()}
