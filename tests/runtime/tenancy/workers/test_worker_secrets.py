"""Workers' secrets: of a version, for one worker, and under the key that encrypts now."""

from __future__ import annotations

from pathlib import Path

import pytest
import sqlalchemy as sa

from support.gcm import gcm_decrypt
from support.secret_keys import FIRST, SECOND, managed_keys, named_keys
from support.workers_store import (
    ACME,
    GLOBEX,
    NOTES,
    a_deployed,
    a_version,
    a_worker_store,
    values_of,
)
from tenantry_runtime.errors import NewestNotDeployed, SecretDamaged, SecretKeyMissing
from tenantry_runtime.tenancy import Store, schema
from tenantry_runtime.tenancy.secrets import Plaintext, Secrets

_secrets = schema.worker_secrets


async def rows_of(store: Store) -> list[sa.Row[tuple[object, ...]]]:
    async with store.database.connect() as connection:
        return list((await connection.execute(sa.select(_secrets))).all())


@pytest.mark.asyncio
async def test_a_version_keeps_the_values_that_it_was_made_with(store: Store) -> None:
    workers = await a_worker_store(store)
    first = await a_deployed(workers, secrets={"A": "1", "B": "2"})

    changed = await workers.secrets.change(
        ACME, "hello", {"A": Plaintext("3"), "B": None, "C": Plaintext("4")}, NOTES
    )

    assert await values_of(workers, first) == {"A": "1", "B": "2"}
    assert await values_of(workers, changed.version) == {"A": "3", "C": "4"}
    assert await workers.resolve(ACME, "hello", 0) == changed.version
    assert [each.name for each in await workers.secrets.list(ACME, "hello")] == ["A", "C"]


@pytest.mark.asyncio
async def test_a_secret_waits_for_the_newest_version(store: Store) -> None:
    workers = await a_worker_store(store)
    await a_deployed(workers)
    await a_version(workers)

    with pytest.raises(NewestNotDeployed):
        await workers.secrets.change(ACME, "hello", {"A": Plaintext("1")}, NOTES)

    assert await rows_of(store) == []


@pytest.mark.asyncio
async def test_another_implementation_opens_what_is_sealed_for_a_worker(store: Store) -> None:
    workers = await a_worker_store(store)
    await a_deployed(workers, secrets={"KEY": "hush"})
    worker = await workers.scripts.get(ACME, "hello")

    (row,) = await rows_of(store)

    parts = [part.encode() for part in ("acme", "KEY", FIRST.id, worker.id)]
    bound = b"\1" + b"".join(len(part).to_bytes(4, "little") + part for part in parts)
    assert gcm_decrypt(FIRST.material, row.sealed[1:13], row.sealed[13:], bound) == b"hush"


@pytest.mark.asyncio
@pytest.mark.parametrize("moved", ["account_id", "worker_id", "name"])
async def test_a_secret_that_is_moved_does_not_open(store: Store, moved: str) -> None:
    workers = await a_worker_store(store)
    version = await a_deployed(workers, secrets={"KEY": "hush"})
    other = await a_deployed(workers, account=GLOBEX, secrets={"OTHER": "x"})
    foreign = await workers.scripts.get(GLOBEX, "hello")
    place = {"account_id": GLOBEX, "worker_id": foreign.id, "name": "OTHER"}[moved]

    async with store.database.begin() as connection:
        here = _secrets.c.name == "KEY"
        await connection.execute(sa.update(_secrets).where(here).values({moved: place}))

    if moved == "account_id":
        # not what is looked at: whose it is, the version says
        assert await values_of(workers, version) == {"KEY": "hush"}
    else:
        with pytest.raises(SecretDamaged):
            await values_of(workers, version)
    assert await values_of(workers, other) == {"OTHER": "x"}


@pytest.mark.asyncio
async def test_a_version_of_another_tenant_does_not_open_by_a_link(store: Store) -> None:
    workers = await a_worker_store(store)
    await a_deployed(workers, secrets={"KEY": "hush"})
    theirs = await a_deployed(workers, account=GLOBEX, secrets={"KEY": "x"})
    links = schema.worker_version_secrets
    (ours,) = [row for row in await rows_of(store) if row.account_id == ACME]

    async with store.database.begin() as connection:
        here = links.c.version_id == theirs.version_id
        await connection.execute(sa.update(links).where(here).values(secret_id=ours.id))

    with pytest.raises(SecretDamaged):
        await values_of(workers, theirs)


@pytest.mark.asyncio
async def test_a_rotation_takes_workers_secrets_along(store: Store, tmp_path: Path) -> None:
    keys = managed_keys(tmp_path)
    workers = await a_worker_store(store, keys)
    version = await a_deployed(workers, secrets={"A": "1", "B": "2"})
    sealing = Secrets(store.database, keys)
    await sealing.put(ACME, "OWN", Plaintext("3"))

    keys.advance()
    rotation = await sealing.rotate()
    keys.retire(rotation.unused_key_ids)

    assert (rotation.num_encrypted, rotation.left) == (3, ())
    assert {row.key_id for row in await rows_of(store)} == {rotation.key_id}
    assert await values_of(workers, version) == {"A": "1", "B": "2"}


@pytest.mark.asyncio
async def test_a_key_that_workers_secrets_need_is_not_said_to_be_unused(store: Store) -> None:
    workers = await a_worker_store(store, named_keys(FIRST))
    await a_deployed(workers, secrets={"A": "1"})
    async with store.database.begin() as connection:
        await connection.execute(sa.update(_secrets).values(sealed=b"\1" + bytes(40)))

    rotation = await Secrets(store.database, named_keys(SECOND, FIRST)).rotate()

    assert rotation.unused_key_ids == ()
    assert [each.name for each in rotation.left] == ["A"]


@pytest.mark.asyncio
async def test_nothing_is_put_where_the_stores_keys_are_not(store: Store) -> None:
    workers = await a_worker_store(store, named_keys(FIRST))
    await a_deployed(workers, secrets={"A": "1"})
    elsewhere = await a_worker_store(store, named_keys(SECOND))

    with pytest.raises(SecretKeyMissing):
        await a_version(elsewhere, secrets={"B": "2"})
    with pytest.raises(SecretKeyMissing):
        await values_of(elsewhere, await workers.resolve(ACME, "hello", 0))


@pytest.mark.asyncio
async def test_values_that_no_version_has_are_gone(store: Store) -> None:
    workers = await a_worker_store(store)
    version = await a_version(workers, secrets={"A": "1"}, accept=False)

    await workers.versions.discard(version.version_id)

    assert await rows_of(store) == []
