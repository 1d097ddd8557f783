"""Who a token is, on both databases."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager

import pytest
import pytest_asyncio
import sqlalchemy as sa

from tenantry_runtime.core import TenantId
from tenantry_runtime.errors import (
    AccountSuspended,
    ConfigurationError,
    Forbidden,
    RecordExists,
    Unauthenticated,
)
from tenantry_runtime.tenancy import (
    Authenticator,
    Plan,
    Principal,
    Quota,
    Scope,
    Store,
    ensure_access,
    require_scope,
    schema,
)

ALICE, BOB = TenantId("alice"), TenantId("bob")


@pytest_asyncio.fixture
async def store(store: Store) -> AsyncIterator[Store]:
    for account in (ALICE, BOB):
        await store.accounts.create(account)
    yield store


@contextmanager
def statements() -> Iterator[list[str]]:
    """Collect what is asked of any database."""
    seen: list[str] = []

    def note(_connection: object, _cursor: object, statement: str, *_others: object) -> None:
        seen.append(statement)

    sa.event.listen(sa.Engine, "before_cursor_execute", note)
    try:
        yield seen
    finally:
        sa.event.remove(sa.Engine, "before_cursor_execute", note)


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

    await store.tokens.revoke(created.id)

    with pytest.raises(Unauthenticated):
        await authenticator.authenticate(created.secret, "alice")


@pytest.mark.asyncio
@pytest.mark.parametrize("account", ["bob", "nobody"], ids=["another", "unknown"])
async def test_a_token_opens_no_other_account(store: Store, account: str) -> None:
    created = await store.create_token(ALICE, name="t")

    with pytest.raises(Forbidden):
        await Authenticator(store).authenticate(created.secret, account)


@pytest.mark.asyncio
async def test_a_token_without_an_account_beside_it_names_its_own(store: Store) -> None:
    created = await store.create_token(ALICE, name="t", scopes=["run"])
    authenticator = Authenticator(store)

    principal = await authenticator.authenticate(created.secret, None)

    assert principal.tenant == ALICE
    with pytest.raises(Forbidden):
        await authenticator.authenticate(created.secret, None, Scope.ADMIN)
    with pytest.raises(Unauthenticated):
        await authenticator.authenticate(created.secret + "x", None)


@pytest.mark.asyncio
async def test_a_token_that_differs_in_its_last_character_is_unknown(store: Store) -> None:
    secret = (await store.create_token(ALICE, name="t")).secret
    other = secret[:-1] + ("A" if secret[-1] != "A" else "B")

    with pytest.raises(Unauthenticated):
        await Authenticator(store).authenticate(other, "alice")


@pytest.mark.asyncio
async def test_a_principal_has_the_terms_of_plan_and_exceptions(store: Store) -> None:
    await store.accounts.change(ALICE, plan_id="free", changes={("quota", "queue_depth"): 3})
    secret = (await store.tokens.create(ALICE, name="t")).secret

    principal = await Authenticator(store).authenticate(secret, ALICE)

    assert principal.plan == Plan(
        daily_neurons=10_000.0, quota=Quota(requests_per_minute=300, queue_depth=3)
    )


@pytest.mark.asyncio
async def test_a_suspended_account_is_told_so_until_it_resumes(store: Store) -> None:
    secret = (await store.tokens.create(ALICE, name="t")).secret
    authenticator = Authenticator(store)

    await store.accounts.suspend(ALICE)
    with pytest.raises(AccountSuspended):
        await authenticator.authenticate(secret, ALICE)
    # nobody else learns of it
    with pytest.raises(Forbidden):
        await authenticator.authenticate(secret, BOB)

    await store.accounts.resume(ALICE)
    assert (await authenticator.authenticate(secret, ALICE)).tenant == ALICE


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("scopes", "asked", "is_good"),
    [
        (["run"], Scope.RUN, True),
        (["run"], Scope.DEPLOY, False),
        (["run"], Scope.ADMIN, False),
        (["deploy"], Scope.RUN, False),
        (["deploy", "run"], Scope.RUN, True),
        (["admin"], Scope.RUN, True),
        (["admin"], Scope.DEPLOY, True),
    ],
)
async def test_a_token_is_good_for_its_scopes(
    store: Store, scopes: list[str], asked: Scope, is_good: bool
) -> None:
    secret = (await store.tokens.create(ALICE, name="t", scopes=scopes)).secret
    authenticator = Authenticator(store)

    if is_good:
        assert (await authenticator.authenticate(secret, ALICE, asked)).tenant == ALICE
    else:
        with pytest.raises(Forbidden):
            await authenticator.authenticate(secret, ALICE, asked)


def test_a_principal_without_scopes_may_nothing() -> None:
    nobody = Principal(tenant=ALICE, token_id="tok_1", scopes=frozenset())

    for scope in Scope:
        with pytest.raises(Forbidden):
            require_scope(nobody, scope)


@pytest.mark.asyncio
async def test_every_token_that_is_none_takes_the_same_way_to_the_same_answer(
    store: Store,
) -> None:
    now_ms = store.database.now_ms()
    revoked, expired, orphan = [
        await store.tokens.create(account, name="t", expires_ms=now_ms + 60_000)
        for account in (ALICE, ALICE, BOB)
    ]
    await store.tokens.revoke(revoked.id)
    await store.accounts.delete(BOB)
    async with store.database.begin() as connection:
        await connection.execute(
            sa.update(schema.tokens)
            .where(schema.tokens.c.id == expired.id)
            .values(expires_ms=now_ms - 1)
        )
    unknown = "tenantry_" + secrets.token_urlsafe(32)
    authenticator = Authenticator(store)
    # once, as what the first statement prepares is not asked again
    with pytest.raises(Unauthenticated):
        await authenticator.authenticate(unknown, ALICE)

    asked: list[list[str]] = []
    for secret in (unknown, revoked.secret, expired.secret, orphan.secret, "short", "", None):
        with statements() as seen, pytest.raises(Unauthenticated) as refused:
            await authenticator.authenticate(secret, BOB if secret == orphan.secret else ALICE)
        assert refused.value.args == ()
        asked.append(seen)

    assert len(asked[0]) == 1
    assert asked == asked[:1] * len(asked)


@pytest.mark.asyncio
async def test_terms_that_nobody_could_have_set_are_the_operators_business(store: Store) -> None:
    secret = (await store.tokens.create(ALICE, name="t")).secret
    async with store.database.begin() as connection:
        await connection.execute(
            sa.update(schema.accounts).values(overrides={"quota": {"queue_depth": "many"}})
        )

    with pytest.raises(ConfigurationError, match=r"alice.*quota\.queue_depth"):
        await Authenticator(store).authenticate(secret, ALICE)


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


@pytest.mark.asyncio
async def test_access_is_not_made_around_a_suspension_or_a_deletion(store: Store) -> None:
    known = await ensure_access(store, ALICE, known=None, token_name="machine")

    await store.accounts.suspend(ALICE)
    with pytest.raises(AccountSuspended):
        await ensure_access(store, ALICE, known=known, token_name="machine")

    await store.accounts.delete(ALICE)
    with pytest.raises(RecordExists, match="deleted"):
        await ensure_access(store, ALICE, known=known, token_name="machine")


@pytest.mark.asyncio
async def test_a_worker_calls_as_its_tenant_on_the_terms_that_hold(store: Store) -> None:
    await store.accounts.change(ALICE, changes={("quota", "requests_per_minute"): 7})
    authenticator = Authenticator(store)

    principal = await authenticator.principal_of(ALICE, worker="w", version="v")

    assert (principal.tenant, principal.token_id) == (ALICE, "")
    assert (principal.worker, principal.worker_version) == ("w", "v")
    assert principal.scopes == {"run"}
    assert principal.plan.quota.requests_per_minute == 7

    await store.accounts.suspend(ALICE)
    with pytest.raises(AccountSuspended):
        await authenticator.principal_of(ALICE, worker="w", version="v")
    await store.accounts.delete(BOB)
    with pytest.raises(Forbidden):
        await authenticator.principal_of(BOB, worker="w", version="v")
