"""Secrets of tenants, encrypted at rest with AES-256-GCM.

`sealed` in the store:

| bytes | what |
|---|---|
| 1 | version of this layout: 1 |
| 12 | nonce, drawn at random for every encryption |
| as many as the secret has | ciphertext |
| 16 | tag |

The associated data is the version, then account, name and key id, and of a worker's secret the
worker's id, each behind its length (uint32, little-endian): a row that is moved to another tenant,
worker or name, or said to be of another key, does not open. What the store's reader still learns of a secret is its length and when it was put; who can
write to the store can put back an older value of the same secret.

Random nonces are safe for 2**32 encryptions under one key; `rotate` starts the count anew.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import sqlalchemy as sa
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from sqlalchemy.ext.asyncio import AsyncConnection

from tenantry_runtime.core import TenantId
from tenantry_runtime.errors import InvalidInput, NoSuchRecord, SecretDamaged, SecretKeyMissing

from . import schema
from .accounts import require_account
from .database import Database
from .secret_keys import Key, KeyRing, KeySource

VERSION = 1
NONCE_BYTES = 12
TAG_BYTES = 16

MAX_SECRET_BYTES = 32 << 10
"""A private key with its chain of certificates fits."""
MAX_SECRETS = 256
"""Of one tenant."""
MAX_NAME = 128

BATCH = 100
"""Secrets that one transaction of a rotation holds back writers for."""

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}", re.ASCII)

_LOCK = 0x7365637265747321
"""PostgreSQL's advisory lock: shared by whoever puts, alone by who looks for the last old secret."""

_secrets = schema.secrets


@dataclass(frozen=True, slots=True)
class Plaintext:
    """A secret's value. It prints as nothing that tells it."""

    value: str

    def __repr__(self) -> str:
        return "[secret]"

    __str__ = __repr__


@dataclass(frozen=True, slots=True, kw_only=True)
class SecretListing:
    """What is told of a secret without opening it."""

    name: str
    updated_ms: int


class Damaged(NamedTuple):
    """A secret that no key opens."""

    account: str
    name: str
    problem: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Rotation:
    """What one pass has done."""

    key_id: str
    """Of the key that encrypts now."""
    num_encrypted: int
    """Secrets that were under another key."""
    left: tuple[Damaged, ...]
    """Those that still are, because they do not open."""
    unused_key_ids: tuple[str, ...]
    """Of keys that nothing is encrypted with any more."""


class Place(NamedTuple):
    """Where a secret is kept: nowhere else does it open."""

    account: str
    name: str
    worker: str = ""
    """Id; empty for a secret of the account's own."""


class _Shelf(NamedTuple):
    """A table of secrets."""

    table: sa.Table
    # Any: texts
    key: tuple[sa.Column[Any], ...]

    def place(self, row: sa.RowMapping) -> Place:
        return Place(row["account_id"], row["name"], row.get("worker_id", ""))


_SHELVES = (
    _Shelf(_secrets, (_secrets.c.account_id, _secrets.c.name)),
    _Shelf(schema.worker_secrets, (schema.worker_secrets.c.id,)),
)


