"""A process that replaces the key of a store's secrets and dies at a chosen encryption."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from unittest import mock

import anyio

from support.secret_keys import managed_keys
from tenantry_runtime.tenancy import open_store, secrets
from tenantry_runtime.tenancy.secret_keys import Key

DIED = 77


async def replace_key(state_dir: Path, url: str | None) -> secrets.Rotation:
    """Do what `workerctl tenant secret rotate-key` does."""
    keys = managed_keys(state_dir)
    async with open_store(state_dir, url=url) as store:
        keys.advance()
        rotation = await secrets.Secrets(store.database, keys).rotate()
        keys.retire(rotation.unused_key_ids)
    return rotation


@contextmanager
def _death_at(number: int) -> Iterator[None]:
    seal, calls = secrets.seal, count()

    def seal_or_die(key: Key, account: str, name: str, plain: bytes, *, worker: str = "") -> bytes:
        if next(calls) == number:
            os._exit(DIED)
        return seal(key, account, name, plain, worker=worker)

    with mock.patch.object(secrets, "seal", seal_or_die):
        yield


if __name__ == "__main__":
    state_dir, url, number = sys.argv[1:]
    with _death_at(int(number)):
        anyio.run(replace_key, Path(state_dir), url or None)
