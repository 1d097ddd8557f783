"""What expires is deleted by every edge, also by one that runs no workers."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest
import sqlalchemy as sa

from support.edge_process import an_edge_process
from tenantry_runtime.tenancy import Store, open_store
from tenantry_runtime.tenancy.kv_entry import a_write
from tenantry_runtime.tenancy.kv_schema import entries


async def keep_expired(directory: Path) -> None:
    """Keep a value that has expired since."""
    async with open_store(directory) as store:
        await store.create_account("alice")
        namespace = await store.kv.create_namespace("alice", "notes")
        write = a_write("k", b"v", now_ms=0, ttl_s=60)
        await store.kv.put("alice", namespace.id, [write])
        assert await num_kept(store) == 1


async def num_kept(store: Store) -> int:
    async with store.database.connect() as connection:
        counted = await connection.execute(sa.select(sa.func.count()).select_from(entries))
        return int(counted.scalar_one())


@pytest.mark.asyncio
async def test_an_edge_without_workers_deletes_what_has_expired(tmp_path: Path) -> None:
    await keep_expired(tmp_path / "state")
    async with an_edge_process(tmp_path), open_store(tmp_path / "state") as store:
        with anyio.fail_after(30):
            # another process's doing: nothing tells of it
            while await num_kept(store):  # noqa: ASYNC110
                await anyio.sleep(0.02)