class Secrets:
    """The secrets of all tenants in one store. Keys are read when they are needed, and not kept."""

    def __init__(self, database: Database, keys: KeySource) -> None:
        self._database = database
        self._keys = keys

    async def put(self, account: TenantId, name: str, value: Plaintext) -> None:
        """Encrypt and keep a secret, in the place of one of the same name.

        Raises `InvalidInput` for a bad name, a value that is too large or one too many,
        `NoSuchRecord` for the account, and `SecretKeyMissing` where the store has secrets under keys
        that are not here: then this machine's keys are not the store's.
        """
        plain = checked(name, value)
        async with self._database.begin() as connection:
            await self._check_room(connection, account, name)
            key = await self.writer(connection)
            row = {
                "key_id": key.id,
                "sealed": seal(key, account, name, plain),
                "updated_ms": self._database.now_ms(),
            }
            added = self._database.insert(_secrets).values(account_id=account, name=name, **row)
            place = [_secrets.c.account_id, _secrets.c.name]
            await connection.execute(added.on_conflict_do_update(index_elements=place, set_=row))

    async def get(self, account: TenantId, name: str) -> Plaintext:
        """Decrypt a secret.

        Raises `NoSuchRecord` where there is none, `SecretKeyMissing` where its key is not here, and
        `SecretDamaged` where the key does not open it.
        """
        wanted = sa.select(_secrets.c.key_id, _secrets.c.sealed).where(_at(account, name))
        async with self._database.connect() as connection:
            row = (await connection.execute(wanted)).one_or_none()
        if row is None:
            raise NoSuchRecord("secret", name)
        place = Place(account, name)
        return Plaintext(self.opened(self._keys.load(), place, row.key_id, row.sealed).decode())

    async def list(self, account: TenantId) -> list[SecretListing]:
        """Return names and dates of an account's secrets, by name."""
        wanted = (
            sa.select(_secrets.c.name, _secrets.c.updated_ms)
            .where(_secrets.c.account_id == account)
            .order_by(_secrets.c.name)
        )
        async with self._database.connect() as connection:
            return [SecretListing(**row) for row in (await connection.execute(wanted)).mappings()]

    async def delete(self, account: TenantId, name: str) -> bool:
        """Forget a secret; False if there is none."""
        async with self._database.begin() as connection:
            gone = await connection.execute(sa.delete(_secrets).where(_at(account, name)))
        return gone.rowcount > 0

    async def forget(self, account: TenantId) -> int:
        """Forget all of an account's secrets; return how many there were. No key is needed."""
        async with self._database.begin() as connection:
            gone = await connection.execute(
                sa.delete(_secrets).where(_secrets.c.account_id == account)
            )
        return gone.rowcount

    async def rotate(self) -> Rotation:
        """Encrypt everything anew that is not under the key that encrypts now.

        It may be interrupted anywhere and run again, and others may go on putting: then those that
        are done are left alone. When it has run to its end, keys that it names as unused may go.
        """
        ring = self._keys.load_or_make()
        target = ring.keys[0]
        num_encrypted, left = 0, list[Damaged]()
        for shelf in _SHELVES:
            after: tuple[str, ...] | None = ("",) * len(shelf.key)
            while after is not None:
                num_done, damaged, after = await self._rotate_batch(shelf, ring, target, after)
                num_encrypted += num_done
                left += damaged
        async with self._database.begin() as connection:
            # who put with an older key has finished, who comes next reads the newer one
            await self._lock(connection, alone=True)
            used = await _used_keys(connection)
        unused = tuple(key.id for key in ring.keys if key.id not in used | {target.id})
        return Rotation(
            key_id=target.id,
            num_encrypted=num_encrypted,
            left=tuple(left),
            unused_key_ids=unused,
        )

    async def _rotate_batch(
        self, shelf: _Shelf, ring: KeyRing, target: Key, after: tuple[str, ...]
    ) -> tuple[int, Sequence[Damaged], tuple[str, ...] | None]:
        table = shelf.table
        wanted = (
            sa.select(table)
            .where(table.c.key_id != target.id, sa.tuple_(*shelf.key) > after)
            .order_by(*shelf.key)
            .limit(BATCH)
        )
        num_done, damaged = 0, list[Damaged]()
        async with self._database.begin() as connection:
            rows = (await connection.execute(wanted)).mappings().all()
            for row in rows:
                place = shelf.place(row)
                try:
                    plain = self.opened(ring, place, row["key_id"], row["sealed"])
                except (SecretDamaged, SecretKeyMissing) as error:
                    damaged.append(Damaged(place.account, place.name, str(error)))
                    continue
                sealed = seal(target, place.account, place.name, plain, worker=place.worker)
                # what somebody has put meanwhile is newer than what was read here
                here = [column == row[column.name] for column in shelf.key]
                done = await connection.execute(
                    sa.update(table)
                    .where(*here, table.c.sealed == row["sealed"])
                    .values(key_id=target.id, sealed=sealed)
                )
                num_done += done.rowcount
        last = rows[-1] if rows else None
        place_of_last = None if last is None else tuple(last[column.name] for column in shelf.key)
        return num_done, damaged, place_of_last

    async def writer(self, connection: AsyncConnection) -> Key:
        """Return the key to encrypt with until a transaction ends.

        Raises `SecretKeyMissing` if it would not be the store's.
        """
        await self._lock(connection, alone=False)
        ring = self._keys.load()
        known = [] if ring is None else [key.id for key in ring.all]
        for shelf in _SHELVES:
            unknown = sa.select(shelf.table).where(shelf.table.c.key_id.not_in(known)).limit(1)
            stranger = (await connection.execute(unknown)).mappings().one_or_none()
            if stranger is not None:
                place, key_id = shelf.place(stranger), stranger["key_id"]
                raise SecretKeyMissing(place.account, place.name, key_id, self._keys.name)
        ring = ring or self._keys.load_or_make()
        if ring.following is not None and ring.following.id in await _used_keys(connection):
            return ring.following
        return ring.keys[0]

    def keys(self) -> KeyRing | None:
        """Return the keys as they are now, for `opened`."""
        return self._keys.load()

    async def _check_room(self, connection: AsyncConnection, account: str, name: str) -> None:
        await require_account(connection, account)
        others = sa.select(sa.func.count()).where(
            _secrets.c.account_id == account, _secrets.c.name != name
        )
        if (await connection.execute(others)).scalar_one() >= MAX_SECRETS:
            raise InvalidInput("name", f"the account has {MAX_SECRETS} secrets; delete one first")

    def opened(self, ring: KeyRing | None, place: Place, key_id: str, sealed: bytes) -> bytes:
        """Decrypt a secret; raise `SecretKeyMissing` or `SecretDamaged`."""
        key = None if ring is None else ring.find(key_id)
        if key is None:
            raise SecretKeyMissing(place.account, place.name, key_id, self._keys.name)
        return unseal(key, place.account, place.name, sealed, worker=place.worker)

    async def _lock(self, connection: AsyncConnection, *, alone: bool) -> None:
        # SQLite has one writer at a time anyway
        if not self._database.is_sqlite:
            lock = sa.func.pg_advisory_xact_lock if alone else sa.func.pg_advisory_xact_lock_shared
            await connection.execute(sa.select(lock(_LOCK)))


