"""Secrets of tenants: what opens where, and what comes of them when keys are replaced."""

from __future__ import annotations

import os
import sys
import traceback
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest
import sqlalchemy as sa
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from support import interrupted_rotation
from support.gcm import gcm_decrypt, gcm_encrypt
from support.secret_keys import FIRST, SECOND, THIRD, managed_keys, named_keys
from tenantry_runtime.core import TenantId
from tenantry_runtime.errors import InvalidInput, NoSuchRecord, SecretDamaged, SecretKeyMissing
from tenantry_runtime.tenancy import Store, schema
from tenantry_runtime.tenancy.secret_keys import Key
from tenantry_runtime.tenancy.secrets import (
    BATCH,
    MAX_SECRET_BYTES,
    MAX_SECRETS,
    Plaintext,
    Secrets,
    seal,
    unseal,
)

ACME, GLOBEX = TenantId("acme"), TenantId("globex")

TESTS = Path(interrupted_rotation.__file__).parents[1]

TELLTALE = "correct horse battery staple"


async def with_accounts(store: Store) -> Store:
    for account in (ACME, GLOBEX):
        await store.create_account(account)
    return store


def secrets_of(store: Store, *keys: Key) -> Secrets:
    return Secrets(store.database, named_keys(*keys))


async def rows_of(store: Store) -> list[sa.Row[tuple[object, ...]]]:
    async with store.database.connect() as connection:
        return list((await connection.execute(sa.select(schema.secrets))).all())


async def change_row(store: Store, **values: object) -> None:
    async with store.database.begin() as connection:
        await connection.execute(sa.update(schema.secrets).values(values))


def bound(*parts: str) -> bytes:
    """Return the associated data, as the layout's table has it."""
    encoded = [part.encode() for part in parts]
    return b"\x01" + b"".join(len(part).to_bytes(4, "little") + part for part in encoded)


def test_another_implementation_opens_what_is_sealed() -> None:
    sealed = seal(FIRST, "acme", "API_KEY", TELLTALE.encode())

    assert (sealed[0], len(sealed)) == (1, 1 + 12 + len(TELLTALE) + 16)
    associated = bound("acme", "API_KEY", FIRST.id)
    assert gcm_decrypt(FIRST.material, sealed[1:13], sealed[13:], associated) == TELLTALE.encode()


def test_what_another_implementation_seals_is_opened() -> None:
    nonce = bytes(range(12))
    associated = bound("acme", "API_KEY", FIRST.id)
    encrypted = gcm_encrypt(FIRST.material, nonce, TELLTALE.encode(), associated)

    assert unseal(FIRST, "acme", "API_KEY", b"\x01" + nonce + encrypted) == TELLTALE.encode()


def test_both_implementations_agree_with_the_published_vector() -> None:
    """Case 16 of McGrew and Viega's specification of GCM: 256-bit key, 96-bit nonce, associated data."""
    key = bytes.fromhex("feffe9928665731c6d6a8f9467308308" * 2)
    nonce = bytes.fromhex("cafebabefacedbaddecaf888")
    plain = bytes.fromhex(
        "d9313225f88406e5a55909c5aff5269a86a7a9531534f7da2e4c303d8a318a72"
        "1c3c0c95956809532fcf0e2449a6b525b16aedf5aa0de657ba637b39"
    )
    associated = bytes.fromhex("feedfacedeadbeeffeedfacedeadbeefabaddad2")
    sealed = bytes.fromhex(
        "522dc1f099567d07f47f37a32a84427d643a8cdcbfe5c0c97598a2bd2555d1aa"
        "8cb08e48590dbb3da7b08b1056828838c5f61e6393ba7a0abcc9f662"
        "76fc6ece0f4e1768cddf8853bb2d551b"
    )

    assert gcm_encrypt(key, nonce, plain, associated) == sealed
    assert AESGCM(key).encrypt(nonce, plain, associated) == sealed


def test_no_two_encryptions_are_alike() -> None:
    assert len({seal(FIRST, "acme", "A", b"same") for _ in range(1000)}) == 1000


@pytest.mark.parametrize(
    ("key", "account", "name"),
    [(FIRST, "globex", "A"), (FIRST, "acme", "B"), (FIRST, "acm", "eA"), (SECOND, "acme", "A")],
    ids=["another account", "another name", "the same letters", "another key"],
)
def test_a_secret_opens_nowhere_else(key: Key, account: str, name: str) -> None:
    sealed = seal(FIRST, "acme", "A", b"value")

    with pytest.raises(SecretDamaged):
        unseal(key, account, name, sealed)


