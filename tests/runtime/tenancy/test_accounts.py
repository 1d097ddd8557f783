"""Accounts, on both databases."""

from __future__ import annotations

import anyio
import pytest
import sqlalchemy as sa
from msgspec import UNSET

from tenantry_runtime.errors import InvalidInput, NoSuchRecord, RecordExists
from tenantry_runtime.tenancy import Account, Quota, Store, schema


@pytest.mark.asyncio
async def test_an_account_has_the_terms_of_its_plan_with_its_exceptions(store: Store) -> None:
    created = await store.accounts.create(
        "acme", name="Acme Corp", plan_id="standard", changes={("share", "weight"): 2.0}
    )

    assert (created.id, created.name, created.plan_id) == ("acme", "Acme Corp", "standard")
    assert created.terms.quota == Quota(requests_per_minute=300)
    assert created.terms.share.weight == 2.0
    assert created.overrides == {"share": {"weight": 2.0}}
    assert await store.accounts.get("acme") == created


@pytest.mark.asyncio
async def test_what_may_not_be_an_id_or_a_name_makes_no_account(store: Store) -> None:
    for wrong in (store.accounts.create("Acme"), store.accounts.create("acme", name="")):
        with pytest.raises(InvalidInput):
            await wrong

    assert await store.accounts.list() == []


@pytest.mark.asyncio
async def test_an_account_is_created_once_whoever_tries(store: Store) -> None:
    made: list[Account] = []
    refused: list[RecordExists] = []

    async def create(name: str) -> None:
        try:
            made.append(await store.accounts.create("acme", name=name))
        except RecordExists as error:
            refused.append(error)

    async with anyio.create_task_group() as tasks:
        for number in range(4):
            tasks.start_soon(create, f"number {number}")

    assert (len(made), len(refused)) == (1, 3)
    assert await store.accounts.list() == made


@pytest.mark.asyncio
async def test_exceptions_that_do_not_fit_change_nothing(store: Store) -> None:
    await store.accounts.create("acme", changes={("share", "ceiling"): 0.4})

    with pytest.raises(InvalidInput) as refused:
        await store.accounts.change("acme", name="new", changes={("share", "guaranteed"): 0.5})

    assert refused.value.field == "share.guaranteed"
    assert (await store.accounts.get("acme")).name == "acme"


@pytest.mark.asyncio
async def test_changes_at_one_time_are_all_kept(store: Store) -> None:
    await store.accounts.create("acme")
    keys = ("requests_per_minute", "tokens_per_minute", "concurrent_requests", "queue_depth")

    async def change(key: str) -> None:
        await store.accounts.change("acme", changes={("quota", key): 5})

    async with anyio.create_task_group() as tasks:
        for key in keys:
            tasks.start_soon(change, key)

    assert (await store.accounts.get("acme")).overrides == {"quota": dict.fromkeys(keys, 5)}


@pytest.mark.asyncio
async def test_an_exception_that_is_taken_away_leaves_the_plans_value(store: Store) -> None:
    path = ("quota", "requests_per_minute")
    await store.accounts.create("acme", plan_id="standard", changes={path: 5})

    changed = await store.accounts.change("acme", changes={path: UNSET})

    assert changed.terms.quota.requests_per_minute == 300
    assert changed.overrides == {}


@pytest.mark.asyncio
async def test_a_suspension_keeps_its_beginning_and_ends(store: Store) -> None:
    await store.accounts.create("acme")

    first = await store.accounts.suspend("acme")
    assert first.suspended_ms is not None
    assert await store.accounts.suspend("acme") == first

    assert (await store.accounts.resume("acme")).suspended_ms is None


@pytest.mark.asyncio
async def test_a_deleted_account_loses_tokens_and_secrets_and_keeps_its_usage(store: Store) -> None:
    for account in ("acme", "other"):
        await store.accounts.create(account)
        await store.tokens.create(account, name="t")
    async with store.database.begin() as connection:
        for account in ("acme", "other"):
            await connection.execute(
                sa.insert(schema.secrets).values(
                    account_id=account, name="KEY", key_id="1", sealed=b"x", updated_ms=1
                )
            )
        counts = ("requests", "input_tokens", "cached_tokens", "output_tokens", "reasoning_tokens")
        await connection.execute(
            sa.insert(schema.daily_usage).values(
                account_id="acme",
                day="2030-01-01",
                model="m",
                worker="",
                cost=7,
                **dict.fromkeys(counts, 1),
            )
        )

    await store.accounts.delete("acme")

    assert [account.id for account in await store.accounts.list()] == ["other"]
    assert [account.id for account in await store.accounts.list(deleted=True)] == ["acme", "other"]
    assert [token.account_id for token in await store.tokens.list()] == ["other"]
    async with store.database.connect() as connection:
        assert list(await connection.scalars(sa.select(schema.secrets.c.account_id))) == ["other"]
        assert list(await connection.scalars(sa.select(schema.daily_usage.c.cost))) == [7]


@pytest.mark.asyncio
async def test_the_id_of_a_deleted_account_is_not_used_again(store: Store) -> None:
    await store.accounts.create("acme")
    await store.accounts.delete("acme")

    for again in (store.accounts.create("acme"), store.accounts.ensure("acme")):
        with pytest.raises(RecordExists, match="deleted"):
            await again


@pytest.mark.asyncio
async def test_nothing_can_be_done_to_an_account_that_is_gone(store: Store) -> None:
    await store.accounts.create("acme")
    await store.accounts.delete("acme")

    for account in ("acme", "nobody"):
        for asked in (
            store.accounts.change(account, name="n"),
            store.accounts.suspend(account),
            store.accounts.resume(account),
            store.accounts.delete(account),
            store.tokens.create(account, name="t"),
        ):
            with pytest.raises(NoSuchRecord, match=account):
                await asked
