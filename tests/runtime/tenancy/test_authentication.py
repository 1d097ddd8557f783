from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from tenantry_runtime.core import TenantId
from tenantry_runtime.errors import Forbidden, Unauthenticated
from tenantry_runtime.tenancy import Authenticator, Store, ensure_access, open_store

ALICE, BOB = TenantId("alice"), TenantId("bob")


@pytest_asyncio.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    async with open_store(tmp_path) as store:
        await store.create_account(ALICE)
        await store.create_account(BOB)
        yield store


@pytest.mark.asyncio
async def test_a_token_of_the_account_names_its_tenant(store: Store) -> None:
    created = await store.create_token(ALICE, name="t", scopes=["run", "deploy"])

    principal = await Authenticator(store).authenticate(created.secret, "alice")

    assert principal.tenant == "alice"
    assert principal.token_id == created.id
    assert principal.scopes == {"run", "deploy"}


@pytest.mark.asyncio
@pytest.mark.parametrize(
    "secret",
    [
        None,
        "",
        "tenantry_",
        "tenantry_" + "A" * 43,
        "another-kind",
        "tenantry_\ud800",
        "tenantry_\x00",
    ],
    ids=["none", "empty", "prefix", "unknown", "foreign", "surrogate", "zero byte"],
)
async def test_a_missing_or_unknown_token_is_unauthenticated(
    store: Store, secret: str | None
) -> None:
    with pytest.raises(Unauthenticated):
        await Authenticator(store).authenticate(secret, "alice")


@pytest.mark.asyncio
async def test_a_revoked_token_is_unauthenticated_at_once(store: Store) -> None:
    created = await store.create_token(ALICE, name="t")
    authenticator = Authenticator(store)
    await authenticator.authenticate(created.secret, "alice")

    await store.revoke_token(created.id)

    with pytest.raises(Unauthenticated):
        await authenticator.authenticate(created.secret, "alice")


@pytest.mark.asyncio
@pytest.mark.parametrize("account", ["bob", "nobody"], ids=["another", "unknown"])
async def test_a_token_opens_no_other_account(store: Store, account: str) -> None:
    created = await store.create_token(ALICE, name="t")

    with pytest.raises(Forbidden):
        await Authenticator(store).authenticate(created.secret, account)


@pytest.mark.asyncio
async def test_a_token_that_differs_in_its_last_character_is_unknown(store: Store) -> None:
    secret = (await store.create_token(ALICE, name="t")).secret
    other = secret[:-1] + ("A" if secret[-1] != "A" else "B")

    with pytest.raises(Unauthenticated):
        await Authenticator(store).authenticate(other, "alice")


@pytest.mark.asyncio
async def test_access_is_made_once_and_kept_while_it_is_valid(store: Store) -> None:
    dev = TenantId("dev")
    first = await ensure_access(store, dev, known=None, token_name="machine")

    assert await ensure_access(store, dev, known=first, token_name="machine") == first
    assert (await Authenticator(store).authenticate(first, "dev")).tenant == "dev"


@pytest.mark.asyncio
async def test_access_is_made_anew_for_a_token_of_another_store_or_account(store: Store) -> None:
    dev = TenantId("dev")
    alices = (await store.create_token(ALICE, name="t")).secret

    for known in ("tenantry_" + "A" * 43, alices):
        made = await ensure_access(store, dev, known=known, token_name="machine")
        assert made != known
        assert (await Authenticator(store).authenticate(made, "dev")).tenant == "dev"
