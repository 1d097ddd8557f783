"""The hand-off from prefill to decode within one pool."""

from __future__ import annotations

import pytest

from tenantry_runtime.cache.allocator import PageAllocator
from tenantry_runtime.cache.owners import OwnerSlot
from tenantry_runtime.errors import ConfigurationError
from tenantry_runtime.pool.handoff import Endpoint, adopt


def test_adopted_pages_keep_place_tag_and_owner() -> None:
    pool = PageAllocator(4)
    endpoint = Endpoint(pool=pool, cache_format="bfloat16")
    lease = pool.reserve(OwnerSlot(3), 2)
    refs = lease.refs

    adopted = adopt(endpoint, endpoint).deliver(lease)

    assert (adopted.refs, adopted.owner) == (refs, OwnerSlot(3))
    assert pool.statistics().num_leases == 1


def test_the_prefill_side_cannot_release_what_was_adopted() -> None:
    pool = PageAllocator(4)
    endpoint = Endpoint(pool=pool, cache_format="bfloat16")
    lease = pool.reserve(OwnerSlot(3), 2)
    adopt(endpoint, endpoint).deliver(lease)
    with pytest.raises(AssertionError, match="transferred"):
        pool.release(lease, after=0)
    assert pool.num_free == 2


def test_pages_of_another_format_are_not_adopted() -> None:
    pool = PageAllocator(4)
    source = Endpoint(pool=pool, cache_format="bfloat16")
    target = Endpoint(pool=pool, cache_format="fp8")
    with pytest.raises(ConfigurationError, match=r"'bfloat16'.*'fp8'"):
        adopt(source, target)


def test_pages_of_another_pool_are_not_adopted() -> None:
    source = Endpoint(pool=PageAllocator(4), cache_format="bfloat16")
    target = Endpoint(pool=PageAllocator(4), cache_format="bfloat16")
    with pytest.raises(ConfigurationError, match="separate pools"):
        adopt(source, target)