def test_every_bit_counts() -> None:
    sealed = seal(FIRST, "acme", "A", b"value")

    for position in range(8 * len(sealed)):
        altered = bytearray(sealed)
        altered[position // 8] ^= 1 << position % 8
        with pytest.raises(SecretDamaged):
            unseal(FIRST, "acme", "A", bytes(altered))
    for length in range(len(sealed)):
        with pytest.raises(SecretDamaged):
            unseal(FIRST, "acme", "A", sealed[:length])


@pytest.mark.asyncio
async def test_a_secret_is_told_to_its_tenant_and_kept_from_the_others(store: Store) -> None:
    secrets = secrets_of(await with_accounts(store), FIRST)

    await secrets.put(ACME, "KEY", Plaintext("ä\n\0 "))
    await secrets.put(GLOBEX, "KEY", Plaintext("theirs"))

    assert (await secrets.get(ACME, "KEY")).value == "ä\n\0 "
    assert (await secrets.get(GLOBEX, "KEY")).value == "theirs"
    for account, name in ((ACME, "OTHER"), (TenantId("nobody"), "KEY")):
        with pytest.raises(NoSuchRecord):
            await secrets.get(account, name)


@pytest.mark.asyncio
async def test_the_store_has_nothing_of_the_value(store: Store) -> None:
    secrets = secrets_of(await with_accounts(store), FIRST)
    await secrets.put(ACME, "KEY", Plaintext(TELLTALE))

    (row,) = await rows_of(store)

    assert all(word.encode() not in row.sealed for word in TELLTALE.split())
    assert row.key_id == FIRST.id


@pytest.mark.asyncio
async def test_a_secret_takes_the_place_of_its_former_value(store: Store) -> None:
    secrets = secrets_of(await with_accounts(store), FIRST)
    await secrets.put(ACME, "KEY", Plaintext("old"))
    await secrets.put(ACME, "KEY", Plaintext("new"))

    assert (await secrets.get(ACME, "KEY")).value == "new"
    assert [listing.name for listing in await secrets.list(ACME)] == ["KEY"]


@pytest.mark.asyncio
async def test_listings_have_names_and_dates_of_the_account_alone(store: Store) -> None:
    secrets = secrets_of(await with_accounts(store), FIRST)
    before_ms = store.database.now_ms()
    for name in ("B", "A"):
        await secrets.put(ACME, name, Plaintext(TELLTALE))
    await secrets.put(GLOBEX, "C", Plaintext(TELLTALE))

    listed = await secrets.list(ACME)

    assert [listing.name for listing in listed] == ["A", "B"]
    assert all(before_ms <= listing.updated_ms <= store.database.now_ms() for listing in listed)


@pytest.mark.asyncio
async def test_what_is_deleted_is_gone(store: Store) -> None:
    secrets = secrets_of(await with_accounts(store), FIRST)
    for account in (ACME, GLOBEX):
        for name in ("A", "B"):
            await secrets.put(account, name, Plaintext("x"))

    assert await secrets.delete(ACME, "A")
    assert not await secrets.delete(ACME, "A")
    assert await secrets.forget(GLOBEX) == 2

    assert [(row.account_id, row.name) for row in await rows_of(store)] == [(ACME, "B")]


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("name", "value", "field"),
    [
        ("", "x", "name"),
        ("1A", "x", "name"),
        ("A-B", "x", "name"),
        ("A\n", "x", "name"),
        ("Ä", "x", "name"),
        ("A" * 129, "x", "name"),
        ("A", "", "value"),
        ("A", "ä" * (MAX_SECRET_BYTES // 2 + 1), "value"),
        ("A", "\ud800", "value"),
    ],
    ids=["none", "digit", "hyphen", "newline", "letter", "long", "empty", "large", "surrogate"],
)
async def test_bad_names_and_values_are_refused(
    store: Store, name: str, value: str, field: str
) -> None:
    secrets = secrets_of(await with_accounts(store), FIRST)

    with pytest.raises(InvalidInput) as caught:
        await secrets.put(ACME, name, Plaintext(value))

    assert caught.value.field == field
    assert await rows_of(store) == []


@pytest.mark.asyncio
async def test_the_largest_secret_and_the_longest_name_are_kept(store: Store) -> None:
    secrets = secrets_of(await with_accounts(store), FIRST)
    await secrets.put(ACME, "A" * 128, Plaintext("x" * MAX_SECRET_BYTES))

    assert (await secrets.get(ACME, "A" * 128)).value == "x" * MAX_SECRET_BYTES


@pytest.mark.asyncio
async def test_an_account_has_so_many_secrets_and_may_replace_them(store: Store) -> None:
    secrets = secrets_of(await with_accounts(store), FIRST)
    async with store.database.begin() as connection:
        row = {"account_id": ACME, "key_id": FIRST.id, "sealed": b"", "updated_ms": 1}
        names = [{**row, "name": f"S{number}"} for number in range(MAX_SECRETS)]
        await connection.execute(sa.insert(schema.secrets), names)

    with pytest.raises(InvalidInput, match="delete one first"):
        await secrets.put(ACME, "ONE_MORE", Plaintext("x"))
    await secrets.put(ACME, "S0", Plaintext("x"))
    await secrets.put(GLOBEX, "ONE_MORE", Plaintext("x"))


@pytest.mark.asyncio
async def test_there_are_no_secrets_without_an_account(store: Store) -> None:
    secrets = secrets_of(await with_accounts(store), FIRST)
    async with store.database.begin() as connection:
        gone = sa.update(schema.accounts).where(schema.accounts.c.id == GLOBEX)
        await connection.execute(gone.values(deleted_ms=1))

    for account in (TenantId("nobody"), GLOBEX):
        with pytest.raises(NoSuchRecord, match=account):
            await secrets.put(account, "A", Plaintext("x"))


@pytest.mark.asyncio
async def test_a_row_that_is_moved_or_altered_is_damaged_and_no_other_key_is_asked_for(
    store: Store,
) -> None:
    secrets = secrets_of(await with_accounts(store), FIRST, SECOND)
    for change in ({"account_id": GLOBEX}, {"name": "B"}, {"key_id": SECOND.id}, {"sealed": b""}):
        await secrets.put(ACME, "A", Plaintext(TELLTALE))
        await change_row(store, **change)
        (row,) = await rows_of(store)

        with pytest.raises(SecretDamaged, match="restore it, or put it again"):
            await secrets.get(row.account_id, row.name)

        await secrets.delete(row.account_id, row.name)


@pytest.mark.asyncio
async def test_a_missing_key_is_named(store: Store) -> None:
    await secrets_of(await with_accounts(store), FIRST).put(ACME, "A", Plaintext(TELLTALE))

    with pytest.raises(SecretKeyMissing, match=f"key {FIRST.id}, which is not in") as caught:
        await secrets_of(store, SECOND).get(ACME, "A")

    assert caught.value.key_id == FIRST.id


@pytest.mark.asyncio
async def test_a_machine_without_the_stores_keys_adds_no_secret(
    store: Store, tmp_path: Path
) -> None:
    await secrets_of(await with_accounts(store), FIRST).put(ACME, "A", Plaintext(TELLTALE))
    folder = tmp_path / "another machine"

    with pytest.raises(SecretKeyMissing, match=FIRST.id):
        await Secrets(store.database, managed_keys(folder)).put(ACME, "B", Plaintext("x"))

    assert not folder.exists(), "it has made no key that others would lack"


@pytest.mark.asyncio
async def test_nothing_tells_a_value(store: Store) -> None:
    value = Plaintext(TELLTALE)
    secrets = secrets_of(await with_accounts(store), FIRST)
    await secrets.put(ACME, "A", value)
    printed = f"{value} {value!r} {await secrets.list(ACME)} {await secrets.get(ACME, 'A')!r}"
    for keys in ((SECOND,), (FIRST,)):
        await change_row(store, sealed=b"\x01" + bytes(40))
        try:
            await secrets_of(store, *keys).get(ACME, "A")
        except (SecretDamaged, SecretKeyMissing):
            printed += traceback.format_exc()
    with pytest.raises(InvalidInput) as caught:
        await secrets.put(ACME, "A", Plaintext(TELLTALE + "\ud800"))
    printed += "".join(traceback.format_exception(caught.value))

    assert "SecretDamaged" in printed
    assert TELLTALE not in printed
    assert FIRST.material.hex() not in printed


@pytest.mark.asyncio
async def test_a_rotation_leaves_nothing_under_the_old_key(store: Store) -> None:
    old = secrets_of(await with_accounts(store), FIRST)
    values = {f"S{number}": f"value {number}" for number in range(BATCH + 20)}
    for name, value in values.items():
        await old.put(ACME, name, Plaintext(value))
    await old.put(GLOBEX, "A", Plaintext("theirs"))
    dates = await old.list(ACME)

    rotation = await secrets_of(store, SECOND, FIRST).rotate()

    assert (rotation.num_encrypted, rotation.left) == (len(values) + 1, ())
    assert (rotation.key_id, rotation.unused_key_ids) == (SECOND.id, (FIRST.id,))
    new = secrets_of(store, SECOND)
    assert {name: (await new.get(ACME, name)).value for name in values} == values
    assert (await new.get(GLOBEX, "A")).value == "theirs"
    assert await new.list(ACME) == dates, "what is encrypted anew is no newer"


@pytest.mark.asyncio
async def test_a_rotation_that_is_done_does_nothing(store: Store) -> None:
    await secrets_of(await with_accounts(store), FIRST).put(ACME, "A", Plaintext("x"))
    rotating = secrets_of(store, SECOND, FIRST)
    await rotating.rotate()
    before = await rows_of(store)

    assert (await rotating.rotate()).num_encrypted == 0
    assert await rows_of(store) == before


@pytest.mark.asyncio
async def test_what_does_not_open_is_reported_and_keeps_its_key(store: Store) -> None:
    await secrets_of(await with_accounts(store), FIRST).put(ACME, "A", Plaintext("x"))
    await change_row(store, name="MOVED")
    await secrets_of(store, FIRST).put(ACME, "B", Plaintext("x"))
    async with store.database.begin() as connection:
        foreign = {"account_id": GLOBEX, "name": "LOST", "key_id": THIRD.id, "updated_ms": 1}
        sealed = seal(THIRD, GLOBEX, "LOST", b"x")
        await connection.execute(sa.insert(schema.secrets).values(sealed=sealed, **foreign))

    rotation = await secrets_of(store, SECOND, FIRST).rotate()

    assert rotation.num_encrypted == 1
    assert [(damaged.account, damaged.name) for damaged in rotation.left] == [
        (ACME, "MOVED"),
        (GLOBEX, "LOST"),
    ]
    assert rotation.unused_key_ids == ()


@pytest.mark.asyncio
async def test_what_is_put_during_rotations_stays(store: Store) -> None:
    """Two that rotate to and fro, and one that puts and must find what it has put."""
    await with_accounts(store)
    putting = secrets_of(store, FIRST, SECOND)
    await putting.put(ACME, "A", Plaintext("first"))
    is_done = anyio.Event()

    async def rotate(*keys: Key) -> None:
        while not is_done.is_set():
            await secrets_of(store, *keys).rotate()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(rotate, FIRST, SECOND)
        tasks.start_soon(rotate, SECOND, FIRST)
        for number in range(50):
            await putting.put(ACME, "A", Plaintext(f"{number}"))
            await anyio.lowlevel.checkpoint()
            assert (await putting.get(ACME, "A")).value == f"{number}"
        is_done.set()


@pytest.mark.asyncio
@pytest.mark.parametrize("number", [0, 30, BATCH + 1], ids=["at once", "batch 1", "batch 2"])
async def test_a_rotation_that_is_killed_goes_on_when_it_is_run_again(
    store: Store, database_url: str | None, tmp_path: Path, number: int
) -> None:
    await with_accounts(store)
    secrets = Secrets(store.database, managed_keys(tmp_path))
    values = {f"S{each}": f"value {each}" for each in range(BATCH + 20)}
    for name, value in values.items():
        await secrets.put(ACME, name, Plaintext(value))

    killed = await anyio.run_process(
        [sys.executable, interrupted_rotation.__file__, tmp_path, database_url or "", str(number)],
        check=False,
        env={**os.environ, "PYTHONPATH": str(TESTS)},
    )

    assert killed.returncode == interrupted_rotation.DIED, killed.stderr
    keys = {row.key_id for row in await rows_of(store)}
    assert len(keys) == 1 + (number > BATCH), "a batch is encrypted anew as a whole or not at all"
    assert {name: (await secrets.get(ACME, name)).value for name in values} == values
    await secrets.put(ACME, "MEANWHILE", Plaintext("x"))

    rotation = await interrupted_rotation.replace_key(tmp_path, database_url)

    (key,) = managed_keys(tmp_path).load_or_make().all
    assert {row.key_id for row in await rows_of(store)} == {key.id} == {rotation.key_id}
    assert {name: (await secrets.get(ACME, name)).value for name in values} == values


@pytest.mark.asyncio
async def test_the_next_key_opens_and_encrypts_once_another_machine_does(
    store: Store, tmp_path: Path
) -> None:
    """What two machines do that follow the steps which `rotate-key --help` names."""
    await with_accounts(store)
    here, there = managed_keys(tmp_path / "here"), managed_keys(tmp_path / "there")
    ours, theirs = Secrets(store.database, here), Secrets(store.database, there)

    def copy_keys() -> None:
        (tmp_path / "there").mkdir(exist_ok=True)
        target = tmp_path / "there" / "secrets.key"
        target.touch(mode=0o600)
        target.write_bytes((tmp_path / "here" / "secrets.key").read_bytes())

    await ours.put(ACME, "A", Plaintext("a"))
    (old,) = here.load_or_make().keys
    following = here.prepare().following
    assert following is not None
    copy_keys()
    await theirs.put(ACME, "B", Plaintext("b"))
    assert {row.key_id for row in await rows_of(store)} == {old.id}

    here.advance()
    here.retire((await ours.rotate()).unused_key_ids)
    assert [key.id for key in here.load_or_make().all] == [following.id]
    assert (await theirs.get(ACME, "A")).value == "a"
    await theirs.put(ACME, "C", Plaintext("c"))
    assert (await ours.get(ACME, "C")).value == "c"

    copy_keys()
    assert there.load() == here.load()
