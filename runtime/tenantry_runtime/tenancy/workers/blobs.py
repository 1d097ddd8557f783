"""The bytes of bundles' files, by their digests, where every edge finds them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256

import anyio.to_thread
import sqlalchemy as sa

from tenantry_runtime.errors import NoSuchRecord
from tenantry_runtime.tenancy import schema
from tenantry_runtime.tenancy.database import Database

KEPT_MS = 3_600_000
"""A blob that no version names yet is kept for so long: whoever has put it is about to name it."""

_blobs, _files = schema.worker_blobs, schema.worker_files


BATCH_FILES, BATCH_BYTES = 100, 4 << 20
"""Of one transaction: others write meanwhile."""


class BlobStore:
    """What is put here is never changed, and gone once no version names it."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def put(self, content: bytes) -> str:
        """Keep bytes; return their SHA-256 in hex."""
        return (await self.put_all([content]))[0]

    async def put_all(self, contents: Sequence[bytes]) -> list[str]:
        """Keep the bytes of files; return their SHA-256 in hex. Nothing is written twice."""
        digests = await anyio.to_thread.run_sync(_digests, contents)
        by_digest = dict(zip(digests, contents, strict=True))
        for batch in _batches(by_digest):
            await self._put_batch(batch)
        return digests

    async def _put_batch(self, batch: Mapping[str, bytes]) -> None:
        now_ms = self._database.now_ms()
        insert = self._database.insert(_blobs)
        upsert = insert.on_conflict_do_update(
            index_elements=[_blobs.c.digest], set_={"put_ms": now_ms}
        )
        async with self._database.begin() as connection:
            touched = (
                sa.update(_blobs)
                .where(_blobs.c.digest.in_(batch))
                .values(put_ms=now_ms)
                .returning(_blobs.c.digest)
            )
            known = set(await connection.scalars(touched))
            rows = [
                {"digest": digest, "content": content, "put_ms": now_ms}
                for digest, content in batch.items()
                if digest not in known
            ]
            if rows:
                await connection.execute(upsert, rows)

    async def get(self, digest: str) -> bytes:
        """Return the bytes, not compared with their digest; raise `NoSuchRecord`."""
        wanted = sa.select(_blobs.c.content).where(_blobs.c.digest == digest)
        async with self._database.connect() as connection:
            content: bytes | None = (await connection.execute(wanted)).scalar_one_or_none()
        if content is None:
            raise NoSuchRecord("file with digest", digest)
        return content

    async def collect(self) -> int:
        """Forget what no version names any more; return how many there were."""
        is_named = sa.exists().where(_files.c.digest == _blobs.c.digest)
        unused = sa.delete(_blobs).where(
            _blobs.c.put_ms < self._database.now_ms() - KEPT_MS, ~is_named
        )
        async with self._database.begin() as connection:
            return (await connection.execute(unused)).rowcount


def _digests(contents: Sequence[bytes]) -> list[str]:
    return [sha256(content).hexdigest() for content in contents]


def _batches(contents: Mapping[str, bytes]) -> Iterator[dict[str, bytes]]:
    batch: dict[str, bytes] = {}
    num_bytes = 0
    # in one order, so that two transactions do not wait for each other
    for digest, content in sorted(contents.items()):
        if batch and (len(batch) >= BATCH_FILES or num_bytes + len(content) > BATCH_BYTES):
            yield batch
            batch, num_bytes = {}, 0
        batch[digest] = content
        num_bytes += len(content)
    if batch:
        yield batch
