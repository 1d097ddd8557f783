"""The store in its file: SQLite's own promises."""

from __future__ import annotations

import hashlib
import sqlite3
import sys
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest

from tenantry_runtime.core import TenantId
from tenantry_runtime.errors import ConfigurationError, StoreUnavailable
from tenantry_runtime.tenancy import open_store

DEV = TenantId("dev")


def rows(state_dir: Path, query: str) -> list[tuple[object, ...]]:
    connection = sqlite3.connect(state_dir / "tenantry.db")
    try:
        return connection.execute(query).fetchall()
    finally:
        connection.close()


def contains(folder: Path, needle: bytes) -> bool:
    return any(needle in path.read_bytes() for path in folder.iterdir())


@pytest.mark.asyncio
async def test_accounts_and_tokens_survive_a_restart(tmp_path: Path) -> None:
    async with open_store(tmp_path, now_ms=lambda: 7) as store:
        await store.create_account(DEV, name="Development")
        created = await store.create_token(DEV, name="first")

    async with open_store(tmp_path) as store:
        token = await store.tokens.get(created.id)

    assert (token.id, token.account_id, token.name) == (created.id, "dev", "first")
    assert (token.scopes, token.created_ms, token.revoked_ms) == (("run",), 7, None)


@pytest.mark.asyncio
async def test_creating_an_account_again_returns_the_first(tmp_path: Path) -> None:
    async with open_store(tmp_path) as store:
        first = await store.create_account(DEV, name="Development")
        assert await store.create_account(DEV, name="Other") == first


@pytest.mark.asyncio
async def test_only_the_digest_of_a_token_reaches_the_disk(tmp_path: Path) -> None:
    async with open_store(tmp_path) as store:
        await store.create_account(DEV)
        secret = (await store.create_token(DEV, name="t")).secret

    [(digest,)] = rows(tmp_path, "SELECT digest FROM tokens")
    assert digest == hashlib.sha256(secret.encode()).digest()
    assert not contains(tmp_path, secret.encode())


@pytest.mark.asyncio
async def test_a_new_token_does_not_show_itself_in_logs(tmp_path: Path) -> None:
    async with open_store(tmp_path) as store:
        await store.create_account(DEV)
        created = await store.create_token(DEV, name="t")

    assert created.secret not in repr(created)


@pytest.mark.asyncio
async def test_only_the_owner_can_read_the_database(tmp_path: Path) -> None:
    state_dir = tmp_path / "state"
    async with open_store(state_dir) as store:
        await store.create_account(DEV)
        files = sorted(state_dir.glob("tenantry.db*"))
        modes = {path.name: path.stat().st_mode & 0o777 for path in files}

    # WAL mode is on: its two files lie beside the database
    assert modes == {"tenantry.db": 0o600, "tenantry.db-shm": 0o600, "tenantry.db-wal": 0o600}
    assert state_dir.stat().st_mode & 0o777 == 0o700


@pytest.mark.asyncio
async def test_a_database_that_others_could_read_becomes_private(tmp_path: Path) -> None:
    (tmp_path / "tenantry.db").touch(mode=0o644)

    async with open_store(tmp_path):
        assert (tmp_path / "tenantry.db").stat().st_mode & 0o777 == 0o600


@pytest.mark.asyncio
async def test_stores_that_open_at_once_take_turns_to_migrate(tmp_path: Path) -> None:
    async def use() -> None:
        async with open_store(tmp_path) as store:
            await store.create_account(DEV)

    async with anyio.create_task_group() as tasks:
        for _ in range(4):
            tasks.start_soon(use)

    assert rows(tmp_path, "SELECT id FROM accounts") == [("dev",)]


_SELECT = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1])
print(*sorted(row[0] for row in connection.execute("SELECT id FROM accounts")))
connection.close()
"""


@pytest.mark.asyncio
async def test_a_second_store_of_a_process_takes_nothing_from_the_first(tmp_path: Path) -> None:
    async def seen_by_another_process() -> str:
        command = [sys.executable, "-c", _SELECT, str(tmp_path / "tenantry.db")]
        return (await anyio.run_process(command)).stdout.decode().strip()

    async with open_store(tmp_path) as first:
        await first.create_account(DEV)
        async with open_store(tmp_path):
            pass
        # were the first's locks gone, this one would take itself for the last and delete the log
        assert await seen_by_another_process() == "dev"
        await first.create_account(TenantId("later"))
        assert await seen_by_another_process() == "dev later"


@pytest.mark.asyncio
async def test_a_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    (tmp_path / "tenantry.db").write_bytes(b"not a database, but long enough to look at" * 100)

    with pytest.raises(ConfigurationError, match=r"tenantry\.db is unusable"):
        async with open_store(tmp_path):
            pass


@pytest.mark.asyncio
async def test_a_state_directory_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    with pytest.raises(ConfigurationError, match="state directory"):
        async with open_store(tmp_path / "file"):
            pass


@pytest.mark.asyncio
async def test_a_store_whose_tables_are_gone_says_so(tmp_path: Path) -> None:
    async with open_store(tmp_path) as store:
        await store.check()
        connection = sqlite3.connect(tmp_path / "tenantry.db")
        connection.execute("DROP TABLE tokens")
        connection.execute("DROP TABLE accounts")
        connection.commit()
        connection.close()

        with pytest.raises(StoreUnavailable, match="no such table"):
            await store.check()


@pytest.mark.asyncio
async def test_a_writer_that_others_keep_waiting_for_too_long_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tenantry_runtime.tenancy.database.BUSY_TIMEOUT_MS", 1)
    async with open_store(tmp_path) as store:
        await store.check()
        other = sqlite3.connect(tmp_path / "tenantry.db", isolation_level=None)
        other.execute("BEGIN IMMEDIATE")

        with pytest.raises(StoreUnavailable, match="locked"):
            await store.create_account(DEV)
        # who reads waits for nobody
        assert await store.accounts.list() == []

        other.execute("ROLLBACK")
        other.close()
        assert (await store.create_account(DEV)).id == "dev"


@pytest.mark.asyncio
async def test_whoever_is_canceled_leaves_no_connection_half_closed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with anyio.CancelScope() as scope:
        async with open_store(tmp_path) as store:
            await store.create_account(DEV)
            scope.cancel()
            await anyio.lowlevel.checkpoint()
    assert scope.cancelled_caught
    assert caplog.records == []
