"""Namespaces of keys and values, on both databases."""

from __future__ import annotations

from typing import Any

import anyio
import pytest
import pytest_asyncio
import sqlalchemy as sa

from support.limits import Clock
from tenantry_runtime.errors import InvalidInput, KvRefused, NoSuchRecord, RecordExists
from tenantry_runtime.tenancy import Store
from tenantry_runtime.tenancy.kv import KeyValues, Namespace
from tenantry_runtime.tenancy.kv_entry import Write, a_write
from tenantry_runtime.tenancy.kv_schema import entries, namespaces
from tenantry_runtime.tenancy.kv_sweep import MAX_PER_STEP, MAX_STEPS, KvSweeper

ALICE, BOB = "alice", "bob"


@pytest.fixture
def clock(store: Store) -> Clock:
    clock = Clock()
    store.database.now_ms = clock
    return clock


@pytest_asyncio.fixture
async def kv(store: Store, clock: Clock) -> KeyValues:
    for account in (ALICE, BOB):
        await store.create_account(account)
    return store.kv


@pytest_asyncio.fixture
async def notes(kv: KeyValues) -> Namespace:
    return await kv.create_namespace(ALICE, "notes")


def a(kv: KeyValues, key: str, value: bytes = b"v", **options: Any) -> Write:
    return a_write(key, value, now_ms=kv.now_ms(), **options)


async def put(kv: KeyValues, namespace: Namespace, *keys: str, **options: Any) -> None:
    await kv.put(namespace.account_id, namespace.id, [a(kv, key, **options) for key in keys])


async def names(kv: KeyValues, namespace: Namespace, **options: Any) -> list[str]:
    page = await kv.list(namespace.account_id, namespace.id, **options)
    return [key.name for key in page.keys]


async def num_rows(store: Store, table: sa.Table) -> int:
    async with store.database.connect() as connection:
        counted = await connection.execute(sa.select(sa.func.count()).select_from(table))
    number: int = counted.scalar_one()
    return number


@pytest.mark.asyncio
async def test_what_is_put_is_found_with_its_metadata_and_expiration(
    kv: KeyValues, notes: Namespace, clock: Clock
) -> None:
    value = bytes(range(256))
    await put(kv, notes, "ключ/🔑", value=value, metadata={"a": [1, None]}, ttl_s=90)

    found = await kv.get(ALICE, notes.id, "ключ/🔑")

    assert found is not None
    assert (found.value, found.metadata) == (value, b'{"a":[1,null]}')
    assert found.expires_ms == clock.now_ms + 90_000
    assert await kv.get(ALICE, notes.id, "ключ") is None


@pytest.mark.asyncio
async def test_a_second_put_replaces_all_of_the_first(kv: KeyValues, notes: Namespace) -> None:
    await put(kv, notes, "k", value=b"first", metadata=1, ttl_s=60)
    await put(kv, notes, "k", value=b"2")

    found = await kv.get(ALICE, notes.id, "k")

    assert found is not None
    assert (found.value, found.metadata, found.expires_ms) == (b"2", None, None)
    now = await kv.namespace(ALICE, notes.id)
    assert (now.num_keys, now.num_bytes) == (1, 2)


