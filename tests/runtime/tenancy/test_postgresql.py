"""What PostgreSQL alone can do to a store: be away, refuse, and be shared."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest

from support.postgresql import LOCKED_PASSWORD, LOCKED_USER, PostgresqlServer
from tenantry_runtime.errors import ConfigurationError, StoreUnavailable, Unauthenticated
from tenantry_runtime.tenancy import Authenticator, open_store

pytestmark = pytest.mark.postgresql


@pytest.mark.asyncio
async def test_a_store_fails_while_its_server_is_away_and_works_when_it_is_back(
    postgresql: PostgresqlServer, postgresql_url: str, tmp_path: Path
) -> None:
    async with open_store(tmp_path, url=postgresql_url) as store:
        await store.create_account("acme")
        secret = (await store.create_token("acme", name="t")).secret
        authenticator = Authenticator(store)

        postgresql.stop()
        try:
            for _ in range(3):
                with pytest.raises(StoreUnavailable):
                    await authenticator.authenticate(secret, "acme")
            with pytest.raises(StoreUnavailable):
                await store.check()
        finally:
            postgresql.start()

        await store.check()
        assert (await authenticator.authenticate(secret, "acme")).tenant == "acme"


@pytest.mark.asyncio
async def test_a_connection_that_died_at_rest_is_replaced_unnoticed(
    postgresql: PostgresqlServer,
    postgresql_url: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tenantry_runtime.tenancy.database.RESTED_S", 0)
    async with open_store(tmp_path, url=postgresql_url) as store:
        await store.create_account("acme")
        postgresql.stop()
        postgresql.start()

        assert (await store.accounts.get("acme")).id == "acme"


@pytest.mark.asyncio
async def test_a_change_is_seen_at_once_by_every_process_of_a_database(
    postgresql_url: str, tmp_path: Path
) -> None:
    async with (
        open_store(tmp_path / "a", url=postgresql_url) as here,
        open_store(tmp_path / "b", url=postgresql_url) as there,
    ):
        await here.create_account("acme")
        made = await here.create_token("acme", name="t")
        authenticator = Authenticator(there)
        await authenticator.authenticate(made.secret, "acme")

        await here.revoke_token(made.id)

        with pytest.raises(Unauthenticated):
            await authenticator.authenticate(made.secret, "acme")
    # all is in the database
    assert not (tmp_path / "a").exists()


@pytest.mark.asyncio
async def test_more_tasks_than_connections_wait_for_each_other(
    postgresql_url: str, tmp_path: Path
) -> None:
    async with open_store(tmp_path, url=postgresql_url) as store:
        async with anyio.create_task_group() as tasks:
            for number in range(60):
                tasks.start_soon(store.create_account, f"t{number}")

        assert len(await store.accounts.list()) == 60


@pytest.mark.asyncio
async def test_a_password_lets_in(postgresql: PostgresqlServer, tmp_path: Path) -> None:
    url = postgresql.url("postgres", user=LOCKED_USER, password=LOCKED_PASSWORD)
    with pytest.raises(ConfigurationError, match="permission denied"):
        # it may come in, but make no tables in a database of another
        async with open_store(tmp_path, url=url):
            pass


@pytest.mark.asyncio
async def test_a_database_that_cannot_be_used_is_named_in_one_line_without_its_password(
    postgresql: PostgresqlServer, tmp_path: Path
) -> None:
    for url, problem in {
        postgresql.url("postgres", user=LOCKED_USER, password="s3cret"): "password authentication",
        postgresql.url("nowhere", password="s3cret"): 'database "nowhere" does not exist',
        "postgresql://u:s3cret@127.0.0.1:1/db": "cannot be reached",
        "postgresql://u:s3cret@/db?host=/no/such/folder": "cannot be reached",
        postgresql.url("postgres", password="s3cret") + "&nonsense=1": "nonsense",
        "mysql://u:s3cret@host/db": "postgresql://USER@HOST/DATABASE",
        "postgresql://u:s3cret/@host/db": "postgresql://USER@HOST/DATABASE",
        "postgresql://u:s3cret@host/": "names no database",
    }.items():
        with pytest.raises(ConfigurationError) as refused:
            async with open_store(tmp_path, url=url):
                pass
        message = str(refused.value)
        assert problem in message
        assert "s3cret" not in message
        assert "\n" not in message
