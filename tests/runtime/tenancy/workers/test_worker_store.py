"""Workers in the store: versions that never change, what answers, and what goes with what."""

from __future__ import annotations

import anyio
import pytest
import sqlalchemy as sa

from support.workers_store import (
    ACME,
    GLOBEX,
    NOTES,
    SOURCE,
    a_deployed,
    a_version,
    a_worker_store,
)
from tenantry_runtime.core import TenantId
from tenantry_runtime.errors import AccountSuspended, InvalidInput, NoSuchRecord
from tenantry_runtime.tenancy import Store, schema
from tenantry_runtime.tenancy.workers import Share, changes
from tenantry_runtime.tenancy.workers.blobs import KEPT_MS, BlobStore
from tenantry_runtime.workers.spec import (
    AiBinding,
    JsonBinding,
    KvBinding,
    LockedPackage,
    ServiceBinding,
    TextBinding,
    VersionBinding,
    WorkerLimits,
)

BINDINGS = (
    AiBinding(name="AI"),
    TextBinding(name="TEXT", text="ä"),
    JsonBinding(name="JSON", json={"a": [1, None, 2.5]}),
    KvBinding(name="KV", namespace_id="n1"),
    ServiceBinding(name="S", service="other", entrypoint="E"),
    VersionBinding(name="V"),
)


async def num_rows(store: Store, table: sa.Table) -> int:
    async with store.database.connect() as connection:
        counted = await connection.execute(sa.select(sa.func.count()).select_from(table))
        return int(counted.scalar_one())


@pytest.mark.asyncio
async def test_a_version_is_read_as_it_was_added(store: Store) -> None:
    workers = await a_worker_store(store)
    lock = (LockedPackage(name="a", version="1", sha256="0" * 64),)

    added = await a_deployed(
        workers,
        bindings=BINDINGS,
        limits=WorkerLimits(cpu_ms=7),
        dependencies="d" * 64,
        lock=lock,
        tag="t",
        message="m",
    )

    assert await workers.resolve(ACME, "hello", 0.5) == added
    assert (added.bindings, added.limits.cpu_ms, added.lock) == (BINDINGS, 7, lock)
    assert (await workers.versions.get(ACME, "hello", added.version_id)).version == added


@pytest.mark.asyncio
async def test_nobody_sees_a_version_that_was_not_imported(store: Store) -> None:
    workers = await a_worker_store(store)
    version = await a_version(workers, accept=False)

    assert await workers.scripts.list(ACME) == []
    for asked in (workers.scripts.get, workers.versions.newest):
        with pytest.raises(NoSuchRecord):
            await asked(ACME, "hello")
    with pytest.raises(NoSuchRecord):
        await workers.deployments.deploy(ACME, "hello", [Share(version.version_id, 100)], NOTES)


@pytest.mark.asyncio
async def test_a_version_that_is_discarded_takes_a_worker_without_others_along(
    store: Store,
) -> None:
    workers = await a_worker_store(store)

    await workers.versions.discard((await a_version(workers, accept=False)).version_id)
    assert await num_rows(store, schema.workers) == 0

    kept = await a_deployed(workers)
    await workers.versions.discard((await a_version(workers, accept=False)).version_id)
    assert await workers.resolve(ACME, "hello", 0) == kept


@pytest.mark.asyncio
async def test_versions_that_come_at_one_time_have_numbers_of_their_own(store: Store) -> None:
    workers = await a_worker_store(store)
    numbers: list[int] = []

    async def add() -> None:
        numbers.append((await a_version(workers)).number)

    async with anyio.create_task_group() as tasks:
        for _ in range(8):
            tasks.start_soon(add)

    assert sorted(numbers) == list(range(1, 9))


@pytest.mark.asyncio
async def test_a_worker_is_of_its_account_alone(store: Store) -> None:
    workers = await a_worker_store(store)
    ours = await a_deployed(workers)
    theirs = await a_deployed(workers, account=GLOBEX)

    assert await workers.resolve(GLOBEX, "hello", 0) == theirs
    with pytest.raises(NoSuchRecord):
        await workers.versions.get(GLOBEX, "hello", ours.version_id)
    with pytest.raises(NoSuchRecord):
        await workers.deployments.deploy(GLOBEX, "hello", [Share(ours.version_id, 100)], NOTES)


@pytest.mark.asyncio
async def test_a_worker_without_a_deployment_answers_nothing(store: Store) -> None:
    workers = await a_worker_store(store)
    await a_version(workers)

    with pytest.raises(NoSuchRecord):
        await workers.resolve(ACME, "hello", 0)