@pytest.mark.asyncio
async def test_an_expired_key_is_neither_found_nor_listed_and_is_swept(
    store: Store, kv: KeyValues, notes: Namespace, clock: Clock
) -> None:
    await put(kv, notes, "short", ttl_s=60)
    await put(kv, notes, "long", expiration_s=clock.now_ms // 1000 + 61)
    await put(kv, notes, "kept")
    clock.advance(60)

    assert await kv.get(ALICE, notes.id, "short") is None
    assert await names(kv, notes) == ["kept", "long"]
    assert await num_rows(store, entries) == 3

    assert await KvSweeper(store.database).sweep() == 1
    assert await num_rows(store, entries) == 2
    now = await kv.namespace(ALICE, notes.id)
    assert (now.num_keys, now.num_bytes) == (2, len("longvkeptv"))


@pytest.mark.asyncio
async def test_a_tenant_finds_nothing_of_another_by_the_id_of_a_namespace(
    kv: KeyValues, notes: Namespace
) -> None:
    await put(kv, notes, "secret")
    attempts = [
        kv.namespace(BOB, notes.id),
        kv.get(BOB, notes.id, "secret"),
        kv.get_many(BOB, notes.id, ["secret", "other"]),
        kv.list(BOB, notes.id),
        kv.put(BOB, notes.id, [a(kv, "secret", b"forged")]),
        kv.delete(BOB, notes.id, ["secret"]),
        kv.rename_namespace(BOB, notes.id, "mine"),
        kv.delete_namespace(BOB, notes.id),
    ]
    for attempt in attempts:
        with pytest.raises(NoSuchRecord):
            await attempt

    assert await kv.list_namespaces(BOB) == ([], 0)
    found = await kv.get(ALICE, notes.id, "secret")
    assert found is not None
    assert found.value == b"v"


@pytest.mark.asyncio
async def test_a_cursor_of_one_namespace_opens_no_other(kv: KeyValues, notes: Namespace) -> None:
    theirs = await kv.create_namespace(BOB, "theirs")
    await put(kv, notes, "a1", "a2", "a3")
    await put(kv, theirs, "a0", "a9")
    cursor = (await kv.list(ALICE, notes.id, limit=1)).cursor

    page = await kv.list(BOB, theirs.id, cursor=cursor)

    assert [key.name for key in page.keys] == ["a9"]


@pytest.mark.asyncio
async def test_keys_are_listed_in_pages_in_the_order_of_their_bytes(
    kv: KeyValues, notes: Namespace
) -> None:
    # by the bytes of UTF-8, which a database's language would order otherwise
    keys = ["B", "a", "a/", "a/1", "a/é", "a0", "b", "Ω", "￿", "😀"]
    await put(kv, notes, *reversed(keys))
    listed, cursor = [], None
    while True:
        page = await kv.list(ALICE, notes.id, limit=3, cursor=cursor)
        assert len(page.keys) <= 3
        listed += [key.name for key in page.keys]
        cursor = page.cursor
        if cursor is None:
            break

    assert listed == keys == sorted(keys, key=str.encode)
    assert await names(kv, notes, prefix="a/") == ["a/", "a/1", "a/é"]
    assert await names(kv, notes, prefix="😀") == ["😀"]
    assert await names(kv, notes, prefix="c") == []
    # a cursor from elsewhere stays inside the prefix
    cursor = (await kv.list(ALICE, notes.id, limit=1)).cursor
    assert await names(kv, notes, prefix="a/", cursor=cursor) == ["a/", "a/1", "a/é"]


@pytest.mark.asyncio
async def test_a_last_page_that_is_full_has_no_cursor(kv: KeyValues, notes: Namespace) -> None:
    await put(kv, notes, "a", "b")
    assert (await kv.list(ALICE, notes.id, limit=2)).cursor is None
    assert (await kv.list(ALICE, notes.id, limit=1)).cursor is not None


@pytest.mark.asyncio
async def test_several_are_written_read_and_deleted_at_once(
    kv: KeyValues, notes: Namespace
) -> None:
    writes = [a(kv, "a", b"1"), a(kv, "b", b"2"), a(kv, "a", b"3")]
    await kv.put(ALICE, notes.id, writes)

    found = await kv.get_many(ALICE, notes.id, ["a", "b", "c"])
    assert {key: entry.value for key, entry in found.items()} == {"a": b"3", "b": b"2"}

    assert await kv.delete(ALICE, notes.id, ["a", "c"]) == 1
    assert await names(kv, notes) == ["b"]
    now = await kv.namespace(ALICE, notes.id)
    assert (now.num_keys, now.num_bytes) == (1, 2)


@pytest.mark.asyncio
async def test_writes_to_one_namespace_at_the_same_time_all_count(
    kv: KeyValues, notes: Namespace
) -> None:
    async with anyio.create_task_group() as tasks:
        for at in range(8):
            tasks.start_soon(put, kv, notes, f"own-{at}", "shared")

    now = await kv.namespace(ALICE, notes.id)
    assert (now.num_keys, now.num_bytes) == (9, 8 * len("own-0v") + len("sharedv"))


@pytest.mark.asyncio
async def test_an_account_keeps_no_more_than_it_may(store: Store, notes: Namespace) -> None:
    kv = KeyValues(store.database, max_account_bytes=10)
    other = await kv.create_namespace(ALICE, "other")
    await put(kv, notes, "k", value=b"x" * 5)

    with pytest.raises(KvRefused, match="used up"):
        await put(kv, other, "k", value=b"x" * 4)

    assert await names(kv, other) == []
    # what it replaces makes room
    await put(kv, notes, "k", value=b"y" * 9)
    await kv.delete(ALICE, notes.id, ["k"])
    await put(kv, other, "k", value=b"x" * 9)


@pytest.mark.asyncio
async def test_namespaces_are_listed_renamed_and_deleted(
    store: Store, kv: KeyValues, clock: Clock, notes: Namespace
) -> None:
    clock.advance(1)
    second = await kv.create_namespace(ALICE, "second")
    assert await kv.list_namespaces(ALICE) == ([notes, second], 2)
    assert await kv.list_namespaces(ALICE, offset=1, limit=1) == ([second], 2)

    with pytest.raises(RecordExists):
        await kv.create_namespace(ALICE, "notes")
    with pytest.raises(RecordExists):
        await kv.rename_namespace(ALICE, second.id, "notes")
    # another account's titles are its own
    await kv.create_namespace(BOB, "notes")

    await kv.rename_namespace(ALICE, second.id, "renamed")
    assert (await kv.namespace(ALICE, second.id)).title == "renamed"

    await put(kv, notes, "k")
    await kv.delete_namespace(ALICE, notes.id)
    with pytest.raises(NoSuchRecord):
        await kv.get(ALICE, notes.id, "k")
    again = await kv.create_namespace(ALICE, "notes")
    assert await names(kv, again) == []

    await KvSweeper(store.database).sweep()
    assert await num_rows(store, entries) == 0
    assert await num_rows(store, namespaces) == 3


@pytest.mark.asyncio
async def test_what_a_deleted_account_kept_is_swept(
    store: Store, kv: KeyValues, notes: Namespace
) -> None:
    await put(kv, notes, "k")
    await store.accounts.delete(ALICE)

    await KvSweeper(store.database).sweep()

    assert await num_rows(store, namespaces) == await num_rows(store, entries) == 0


@pytest.mark.asyncio
async def test_one_sweep_is_bounded_and_the_next_goes_on(
    store: Store, kv: KeyValues, notes: Namespace, clock: Clock
) -> None:
    num_keys = MAX_PER_STEP * MAX_STEPS + 1
    await put(kv, notes, *(f"{at}" for at in range(num_keys)), ttl_s=60)
    clock.advance(60)
    sweeper = KvSweeper(store.database)

    assert await sweeper.sweep() == num_keys - 1
    assert await sweeper.sweep() == 1
    assert (await kv.namespace(ALICE, notes.id)).num_bytes == 0


@pytest.mark.parametrize(
    ("key", "options", "problem"),
    [
        ("", {}, "Key name cannot be empty."),
        (".", {}, '"." is not allowed as a key name.'),
        ("..", {}, '".." is not allowed as a key name.'),
        (
            "é" * 257,
            {},
            "UTF-8 encoded length of 514 exceeds key length limit of 512.",
        ),
        ("\ud800", {}, "is no text that UTF-8 can write"),
        ("k", {"value": bytes((25 << 20) + 1)}, "Value length of 26214401 exceeds limit of"),
        ("k", {"metadata": "x" * 1023}, "Metadata length of 1025 exceeds limit of 1024."),
        ("k", {"metadata": {1, "x"}, "ttl_s": 1}, "Invalid expiration_ttl of 1."),
        ("k", {"metadata": object()}, "Metadata must be serializable to JSON."),
        ("k", {"ttl_s": 59}, "Invalid expiration_ttl of 59. Expiration TTL must be at least 60."),
        ("k", {"ttl_s": 0}, "Invalid expiration_ttl of 0. Please specify integer greater than 0."),
        ("k", {"ttl_s": 1 << 62}, "Expiration TTL must be at most"),
        ("k", {"expiration_s": 100}, "Please specify integer greater than the current number of"),
        ("k", {"expiration_s": 159}, "Expiration times must be at least 60 seconds in the future."),
        ("k", {"expiration_s": 1 << 62}, "must be at most"),
    ],
)
def test_what_cannot_be_kept_is_refused_in_cloudflares_words(
    key: str, options: dict[str, Any], problem: str
) -> None:
    with pytest.raises(KvRefused) as refused:
        a_write(key, options.pop("value", b"v"), now_ms=100_000, **options)
    assert problem in refused.value.problem


def test_the_longest_key_value_and_metadata_fit() -> None:
    write = a_write(
        "é" * 256, bytes(25 << 20), now_ms=0, metadata="x" * 1022, ttl_s=60, expiration_s=1
    )
    # the time to live wins
    assert write.expires_ms == 60_000


@pytest.mark.asyncio
@pytest.mark.parametrize(
    "options",
    [{"limit": 0}, {"limit": 1001}, {"cursor": "!"}, {"cursor": "A" * 4096}, {"prefix": "x" * 513}],
)
async def test_what_cannot_be_listed_is_refused(
    kv: KeyValues, notes: Namespace, options: dict[str, Any]
) -> None:
    with pytest.raises(KvRefused):
        await kv.list(ALICE, notes.id, **options)


@pytest.mark.asyncio
async def test_titles_are_printable_and_not_endless(kv: KeyValues) -> None:
    for title in ("", "a\nb", "x" * 513, "a\0"):
        with pytest.raises(InvalidInput):
            await kv.create_namespace(ALICE, title)


@pytest.mark.asyncio
async def test_a_page_of_long_keys_and_metadata_is_short_and_goes_on(
    kv: KeyValues, notes: Namespace
) -> None:
    keys = [f"{at:0512}" for at in range(300)]
    await put(kv, notes, *keys, metadata="m" * 1000)
    listed, cursor, num_pages = [], None, 0
    while num_pages == 0 or cursor is not None:
        page = await kv.list(ALICE, notes.id, cursor=cursor)
        assert sum(len(key.name) + len(key.metadata or b"") for key in page.keys) <= 256 << 10
        listed += [key.name for key in page.keys]
        cursor, num_pages = page.cursor, num_pages + 1

    assert listed == keys
    assert num_pages == 2
