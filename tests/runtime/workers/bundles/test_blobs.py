"""Bundles' files: out of the store once, then from the disk, and always what their digest says."""

from __future__ import annotations

import os
from hashlib import sha256
from pathlib import Path

import pytest
import sqlalchemy as sa

from tenantry_runtime.errors import ConfigurationError, NoSuchRecord
from tenantry_runtime.tenancy import Store, open_store, schema
from tenantry_runtime.tenancy.workers import BlobStore
from tenantry_runtime.workers.bundles.blobs import MAX_CACHED_BYTES, StoredBundles
from tenantry_runtime.workers.spec import SourceFile

CONTENT = b"x = 1\n"
DIGEST = sha256(CONTENT).hexdigest()


def a_file(content: bytes = CONTENT) -> SourceFile:
    digest = sha256(content).hexdigest()
    return SourceFile(path="entry.py", digest=digest, num_bytes=len(content))


def bundles_of(
    store: Store, directory: Path, max_cached_bytes: int = MAX_CACHED_BYTES
) -> StoredBundles:
    # nobody asks for a set of dependencies
    return StoredBundles(
        BlobStore(store.database),
        directory,
        dependencies=str,
        max_cached_bytes=max_cached_bytes,
    )


async def change_stored(store: Store, content: bytes) -> None:
    async with store.database.begin() as connection:
        await connection.execute(sa.update(schema.worker_blobs).values(content=content))


def cached(directory: Path) -> list[Path]:
    return [path for path in (directory / "blobs").rglob("*") if path.is_file()]


@pytest.mark.asyncio
async def test_a_file_is_read_from_the_store_once(tmp_path: Path) -> None:
    async with open_store(tmp_path) as store:
        bundles = bundles_of(store, tmp_path)
        await BlobStore(store.database).put(CONTENT)

        assert await bundles.read(a_file()) == CONTENT
        await change_stored(store, b"other")
        assert await bundles.read(a_file()) == CONTENT

    (path,) = cached(tmp_path)
    assert os.stat(path).st_mode & 0o777 == 0o600


@pytest.mark.asyncio
async def test_a_file_that_was_altered_on_the_disk_is_read_from_the_store(tmp_path: Path) -> None:
    async with open_store(tmp_path) as store:
        bundles = bundles_of(store, tmp_path)
        await BlobStore(store.database).put(CONTENT)
        await bundles.read(a_file())
        (path,) = cached(tmp_path)
        path.write_bytes(b"evil")

        assert await bundles.read(a_file()) == CONTENT
        assert path.read_bytes() == CONTENT


@pytest.mark.asyncio
async def test_a_file_that_was_altered_in_the_store_is_not_used(tmp_path: Path) -> None:
    async with open_store(tmp_path) as store:
        bundles = bundles_of(store, tmp_path)
        await BlobStore(store.database).put(CONTENT)
        await change_stored(store, b"evil")

        with pytest.raises(ConfigurationError, match=DIGEST):
            await bundles.read(a_file())

    assert cached(tmp_path) == []


@pytest.mark.asyncio
async def test_a_file_that_nobody_put_is_not_there(tmp_path: Path) -> None:
    async with open_store(tmp_path) as store:
        bundles = bundles_of(store, tmp_path)

        with pytest.raises(NoSuchRecord):
            await bundles.read(a_file())


@pytest.mark.asyncio
async def test_the_disk_has_no_more_than_its_bound(tmp_path: Path) -> None:
    contents = [bytes([number]) * 100 for number in range(5)]
    async with open_store(tmp_path) as store:
        blobs = BlobStore(store.database)
        bundles = bundles_of(store, tmp_path, max_cached_bytes=250)
        for content in contents:
            await blobs.put(content)
        await bundles.read(a_file(contents[0]))
        await bundles.read(a_file(contents[1]))
        await bundles.read(a_file(contents[0]))

        await bundles.read(a_file(contents[2]))

        assert {path.read_bytes() for path in cached(tmp_path)} == {contents[0], contents[2]}
        assert bundles.statistics() == (2, 200)
        again = bundles_of(store, tmp_path, max_cached_bytes=250)
        assert again.statistics() == (2, 200)
