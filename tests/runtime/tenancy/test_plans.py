"""Plans, on both databases."""

from __future__ import annotations

import pytest
from msgspec import UNSET

from tenantry_runtime.errors import InvalidInput, NoSuchRecord, RecordExists, RecordInUse
from tenantry_runtime.tenancy import Authenticator, Plan, Quota, Store
from tenantry_runtime.tenancy.terms import Changes

TEAM: Changes = {("quota", "requests_per_minute"): 60, ("daily_neurons",): 5000.0}


@pytest.mark.asyncio
async def test_three_plans_are_there_from_the_start(store: Store) -> None:
    plans = {plan.id: plan.terms for plan in await store.plans.list()}

    # Workers AI's own limits
    assert plans == {
        "free": Plan(daily_neurons=10_000.0, quota=Quota(requests_per_minute=300)),
        "standard": Plan(quota=Quota(requests_per_minute=300)),
        "unlimited": Plan(),
    }


@pytest.mark.asyncio
async def test_a_plan_is_created_once(store: Store) -> None:
    created = await store.plans.create("team", TEAM)

    assert created.terms == Plan(quota=Quota(requests_per_minute=60), daily_neurons=5000.0)
    assert await store.plans.get("team") == created
    with pytest.raises(RecordExists, match="team"):
        await store.plans.create("team", {})


@pytest.mark.asyncio
async def test_a_change_of_a_plan_holds_from_the_next_request_on(store: Store) -> None:
    await store.plans.create("team", TEAM)
    await store.accounts.create("acme", plan_id="team")
    secret = (await store.tokens.create("acme", name="t")).secret
    authenticator = Authenticator(store)
    assert (await authenticator.authenticate(secret, "acme")).plan.quota.requests_per_minute == 60

    await store.plans.change("team", {("quota", "requests_per_minute"): 7})

    assert (await authenticator.authenticate(secret, "acme")).plan.quota.requests_per_minute == 7
    assert (await store.plans.get("team")).num_accounts == 1


@pytest.mark.asyncio
async def test_a_change_that_an_accounts_exceptions_do_not_fit_is_refused(store: Store) -> None:
    await store.plans.create("team", {("share", "guaranteed"): 0.5})
    await store.accounts.create("acme", plan_id="team", changes={("share", "ceiling"): 0.6})

    with pytest.raises(InvalidInput, match="acme"):
        await store.plans.change("team", {("share", "guaranteed"): 0.7})

    assert (await store.plans.get("team")).terms.share.guaranteed == 0.5


@pytest.mark.asyncio
async def test_a_plan_that_an_account_has_stays(store: Store) -> None:
    await store.plans.create("team", TEAM)
    await store.accounts.create("acme", plan_id="team")

    with pytest.raises(RecordInUse, match="acme"):
        await store.plans.delete("team")

    await store.accounts.change("acme", plan_id="free")
    await store.plans.delete("team")
    with pytest.raises(NoSuchRecord):
        await store.plans.get("team")


@pytest.mark.asyncio
async def test_a_plan_of_deleted_accounts_can_go(store: Store) -> None:
    await store.plans.create("team", TEAM)
    await store.accounts.create("acme", plan_id="team")
    await store.accounts.delete("acme")

    await store.plans.delete("team")

    assert (await store.accounts.get("acme")).deleted_ms is not None


@pytest.mark.asyncio
async def test_the_plan_of_accounts_that_name_none_stays(store: Store) -> None:
    with pytest.raises(RecordInUse):
        await store.plans.delete("unlimited")


@pytest.mark.asyncio
async def test_a_plan_that_is_not_there_is_named(store: Store) -> None:
    for asked in (
        store.plans.get("nope"),
        store.plans.change("nope", {("daily_neurons",): UNSET}),
        store.plans.delete("nope"),
        store.accounts.create("acme", plan_id="nope"),
    ):
        with pytest.raises(NoSuchRecord, match="nope"):
            await asked
