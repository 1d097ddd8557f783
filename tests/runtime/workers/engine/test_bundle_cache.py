"""Files of bundles are read once, as long as there is room for them."""

from __future__ import annotations

import pytest

from support.worker_isolates import FakeBundles, a_version
from tenantry_runtime.workers.engine.bundle_cache import BundleCache

pytestmark = pytest.mark.asyncio


async def test_a_version_s_files_are_read_once() -> None:
    bundles, version = FakeBundles(), a_version()
    cache = BundleCache(bundles, max_bytes=1000)
    first = await cache.read(version)
    assert first == await cache.read(version)
    assert first == {"entry.py": version.files[0].digest.encode()}
    assert bundles.num_reads == 1


async def test_the_file_that_nobody_has_read_for_longest_gives_way() -> None:
    bundles = FakeBundles()
    a, b, c = (a_version() for _ in range(3))
    # each file is its digest: 8 to 12 bytes
    cache = BundleCache(bundles, max_bytes=2 * len(c.files[0].digest))
    for version in (a, b, a, c, a):
        await cache.read(version)
    assert bundles.num_reads == 3
    await cache.read(b)
    assert bundles.num_reads == 4
    assert cache.num_bytes <= 2 * len(c.files[0].digest)


async def test_a_file_larger_than_the_room_for_all_is_not_kept() -> None:
    bundles, version = FakeBundles(), a_version()
    cache = BundleCache(bundles, max_bytes=3)
    await cache.read(version)
    await cache.read(version)
    assert (bundles.num_reads, cache.num_bytes) == (2, 0)
