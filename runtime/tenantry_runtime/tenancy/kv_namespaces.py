"""Namespaces of keys and values, each of one account."""

from __future__ import annotations

import secrets
from dataclasses import asdict, dataclass

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from tenantry_runtime.core import TenantId
from tenantry_runtime.errors import InvalidInput, NoSuchRecord, RecordExists

from .accounts import require_account
from .database import Database
from .kv_schema import namespaces

MAX_NAMESPACES = 1000
"""Of one account, as Cloudflare has it."""
MAX_TITLE_CHARS = 512


@dataclass(frozen=True, slots=True, kw_only=True)
class Namespace:
    id: str
    account_id: TenantId
    title: str
    created_ms: int
    num_keys: int
    """Expired ones too, until they are swept away."""
    num_bytes: int


class Namespaces:
    """All of them; what is in them is `kv.KeyValues`'."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def create_namespace(self, account: str, title: str) -> Namespace:
        """Create a namespace under a title that the account has not.

        Raises `NoSuchRecord` for the account, `InvalidInput`, or `RecordExists` for the title.
        """
        _check_title(title)
        created = Namespace(
            id=secrets.token_hex(16),
            account_id=TenantId(account),
            title=title,
            created_ms=self._database.now_ms(),
            num_keys=0,
            num_bytes=0,
        )
        async with self._database.begin() as connection:
            await require_account(connection, account)
            counted = sa.select(sa.func.count()).where(
                namespaces.c.account_id == account, namespaces.c.title.is_not(None)
            )
            if (await connection.execute(counted)).scalar_one() >= MAX_NAMESPACES:
                raise InvalidInput(
                    "title", f"the account has {MAX_NAMESPACES} namespaces, no more fit"
                )
            insert = (
                self._database.insert(namespaces).values(asdict(created)).on_conflict_do_nothing()
            )
            if (await connection.execute(insert)).rowcount == 0:
                raise RecordExists("KV namespace", title)
        return created

    async def rename_namespace(self, account: str, namespace_id: str, title: str) -> None:
        """Give a namespace another title. Raises as `create_namespace`, and `NoSuchRecord`."""
        _check_title(title)
        async with self._database.begin() as connection:
            await hold(connection, account, namespace_id)
            taken = sa.select(namespaces.c.id).where(
                namespaces.c.account_id == account,
                namespaces.c.title == title,
                namespaces.c.id != namespace_id,
            )
            if (await connection.execute(taken)).one_or_none() is not None:
                raise RecordExists("KV namespace", title)
            await connection.execute(_update(namespace_id, title=title))

    async def delete_namespace(self, account: str, namespace_id: str) -> None:
        """Delete a namespace: nothing of it is found any more. Raises `NoSuchRecord`."""
        async with self._database.begin() as connection:
            await hold(connection, account, namespace_id)
            await connection.execute(_update(namespace_id, title=None))

    async def namespace(self, account: str, namespace_id: str) -> Namespace:
        """Return one. Raises `NoSuchRecord`."""
        wanted = sa.select(namespaces).where(is_(account, namespace_id))
        async with self._database.connect() as connection:
            row = (await connection.execute(wanted)).mappings().one_or_none()
        if row is None:
            raise no_namespace(namespace_id)
        return Namespace(**row)

    async def find_namespace(self, account: str, id_or_title: str) -> Namespace:
        """Return the account's own that has an id, else the one that has a title.

        Configurations that were written elsewhere have ids that nobody has here. Raises `NoSuchRecord`.
        """
        wanted = sa.select(namespaces).where(
            namespaces.c.account_id == account,
            namespaces.c.title.is_not(None),
            sa.or_(namespaces.c.id == id_or_title, namespaces.c.title == id_or_title),
        )
        async with self._database.connect() as connection:
            rows = (await connection.execute(wanted)).mappings().all()
        found = sorted((Namespace(**row) for row in rows), key=lambda each: each.id != id_or_title)
        if not found:
            raise no_namespace(id_or_title)
        return found[0]

    async def list_namespaces(
        self, account: str, *, offset: int = 0, limit: int = MAX_NAMESPACES
    ) -> tuple[list[Namespace], int]:
        """Return some of an account's namespaces, the oldest first, and how many there are."""
        mine = (namespaces.c.account_id == account, namespaces.c.title.is_not(None))
        wanted = sa.select(namespaces).where(*mine)
        ordered = wanted.order_by(namespaces.c.created_ms, namespaces.c.id)
        async with self._database.connect() as connection:
            found = await connection.execute(ordered.offset(offset).limit(limit))
            counted = await connection.execute(sa.select(sa.func.count()).where(*mine))
            return [Namespace(**row) for row in found.mappings()], counted.scalar_one()


async def hold(connection: AsyncConnection, account: str, namespace_id: str) -> None:
    """Hold a namespace's row until the transaction ends, or raise `NoSuchRecord`."""
    wanted = sa.select(namespaces.c.id).where(is_(account, namespace_id))
    # of the kind that lets entries refer to it
    held = await connection.execute(wanted.with_for_update(key_share=True))
    if held.one_or_none() is None:
        raise no_namespace(namespace_id)


def is_(account: str, namespace_id: str) -> sa.ColumnElement[bool]:
    return sa.and_(
        namespaces.c.id == namespace_id,
        namespaces.c.account_id == account,
        namespaces.c.title.is_not(None),
    )


def _update(namespace_id: str, *, title: str | None) -> sa.Update:
    return sa.update(namespaces).where(namespaces.c.id == namespace_id).values(title=title)


def _check_title(title: str) -> None:
    if not title or len(title) > MAX_TITLE_CHARS or not title.isprintable():
        raise InvalidInput(
            "title",
            f"must be 1 to {MAX_TITLE_CHARS} printable characters, not {title[:80]!r}",
        )


def no_namespace(namespace_id: str) -> NoSuchRecord:
    hint = "the id or the title of one of the account's own names it"
    return NoSuchRecord("KV namespace", namespace_id[:64], hint)
