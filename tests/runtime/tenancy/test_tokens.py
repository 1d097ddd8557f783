"""Tokens, on both databases."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
import sqlalchemy as sa

from tenantry_runtime.errors import InvalidInput, NoSuchRecord, Unauthenticated
from tenantry_runtime.tenancy import Authenticator, NewToken, Store, open_store, schema

HOUR_MS = 3_600_000


class Clock:
    def __init__(self) -> None:
        self.ms = 1_900_000_000_000

    def __call__(self) -> int:
        return self.ms


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest_asyncio.fixture
async def store(database_url: str | None, tmp_path: Path, clock: Clock) -> AsyncIterator[Store]:
    async with open_store(tmp_path, url=database_url, now_ms=clock) as store:
        await store.accounts.create("acme")
        yield store


async def is_good(store: Store, token: NewToken) -> bool:
    try:
        principal = await Authenticator(store).authenticate(token.secret, "acme")
    except Unauthenticated:
        return False
    return principal.token_id == token.id


@pytest.mark.asyncio
async def test_a_token_is_recognizable_and_holds_256_random_bits(store: Store) -> None:
    secrets = {(await store.tokens.create("acme", name="t")).secret for _ in range(3)}

    assert len(secrets) == 3
    for secret in secrets:
        # 32 bytes in base64 without padding are 43 characters
        assert secret.startswith("tenantry_")
        assert len(secret) == len("tenantry_") + 43


@pytest.mark.asyncio
async def test_the_store_has_a_tokens_digest_alone(store: Store) -> None:
    made = await store.tokens.create("acme", name="t")

    async with store.database.connect() as connection:
        row = (await connection.execute(sa.select(schema.tokens))).mappings().one()
    assert row["digest"] == hashlib.sha256(made.secret.encode()).digest()
    assert made.secret not in repr(dict(row))
    assert made.secret not in repr(made)


@pytest.mark.asyncio
async def test_a_token_ends_at_its_time(store: Store, clock: Clock) -> None:
    made = await store.tokens.create("acme", name="t", expires_ms=clock.ms + HOUR_MS)

    clock.ms += HOUR_MS - 1
    assert await is_good(store, made)
    clock.ms += 1
    assert not await is_good(store, made)
    assert [token.is_valid(clock.ms) for token in await store.tokens.list("acme")] == [False]


@pytest.mark.asyncio
@pytest.mark.parametrize("scopes", [[], ["root"], ["run", "Run"]], ids=["none", "unknown", "case"])
async def test_scopes_that_are_none_are_refused(store: Store, scopes: list[str]) -> None:
    with pytest.raises(InvalidInput, match="run, deploy, admin"):
        await store.tokens.create("acme", name="t", scopes=scopes)


@pytest.mark.asyncio
async def test_a_token_that_would_have_ended_already_is_refused(store: Store, clock: Clock) -> None:
    with pytest.raises(InvalidInput, match="passed"):
        await store.tokens.create("acme", name="t", expires_ms=clock.ms)


@pytest.mark.asyncio
async def test_a_revoked_token_is_listed_no_more_and_is_revoked_once(
    store: Store, clock: Clock
) -> None:
    made = await store.tokens.create("acme", name="t")

    assert await store.tokens.revoke(made.id)
    assert not await store.tokens.revoke(made.id)
    assert not await store.tokens.revoke("tok_unknown")

    assert await store.tokens.list("acme") == []
    assert (await store.tokens.get(made.id)).revoked_ms == clock.ms
    assert not await is_good(store, made)


@pytest.mark.asyncio
async def test_after_a_rotation_both_are_good_for_the_grace_period(
    store: Store, clock: Clock
) -> None:
    old = await store.tokens.create("acme", name="ci", scopes=["deploy", "run"])
    clock.ms += 10 * HOUR_MS

    new = await store.tokens.rotate(old.id, grace_ms=HOUR_MS)

    successor = await store.tokens.get(new.id)
    assert (successor.name, successor.scopes) == ("ci", ("run", "deploy"))
    assert successor.expires_ms is None
    assert await is_good(store, old)
    assert await is_good(store, new)
    clock.ms += HOUR_MS
    assert not await is_good(store, old)
    assert await is_good(store, new)


@pytest.mark.asyncio
async def test_a_rotation_without_grace_ends_the_old_one_at_once(store: Store) -> None:
    old = await store.tokens.create("acme", name="t")

    new = await store.tokens.rotate(old.id, grace_ms=0)

    assert not await is_good(store, old)
    assert await is_good(store, new)


@pytest.mark.asyncio
async def test_a_successor_lives_as_long_as_its_forerunner_was_to(
    store: Store, clock: Clock
) -> None:
    old = await store.tokens.create("acme", name="t", expires_ms=clock.ms + 5 * HOUR_MS)
    clock.ms += 4 * HOUR_MS

    new = await store.tokens.rotate(old.id, grace_ms=24 * HOUR_MS)

    # the grace period does not lengthen a life
    assert (await store.tokens.get(old.id)).expires_ms == clock.ms + HOUR_MS
    assert (await store.tokens.get(new.id)).expires_ms == clock.ms + 5 * HOUR_MS


@pytest.mark.asyncio
async def test_what_is_not_valid_cannot_be_rotated(store: Store, clock: Clock) -> None:
    revoked = await store.tokens.create("acme", name="t")
    await store.tokens.revoke(revoked.id)
    expired = await store.tokens.create("acme", name="t", expires_ms=clock.ms + 1)
    clock.ms += 1

    for token_id in (revoked.id, expired.id, "tok_unknown"):
        with pytest.raises(NoSuchRecord, match=token_id):
            await store.tokens.rotate(token_id, grace_ms=HOUR_MS)


@pytest.mark.asyncio
async def test_tokens_are_listed_by_account(store: Store, clock: Clock) -> None:
    await store.accounts.create("beta")
    for account in ("beta", "acme", "beta"):
        clock.ms += 1
        await store.tokens.create(account, name=f"{account} {clock.ms}")

    assert [token.account_id for token in await store.tokens.list()] == ["acme", "beta", "beta"]
    assert [token.name for token in await store.tokens.list("beta")] == [
        "beta 1900000000001",
        "beta 1900000000003",
    ]
