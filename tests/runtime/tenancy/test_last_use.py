"""When a token was last used, on both databases."""

from __future__ import annotations

import pytest
import sqlalchemy as sa

from tenantry_runtime.errors import Forbidden, StoreUnavailable
from tenantry_runtime.tenancy import Authenticator, Store
from tenantry_runtime.tenancy.last_use import LastUse

MINUTE_MS = 60_000
NOON_MS = 1_900_000_020_000
"""A whole minute."""


async def last_used_ms(store: Store, token_id: str) -> int | None:
    return (await store.tokens.get(token_id)).last_used_ms


async def a_token(store: Store) -> tuple[str, str]:
    await store.accounts.ensure("acme")
    made = await store.tokens.create("acme", name="t")
    return made.id, made.secret


@pytest.mark.asyncio
async def test_a_use_is_kept_to_the_minute(store: Store) -> None:
    assert NOON_MS % MINUTE_MS == 0
    (first, _), (second, _) = await a_token(store), await a_token(store)
    last_use = LastUse(store.database)

    last_use.note(first, NOON_MS + 59_999)
    last_use.note(second, NOON_MS + 60_000)
    await last_use.write()

    assert await last_used_ms(store, first) == NOON_MS
    assert await last_used_ms(store, second) == NOON_MS + MINUTE_MS


@pytest.mark.asyncio
async def test_a_use_that_another_process_saw_later_stays(store: Store) -> None:
    token, _ = await a_token(store)
    here, there = LastUse(store.database), LastUse(store.database)
    here.note(token, NOON_MS)
    there.note(token, NOON_MS + MINUTE_MS)

    await there.write()
    await here.write()

    assert await last_used_ms(store, token) == NOON_MS + MINUTE_MS


@pytest.mark.asyncio
async def test_requests_write_nothing_until_the_process_ends_or_a_minute_has_passed(
    store: Store,
) -> None:
    token, secret = await a_token(store)
    authenticator = Authenticator(store)
    async with authenticator.last_use.keep():
        await authenticator.authenticate(secret, "acme")
        assert await last_used_ms(store, token) is None

    assert await last_used_ms(store, token) is not None


@pytest.mark.asyncio
async def test_a_token_that_was_refused_was_not_used(store: Store) -> None:
    token, secret = await a_token(store)
    authenticator = Authenticator(store)
    async with authenticator.last_use.keep():
        with pytest.raises(Forbidden):
            await authenticator.authenticate(secret, "other")

    assert await last_used_ms(store, token) is None


@pytest.mark.asyncio
async def test_an_error_of_the_process_comes_out_as_it_is(store: Store) -> None:
    with pytest.raises(ValueError, match="its own"):
        async with LastUse(store.database).keep():
            raise ValueError("its own")


@pytest.mark.asyncio
async def test_a_use_that_could_not_be_written_is_written_later(store: Store) -> None:
    token, _ = await a_token(store)
    last_use = LastUse(store.database)
    last_use.note(token, NOON_MS)

    async with store.database.begin() as connection:
        await connection.execute(sa.text("ALTER TABLE tokens RENAME TO hidden"))
    with pytest.raises((sa.exc.DBAPIError, StoreUnavailable)):
        await last_use.write()
    async with store.database.begin() as connection:
        await connection.execute(sa.text("ALTER TABLE hidden RENAME TO tokens"))
    await last_use.write()

    assert await last_used_ms(store, token) == NOON_MS
