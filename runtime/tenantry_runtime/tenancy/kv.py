"""Namespaces of keys and values, each of one account.

Every statement names the account: to know a namespace's id is to be allowed nothing. What has expired
is not found any more; `KvSweeper` deletes it, and what was in deleted namespaces and accounts.

| holds a namespace's row | and then |
|---|---|
| a write, a deletion, a sweep | its entries, and the row's sums with them |
| a read | nothing |
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from tenantry_runtime.errors import KvRefused

from .database import Database
from .kv_entry import MAX_KEY_BYTES, Write, check_key, encode
from .kv_namespaces import (
    MAX_NAMESPACES as MAX_NAMESPACES,
    Namespace as Namespace,
    Namespaces,
    hold,
    is_,
    no_namespace,
)
from .kv_schema import are, counted, entries, namespaces

MAX_LIST_KEYS = 1000
MAX_PAGE_BYTES = 256 << 10
"""Of keys and metadata; a page with more has fewer keys than it may, and a cursor."""
MAX_READ_KEYS = 100
"""That are read at one time."""
MAX_WRITES = 10_000
"""That are written or deleted at one time."""
MAX_READ_BYTES = 25 << 20
"""Of values that are read at one time."""
MAX_ACCOUNT_BYTES = 1 << 30
"""Of all namespaces of an account. Writes to several at once may exceed it by what they write."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """What is kept under a key."""

    value: bytes
    metadata: bytes | None
    """JSON."""
    expires_ms: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LongEntry:
    """What is kept under a key, and is too long to be read unasked."""

    num_bytes: int
    """About: with key and metadata."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """A key that is there."""

    name: str
    metadata: bytes | None
    """JSON."""
    expires_ms: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyPage:
    """Keys in the order of their bytes."""

    keys: tuple[Key, ...]
    cursor: str | None
    """Where the next page begins; None: there is none."""


class KeyValues(Namespaces):
    """All namespaces and what is in them; safe to share between tasks."""

    def __init__(self, database: Database, *, max_account_bytes: int = MAX_ACCOUNT_BYTES) -> None:
        super().__init__(database)
        self._max_account_bytes = max_account_bytes

    def now_ms(self) -> int:
        """Return the time that expirations are compared with."""
        return self._database.now_ms()

    async def get(self, account: str, namespace_id: str, key: str) -> Entry | None:
        """Return what is under a key, None where there is nothing.

        Raises `KvRefused` for what is no key, `NoSuchRecord` for the namespace.
        """
        found = await self._read(account, namespace_id, [check_key(key)], entries.c.value)
        return None if not found else _entry(found[0])

    async def get_short(
        self, account: str, namespace_id: str, key: str, *, max_bytes: int
    ) -> Entry | LongEntry | None:
        """Do as `get`, where it is at most so long; else say how long it is."""
        is_short = entries.c.num_bytes <= max_bytes
        value = sa.case((is_short, entries.c.value)).label("value")
        found = await self._read(account, namespace_id, [check_key(key)], value)
        if not found:
            return None
        if found[0].value is None:
            return LongEntry(num_bytes=found[0].num_bytes)
        return _entry(found[0])

    async def get_many(
        self, account: str, namespace_id: str, keys: Sequence[str]
    ) -> Mapping[str, Entry]:
        """Return what is under some keys, where there is something. Raises as `get`."""
        if len(keys) > MAX_READ_KEYS:
            raise KvRefused("keys", f"You can request a maximum of {MAX_READ_KEYS} keys")
        encoded = sorted({check_key(key) for key in keys})
        await self._check_sum(account, namespace_id, encoded)
        found = await self._read(account, namespace_id, encoded, entries.c.value)
        return {row.key.decode(): _entry(row) for row in found}

    async def put(self, account: str, namespace_id: str, writes: Sequence[Write]) -> None:
        """Keep values, all or none of them; of a key that comes twice, the last.

        Raises `NoSuchRecord` for the namespace, and `KvRefused` where the account has no room.
        """
        if len(writes) > MAX_WRITES:
            raise KvRefused("keys", f"maximum of {MAX_WRITES} keys at one time exceeded", 413)
        kept = list({write.key: write for write in writes}.values())
        keys = [write.key.encode() for write in kept]
        if not kept:
            return
        insert = self._database.insert(entries)
        changed = ("expires_ms", "num_bytes", "metadata", "value")
        upsert = insert.on_conflict_do_update(
            index_elements=["namespace_id", "key"],
            set_={name: insert.excluded[name] for name in changed},
        )
        async with self._database.begin() as connection:
            await hold(connection, account, namespace_id)
            num_old, old_bytes = await _sizes(connection, namespace_id, keys)
            more = sum(write.num_bytes for write in kept) - old_bytes
            if more > 0:
                await self._require_room(connection, account, more)
            await connection.execute(upsert, [_row(namespace_id, write) for write in kept])
            await connection.execute(counted(namespace_id, len(kept) - num_old, more))
        await self._database.harden()

    async def delete(self, account: str, namespace_id: str, keys: Sequence[str]) -> int:
        """Delete keys, of which some may not be there; return how many were. Raises as `put`."""
        if len(keys) > MAX_WRITES:
            raise KvRefused("keys", f"maximum of {MAX_WRITES} keys at one time exceeded", 413)
        encoded = sorted({check_key(key) for key in keys})
        async with self._database.begin() as connection:
            await hold(connection, account, namespace_id)
            num_old, old_bytes = await _sizes(connection, namespace_id, encoded)
            for some in _batches(encoded):
                await connection.execute(sa.delete(entries).where(are(namespace_id, some)))
            await connection.execute(counted(namespace_id, -num_old, -old_bytes))
        await self._database.harden()
        return num_old

    async def list(
        self,
        account: str,
        namespace_id: str,
        *,
        prefix: str = "",
        limit: int = MAX_LIST_KEYS,
        cursor: str | None = None,
    ) -> KeyPage:
        """Return a page of the keys that begin with something; a page may be short and not the last.

        Raises `KvRefused` for what cannot be listed, `NoSuchRecord` for the namespace.
        """
        _check_limit(limit)
        first, last = _range(prefix)
        if cursor:
            first = max(first, _read_cursor(cursor))
        await self.namespace(account, namespace_id)
        columns = (entries.c.key, entries.c.metadata, entries.c.expires_ms)
        wanted = (
            sa.select(*columns)
            .join(namespaces)
            .where(is_(account, namespace_id), entries.c.key >= first, self._is_alive())
            .order_by(entries.c.key)
            .limit(limit + 1)
        )
        if last is not None:
            wanted = wanted.where(entries.c.key < last)
        async with self._database.connect() as connection:
            found = (await connection.execute(wanted)).all()
        sizes = [len(row.key) + len(row.metadata or b"") for row in found]
        keys = [
            Key(name=row.key.decode(), metadata=row.metadata, expires_ms=row.expires_ms)
            for row in found[: _num_on_page(sizes, limit)]
        ]
        following = found[len(keys)].key if len(keys) < len(found) else None
        return KeyPage(keys=tuple(keys), cursor=None if following is None else _cursor(following))

    # Any: as the columns have it
    async def _read(
        self, account: str, namespace_id: str, keys: Sequence[bytes], value: sa.ColumnElement[bytes]
    ) -> Sequence[sa.Row[Any]]:
        mine = sa.and_(
            entries.c.namespace_id == namespaces.c.id, entries.c.key.in_(keys), self._is_alive()
        )
        known = (entries.c.key, entries.c.num_bytes, entries.c.metadata, entries.c.expires_ms)
        wanted = (
            sa.select(*known, value)
            # of a namespace without the keys there is a row as well
            .select_from(namespaces.outerjoin(entries, mine))
            .where(is_(account, namespace_id))
        )
        async with self._database.connect() as connection:
            found = (await connection.execute(wanted)).all()
        if not found:
            raise no_namespace(namespace_id)
        return [row for row in found if row.key is not None]

    def _is_alive(self) -> sa.ColumnElement[bool]:
        expires_ms = entries.c.expires_ms
        return sa.or_(expires_ms.is_(None), expires_ms > self._database.now_ms())

    async def _check_sum(self, account: str, namespace_id: str, keys: Sequence[bytes]) -> None:
        """Refuse to read more at once than one value may be."""
        wanted = (
            sa.select(sa.func.coalesce(sa.func.sum(entries.c.num_bytes), 0))
            .join(namespaces)
            .where(is_(account, namespace_id), entries.c.key.in_(keys), self._is_alive())
        )
        async with self._database.connect() as connection:
            num_bytes = (await connection.execute(wanted)).scalar_one()
        if num_bytes > MAX_READ_BYTES:
            problem = f"Total size of request exceeds the limit of {MAX_READ_BYTES >> 20}MB"
            raise KvRefused("keys", problem, 413)

    async def _require_room(self, connection: AsyncConnection, account: str, more: int) -> None:
        kept = sa.select(sa.func.coalesce(sa.func.sum(namespaces.c.num_bytes), 0))
        mine = kept.where(namespaces.c.account_id == account, namespaces.c.title.is_not(None))
        num_bytes = (await connection.execute(mine)).scalar_one()
        if num_bytes + more > self._max_account_bytes:
            problem = f"the account's {self._max_account_bytes} bytes are used up"
            raise KvRefused("value", problem, 413)


async def _sizes(
    connection: AsyncConnection, namespace_id: str, keys: Sequence[bytes]
) -> tuple[int, int]:
    """Return how many of the keys are there, and how large together."""
    num_keys = num_bytes = 0
    for some in _batches(keys):
        wanted = sa.select(
            sa.func.count(), sa.func.coalesce(sa.func.sum(entries.c.num_bytes), 0)
        ).where(are(namespace_id, some))
        found = (await connection.execute(wanted)).one()
        num_keys, num_bytes = num_keys + found[0], num_bytes + int(found[1])
    return num_keys, num_bytes


def _batches(keys: Sequence[bytes]) -> list[Sequence[bytes]]:
    # a statement takes 32,766 parameters in SQLite, 32,767 in PostgreSQL
    return [keys[at : at + MAX_LIST_KEYS] for at in range(0, len(keys), MAX_LIST_KEYS)]


def _entry(row: sa.Row[Any]) -> Entry:
    return Entry(value=row.value, metadata=row.metadata, expires_ms=row.expires_ms)


def _row(namespace_id: str, write: Write) -> dict[str, object]:
    return {
        "namespace_id": namespace_id,
        "key": write.key.encode(),
        "expires_ms": write.expires_ms,
        "num_bytes": write.num_bytes,
        "metadata": write.metadata,
        "value": write.value,
    }


def _range(prefix: str) -> tuple[bytes, bytes | None]:
    """Return the first key that begins with a prefix, and the first after them, if there may be one."""
    first = encode(prefix, "prefix")
    if len(first) > MAX_KEY_BYTES:
        problem = (
            f"UTF-8 encoded length of {len(first)} exceeds key length limit of {MAX_KEY_BYTES}."
        )
        raise KvRefused("prefix", problem, 414)
    # UTF-8 has no byte 255, so its last byte can always be one more
    return first, first[:-1] + bytes([first[-1] + 1]) if first else None


def _check_limit(limit: int) -> None:
    problem = f"Invalid key_count_limit of {limit}. Please specify an integer "
    if limit < 1:
        raise KvRefused("limit", f"{problem}greater than 0.")
    if limit > MAX_LIST_KEYS:
        raise KvRefused("limit", f"{problem}less than {MAX_LIST_KEYS}.")


def _num_on_page(sizes: Sequence[int], limit: int) -> int:
    """Return how many keys fit on a page; always one, if there is one."""
    num_bytes = 0
    for at, size in enumerate(sizes[:limit]):
        num_bytes += size
        if at and num_bytes > MAX_PAGE_BYTES:
            return at
    return min(len(sizes), limit)


def _cursor(key: bytes) -> str:
    return base64.urlsafe_b64encode(key).decode()


def _read_cursor(cursor: str) -> bytes:
    try:
        if len(cursor) > 2 * MAX_KEY_BYTES:
            raise binascii.Error
        return base64.b64decode(cursor, altchars=b"-_", validate=True)
    except (binascii.Error, ValueError) as error:
        raise KvRefused("cursor", "Invalid cursor") from error
