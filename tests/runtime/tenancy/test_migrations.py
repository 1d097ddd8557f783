"""The store's tables through their history, on both databases."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from subprocess import PIPE

import anyio
import pytest
import sqlalchemy as sa
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from sqlalchemy.ext.asyncio import create_async_engine

from tenantry_runtime.errors import ConfigurationError
from tenantry_runtime.tenancy import Authenticator, IncidentKind, Plan, open_store
from tenantry_runtime.tenancy.migrate import MIGRATIONS
from tenantry_runtime.tenancy.schema import metadata
from tenantry_runtime.tenancy.tokens import digest

SECRET = "tenantry_of-an-earlier-version"

OPEN = """
import sys, anyio
from pathlib import Path
from tenantry_runtime.tenancy import open_store

async def main():
    async with open_store(Path(sys.argv[1]), url=sys.argv[2] or None) as store:
        await store.create_account("acme")
        print(len(await store.plans.list()))

anyio.run(main)
"""


class Place:
    """A database apart from any store."""

    def __init__(self, state_dir: Path, url: str | None) -> None:
        self.state_dir = state_dir
        self.url = url

    async def run(self, work: Callable[[sa.Connection], object]) -> None:
        if self.url is None:
            engine = create_async_engine(f"sqlite+aiosqlite:///{self.state_dir / 'tenantry.db'}")
        else:
            engine = create_async_engine("postgresql+asyncpg://", connect_args={"dsn": self.url})
        async with engine.begin() as connection:
            await connection.run_sync(work)
        await engine.dispose()

    async def migrate(self, run: Callable[[Config, str], None], revision: str) -> None:
        def work(connection: sa.Connection) -> None:
            config = Config()
            config.set_main_option("script_location", str(MIGRATIONS))
            config.set_main_option("path_separator", "os")
            config.attributes["connection"] = connection
            run(config, revision)

        await self.run(work)


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgresql)])
def place(tmp_path: Path, request: pytest.FixtureRequest) -> Place:
    is_sqlite = request.param == "sqlite"
    return Place(tmp_path, None if is_sqlite else request.getfixturevalue("empty_postgresql_url"))


def add_rows_of_the_first_version(connection: sa.Connection) -> None:
    connection.execute(
        sa.text("INSERT INTO accounts (id, name, created_ms) VALUES ('acme', 'Acme', 7)")
    )
    connection.execute(
        sa.text(
            "INSERT INTO tokens (id, account_id, name, digest, scopes, created_ms, revoked_ms) "
            "VALUES ('tok_1', 'acme', 'ci', :digest, '[\"run\"]', 8, NULL)"
        ),
        {"digest": digest(SECRET)},
    )


@pytest.mark.asyncio
async def test_the_migrations_make_the_tables_that_the_code_uses(place: Place) -> None:
    async with open_store(place.state_dir, url=place.url):
        pass
    differences: list[object] = []

    def compare(connection: sa.Connection) -> None:
        differences.extend(compare_metadata(MigrationContext.configure(connection), metadata))

    await place.run(compare)
    assert differences == []


@pytest.mark.asyncio
async def test_accounts_and_tokens_of_the_first_version_go_on_without_limits(place: Place) -> None:
    await place.migrate(command.upgrade, "0001")
    await place.run(add_rows_of_the_first_version)

    async with open_store(place.state_dir, url=place.url) as store:
        account = await store.accounts.get("acme")
        principal = await Authenticator(store).authenticate(SECRET, "acme")

    assert (account.name, account.created_ms, account.plan_id) == ("Acme", 7, "unlimited")
    assert (account.overrides, account.suspended_ms, account.deleted_ms) == ({}, None, None)
    assert (principal.token_id, principal.plan) == ("tok_1", Plan())


def add_a_page_of_the_sixth_version(connection: sa.Connection) -> None:
    connection.execute(
        sa.text(
            "INSERT INTO incidents (id, time_ms, node, model, account_id, request_id, step, op, "
            "logical_page, page, found) VALUES ('i1', 9, 'unix:node', 'm', 'acme', 'r1', 7, "
            "'decode read', NULL, 12, '[\"tag\"]')"
        )
    )


@pytest.mark.asyncio
async def test_incidents_of_pages_become_one_kind_of_many_and_go_back(place: Place) -> None:
    await place.migrate(command.upgrade, "0006")
    await place.run(add_a_page_of_the_sixth_version)

    async with open_store(place.state_dir, url=place.url) as store:
        [incident] = await store.incidents.list(account="acme")
        lost = replace(incident, id="i2", kind=IncidentKind.NODE_LOST, facts={})
        await store.incidents.record([lost])

    assert (incident.id, incident.kind, incident.request_ids) == ("i1", "integrity", ("r1",))
    assert (incident.began_ms, incident.ended_ms, incident.node) == (9, 9, "unix:node")
    assert incident.facts == {
        "step": 7,
        "op": "decode read",
        "logical_page": None,
        "page": 12,
        "found": ["tag"],
    }

    await place.migrate(command.downgrade, "0006")
    rows: list[object] = []

    def look(connection: sa.Connection) -> None:
        found = connection.execute(sa.text("SELECT id, time_ms, account_id, page FROM incidents"))
        rows.extend(tuple(row) for row in found)

    await place.run(look)
    # the earlier version has no place for the other
    assert rows == [("i1", 9, "acme", 12)]


@pytest.mark.asyncio
async def test_a_way_back_keeps_accounts_and_tokens(place: Place) -> None:
    await place.migrate(command.upgrade, "0001")
    await place.run(add_rows_of_the_first_version)
    async with open_store(place.state_dir, url=place.url):
        pass

    await place.migrate(command.downgrade, "0001")

    tables: list[str] = []
    rows: list[object] = []

    def look(connection: sa.Connection) -> None:
        tables.extend(sa.inspect(connection).get_table_names())
        for table in ("accounts", "tokens"):
            rows.extend(connection.execute(sa.text(f"SELECT id FROM {table}")).scalars())

    await place.run(look)
    assert sorted(tables) == ["accounts", "alembic_version", "tokens"]
    assert rows == ["acme", "tok_1"]
    # and forward again
    async with open_store(place.state_dir, url=place.url) as store:
        assert (await store.accounts.get("acme")).plan_id == "unlimited"


@pytest.mark.asyncio
async def test_processes_that_start_at_once_take_turns_to_migrate(place: Place) -> None:
    arguments = [sys.executable, "-c", OPEN, str(place.state_dir), place.url or ""]
    printed: list[bytes] = []

    async def start() -> None:
        done = await anyio.run_process(arguments, check=False, stdout=PIPE, stderr=PIPE)
        assert done.returncode == 0, done.stderr.decode()
        printed.append(done.stdout)

    async with anyio.create_task_group() as tasks:
        for _ in range(2):
            tasks.start_soon(start)

    assert printed == [b"3\n", b"3\n"]


@pytest.mark.asyncio
async def test_a_database_of_a_newer_version_is_refused(place: Place) -> None:
    async with open_store(place.state_dir, url=place.url):
        pass

    def age(connection: sa.Connection) -> None:
        connection.execute(sa.text("UPDATE alembic_version SET version_num = '9999'"))

    await place.run(age)
    with pytest.raises(ConfigurationError, match="another version"):
        async with open_store(place.state_dir, url=place.url):
            pass
