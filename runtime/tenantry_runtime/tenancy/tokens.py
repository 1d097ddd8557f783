"""API tokens: how one is made, the digest by which it is known, and what the database keeps of it.

The store keeps digests alone. A plain SHA-256 is enough: a token is 256 random bits, so there is
nothing to guess, and no slow hash to pay for on each request.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from tenantry_runtime.core import TenantId
from tenantry_runtime.errors import InvalidInput, NoSuchRecord

from . import schema
from .accounts import require_account
from .database import Database
from .names import check_name

TOKEN_PREFIX = "tenantry_"
"""Lets people and secret scanners recognize a token."""

TOKEN_BYTES = 32


class Scope(StrEnum):
    """What a token is good for, inside its account."""

    RUN = "run"
    """To call models, and to see which there are."""
    DEPLOY = "deploy"
    """To manage workers and their secrets."""
    ADMIN = "admin"
    """For everything."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """All that is known of a token; the token itself is not."""

    id: str
    account_id: TenantId
    name: str
    scopes: tuple[str, ...]
    created_ms: int
    expires_ms: int | None
    last_used_ms: int | None
    """The minute's beginning."""
    revoked_ms: int | None

    def is_valid(self, now_ms: int) -> bool:
        has_time = self.expires_ms is None or self.expires_ms > now_ms
        return has_time and self.revoked_ms is None


@dataclass(frozen=True, slots=True, kw_only=True)
class NewToken:
    """A token at the only moment at which it can be shown."""

    id: str
    secret: str

    def __repr__(self) -> str:
        return f"NewToken(id={self.id!r}, secret='[secret]')"


class Tokens:
    """What `workerctl token` works on."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def create(
        self,
        account: str,
        *,
        name: str,
        scopes: Iterable[str] = (Scope.RUN,),
        expires_ms: int | None = None,
    ) -> NewToken:
        """Create a token of an account, valid until a time, or until it is revoked.

        Raises `NoSuchRecord` for the account, or `InvalidInput`.
        """
        check_name(name)
        if expires_ms is not None and expires_ms <= self._database.now_ms():
            raise InvalidInput("expires_ms", "has passed")
        values = {"name": name, "scopes": _checked(scopes), "expires_ms": expires_ms}
        async with self._database.begin() as connection:
            await require_account(connection, account)
            return await self._insert(connection, {"account_id": account, **values})

    async def list(self, account: str | None = None) -> list[Token]:
        """Return all that are not revoked, of one account or of all, the oldest first."""
        tokens = schema.tokens
        wanted = _selection().where(tokens.c.revoked_ms.is_(None))
        if account is not None:
            wanted = wanted.where(tokens.c.account_id == account)
        ordered = wanted.order_by(tokens.c.account_id, tokens.c.created_ms, tokens.c.id)
        async with self._database.connect() as connection:
            found = await connection.execute(ordered)
        return [_token(row) for row in found.mappings()]

    async def get(self, token_id: str) -> Token:
        """Return one, revoked or not, or raise `NoSuchRecord`."""
        async with self._database.connect() as connection:
            found = await connection.execute(_selection().where(schema.tokens.c.id == token_id))
        row = found.mappings().one_or_none()
        if row is None:
            raise _no_token(token_id)
        return _token(row)

    async def rotate(self, token_id: str, *, grace_ms: int) -> NewToken:
        """Make a token's successor, of the same name, scopes and lifetime, and let it end.

        For the grace period both are valid; with none, the old one is revoked. Raises
        `NoSuchRecord` where it is not valid any more.
        """
        now_ms = self._database.now_ms()
        tokens = schema.tokens
        wanted = _selection().where(tokens.c.id == token_id).with_for_update()
        async with self._database.begin() as connection:
            row = (await connection.execute(wanted)).mappings().one_or_none()
            if row is None or not (old := _token(row)).is_valid(now_ms):
                raise _no_token(token_id)
            await require_account(connection, old.account_id)
            ends_ms = min(now_ms + grace_ms, old.expires_ms or now_ms + grace_ms)
            ending = {"expires_ms": ends_ms} if grace_ms > 0 else {"revoked_ms": now_ms}
            await connection.execute(
                sa.update(tokens).where(tokens.c.id == token_id).values(**ending)
            )
            lifetime_ms = None if old.expires_ms is None else old.expires_ms - old.created_ms
            successor = {
                "account_id": old.account_id,
                "name": old.name,
                "scopes": list(old.scopes),
                "expires_ms": None if lifetime_ms is None else now_ms + lifetime_ms,
            }
            return await self._insert(connection, successor)

    async def revoke(self, token_id: str) -> bool:
        """Revoke a token for good, at once; False if there is none that is not revoked."""
        tokens = schema.tokens
        async with self._database.begin() as connection:
            revoked = await connection.execute(
                sa.update(tokens)
                .where(tokens.c.id == token_id, tokens.c.revoked_ms.is_(None))
                .values(revoked_ms=self._database.now_ms())
            )
        return revoked.rowcount > 0

    # Any: whatever the columns hold
    async def _insert(self, connection: AsyncConnection, values: dict[str, Any]) -> NewToken:
        created = NewToken(id=new_token_id(), secret=new_secret())
        row = {
            **values,
            "id": created.id,
            "digest": digest(created.secret),
            "created_ms": self._database.now_ms(),
        }
        await connection.execute(sa.insert(schema.tokens).values(row))
        return created


def new_secret() -> str:
    """Draw a token of 256 random bits."""
    return TOKEN_PREFIX + secrets.token_urlsafe(TOKEN_BYTES)


def new_token_id() -> str:
    """Draw an id by which a token can be named in listings and logs."""
    return "tok_" + secrets.token_hex(8)


def digest(secret: str) -> bytes:
    """Return what the store keeps of a token."""
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).digest()


def _checked(scopes: Iterable[str]) -> list[str]:
    wanted = list(dict.fromkeys(scopes))
    known = [str(scope) for scope in Scope]
    if not wanted or not set(wanted) <= set(known):
        raise InvalidInput("scopes", f"must be some of {', '.join(known)}, not {wanted!r}")
    return [scope for scope in known if scope in wanted]


def _selection() -> sa.Select[tuple[Any, ...]]:
    return sa.select(*(column for column in schema.tokens.c if column.name != "digest"))


def _token(row: sa.RowMapping) -> Token:
    return Token(**{**row, "scopes": tuple(row["scopes"])})


def _no_token(token_id: str) -> NoSuchRecord:
    return NoSuchRecord("valid token", token_id, "`workerctl token list` lists them")