@pytest.mark.asyncio
async def test_workers_of_an_account_that_may_not_call_do_not_answer(store: Store) -> None:
    workers = await a_worker_store(store)
    await a_deployed(workers)
    await workers.triggers.set_schedules(ACME, "hello", ["* * * * *"])

    await store.accounts.suspend(ACME)
    with pytest.raises(AccountSuspended):
        await workers.resolve(ACME, "hello", 0)
    assert await workers.schedules() == []

    await store.accounts.delete(ACME)
    with pytest.raises(NoSuchRecord):
        await workers.resolve(ACME, "hello", 0)


@pytest.mark.asyncio
async def test_a_name_is_free_again_after_a_worker_and_nothing_is_left(store: Store) -> None:
    workers = await a_worker_store(store)
    old = await a_deployed(workers, secrets={"KEY": "1"})
    await workers.triggers.set_schedules(ACME, "hello", ["* * * * *"])
    await workers.triggers.set_routes(ACME, "hello", ["acme.example/*"])

    await workers.scripts.delete(ACME, "hello")

    tables = [
        schema.workers,
        schema.worker_versions,
        schema.worker_files,
        schema.worker_deployments,
        schema.worker_secrets,
        schema.worker_version_secrets,
        schema.worker_routes,
        schema.worker_schedules,
    ]
    assert [await num_rows(store, table) for table in tables] == [0] * len(tables)
    assert await workers.secrets.values(old) == {}
    again = await a_deployed(workers)
    assert again.number == 1


@pytest.mark.asyncio
async def test_old_versions_go_unless_a_deployment_names_them(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(changes, "MAX_VERSIONS", 4)
    workers = await a_worker_store(store)
    first = await a_deployed(workers)
    for _ in range(5):
        await a_version(workers)

    kept = [each.version.number for each in await workers.versions.list(ACME, "hello")]

    assert kept == [6, 5, 4, 3, 1]
    assert await workers.resolve(ACME, "hello", 0) == first


@pytest.mark.asyncio
async def test_the_latest_deployments_are_kept(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(changes, "MAX_DEPLOYMENTS", 3)
    workers = await a_worker_store(store)
    version = await a_version(workers)
    for _ in range(5):
        await workers.deployments.deploy(ACME, "hello", [Share(version.version_id, 100)], NOTES)

    kept = await workers.deployments.list(ACME, "hello")

    assert [each.number for each in kept] == [5, 4, 3]


@pytest.mark.asyncio
async def test_a_variable_that_is_too_large_adds_nothing(store: Store) -> None:
    workers = await a_worker_store(store)

    with pytest.raises(InvalidInput, match="A has 6000 bytes"):
        await a_version(workers, bindings=(TextBinding(name="A", text="x" * 6000),))

    assert await num_rows(store, schema.workers) == 0


@pytest.mark.asyncio
async def test_bytes_are_kept_once_and_as_long_as_a_version_has_them(store: Store) -> None:
    workers = await a_worker_store(store)
    store.database.now_ms = lambda: 0
    await a_deployed(workers)
    await a_deployed(workers, account=GLOBEX)
    assert await num_rows(store, schema.worker_blobs) == 1

    store.database.now_ms = lambda: KEPT_MS + 1
    unnamed = await workers.blobs.put(b"about to be named")
    await workers.scripts.delete(ACME, "hello")
    assert await num_rows(store, schema.worker_blobs) == 2

    store.database.now_ms = lambda: 3 * KEPT_MS
    await workers.scripts.delete(GLOBEX, "hello")
    assert await num_rows(store, schema.worker_blobs) == 0
    with pytest.raises(NoSuchRecord):
        await workers.blobs.get(unnamed)


@pytest.mark.asyncio
async def test_bytes_that_are_put_again_are_kept_anew(store: Store) -> None:
    await a_worker_store(store)
    blobs = BlobStore(store.database)
    store.database.now_ms = lambda: 0
    digest = await blobs.put(SOURCE)
    store.database.now_ms = lambda: KEPT_MS
    await blobs.put(SOURCE)

    store.database.now_ms = lambda: KEPT_MS + 1
    assert await blobs.collect() == 0
    assert await blobs.get(digest) == SOURCE


@pytest.mark.asyncio
@pytest.mark.parametrize("text", ["\0", "\ud800", "x" * 10_000, ""], ids=ascii)
async def test_what_no_database_takes_is_not_there(store: Store, text: str) -> None:
    workers = await a_worker_store(store)
    await a_deployed(workers)
    account = TenantId(text)

    for asked in (workers.current, workers.scripts.get, workers.versions.newest):
        for name, whose in ((text, ACME), ("hello", account)):
            with pytest.raises(NoSuchRecord):
                await asked(whose, name)
    with pytest.raises(NoSuchRecord):
        await workers.versions.get(ACME, "hello", text)
    with pytest.raises(NoSuchRecord):
        await workers.deployments.deploy(ACME, "hello", [Share(text, 100)], NOTES)
    assert await workers.by_route(text, "/") is None
    assert not await workers.triggers.delete_route(ACME, text)