def seal(key: Key, account: str, name: str, plain: bytes, *, worker: str = "") -> bytes:
    """Encrypt a secret for one place in the store; `worker` is an id, empty for the account's own."""
    nonce = os.urandom(NONCE_BYTES)
    bound = _bound(account, name, key.id, worker)
    return bytes([VERSION]) + nonce + AESGCM(key.material).encrypt(nonce, plain, bound)


def unseal(key: Key, account: str, name: str, sealed: bytes, *, worker: str = "") -> bytes:
    """Decrypt what was sealed for this place; raise `SecretDamaged` for anything else."""
    if len(sealed) < 1 + NONCE_BYTES + TAG_BYTES or sealed[0] != VERSION:
        raise SecretDamaged(account, name, key.id)
    nonce, encrypted = sealed[1 : 1 + NONCE_BYTES], sealed[1 + NONCE_BYTES :]
    try:
        bound = _bound(account, name, key.id, worker)
        return AESGCM(key.material).decrypt(nonce, encrypted, bound)
    except InvalidTag as error:
        raise SecretDamaged(account, name, key.id) from error


def _bound(account: str, name: str, key_id: str, worker: str) -> bytes:
    parts = [part.encode() for part in (account, name, key_id, *filter(None, [worker]))]
    return bytes([VERSION]) + b"".join(len(part).to_bytes(4, "little") + part for part in parts)


def checked(name: str, value: Plaintext) -> bytes:
    """Return the bytes of a secret; raise `InvalidInput` for a name or a value that none may have."""
    if not _NAME.fullmatch(name):
        raise InvalidInput(
            "name",
            f"{name[:MAX_NAME]!r} is not 1 to {MAX_NAME} of A-Z, a-z, 0-9 and _, no digit first",
        )
    try:
        plain = value.value.encode()
    except UnicodeEncodeError:
        # the error itself has the value in it
        raise InvalidInput("value", "is not text that UTF-8 can hold") from None
    if not 0 < len(plain) <= MAX_SECRET_BYTES:
        raise InvalidInput("value", f"has {len(plain)} bytes; 1 to {MAX_SECRET_BYTES} are allowed")
    return plain


def _at(account: str, name: str) -> sa.ColumnElement[bool]:
    return sa.and_(_secrets.c.account_id == account, _secrets.c.name == name)


async def _used_keys(connection: AsyncConnection) -> set[str]:
    used = sa.union(*(sa.select(shelf.table.c.key_id) for shelf in _SHELVES))
    return set(await connection.scalars(used))
