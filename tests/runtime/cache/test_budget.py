"""The arithmetic of cache memory gives the published bytes, and the pages that really fit."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
from hypothesis import given, strategies as st

from tenantry_runtime.cache.allocator import PageAllocator, PageRef
from tenantry_runtime.cache.budget import (
    CACHE_FORMATS,
    bytes_per_page,
    bytes_per_token,
    num_pages,
    unscaled,
)
from tenantry_runtime.cache.paged import PagedCache
from tenantry_runtime.models.released import RELEASED

DTYPES = st.sampled_from([torch.bfloat16, torch.float32])


@pytest.mark.parametrize(
    ("model", "cache", "expected"),
    [
        ("kimi-k2.6", "bf16", 70_272),
        ("kimi-k2.6", "fp8", 35_380),
        ("kimi-k2.6", "fp8-576", 35_136),
        ("kimi-k2.6", "fp8-644", 61 * 644),
        ("kimi-k2.6", "fp8-656", 40_016),
        # and 132 bytes in each of 21 layers
        ("glm-5.2", "bf16", 89_856 + 2_772),
        ("glm-5.2", "fp8", 48_012),
        ("glm-5.2", "fp8-576", 44_928 + 2_772),
        ("glm-5.2", "fp8-644", 78 * 644 + 2_772),
        ("glm-5.2", "fp8-656", 53_940),
    ],
)
def test_a_token_takes_the_published_bytes(model: str, cache: str, expected: int) -> None:
    assert bytes_per_token(RELEASED[model].config, CACHE_FORMATS[cache]) == expected


@pytest.mark.parametrize(("model", "ratio"), [("kimi-k2.6", 1.986), ("glm-5.2", 1.929)])
def test_fp8_pages_hold_almost_twice_the_tokens(model: str, ratio: float) -> None:
    config = RELEASED[model].config
    bf16, fp8 = (bytes_per_token(config, CACHE_FORMATS[name]) for name in ("bf16", "fp8"))
    assert round(bf16 / fp8, 3) == ratio


def test_an_fp8_page_of_one_layer_is_the_specified_block() -> None:
    # 64 rows of 576 values, then 64 scales
    assert 64 * CACHE_FORMATS["fp8"].row_bytes(512, 64) == 37_120


@pytest.mark.parametrize("model", RELEASED)
@pytest.mark.parametrize("cache", CACHE_FORMATS)
def test_layers_pages_are_aligned_without_padding(model: str, cache: str) -> None:
    config, stored = RELEASED[model].config, CACHE_FORMATS[cache]
    assert 64 * stored.row_bytes(config.kv_lora_rank, config.rope_dim) % 128 == 0
    assert 64 * stored.index_key_bytes(128) % 128 == 0


@pytest.mark.parametrize("model", RELEASED)
@given(dtype=DTYPES, cache_bytes=st.integers(0, 200 << 30))
def test_pages_are_as_many_as_the_memory_holds(
    model: str, dtype: torch.dtype, cache_bytes: int
) -> None:
    config = RELEASED[model].config
    page_bytes = bytes_per_page(config, unscaled(dtype.itemsize))
    fitting = num_pages(cache_bytes, page_bytes)
    assert not fitting or allocated_bytes(model, fitting, dtype) <= cache_bytes
    assert allocated_bytes(model, fitting + 1, dtype) > cache_bytes


@pytest.mark.parametrize("model", RELEASED)
@given(dtype=DTYPES, pages=st.integers(1, 50_000))
def test_allocated_pages_and_the_sink_take_what_the_arithmetic_says(
    model: str, dtype: torch.dtype, pages: int
) -> None:
    page_bytes = bytes_per_page(RELEASED[model].config, unscaled(dtype.itemsize))
    assert page_bytes == PagedCache.bytes_per_page(RELEASED[model].config, dtype)
    allocated = allocated_bytes(model, pages, dtype)
    assert allocated == (pages + 1) * page_bytes
    assert num_pages(allocated, page_bytes) == pages
    assert num_pages(allocated - 1, page_bytes) == pages - 1


def test_the_allocator_hands_out_exactly_the_pages_of_the_arithmetic() -> None:
    stamped: list[PageRef] = []

    def stamp(refs: Sequence[PageRef]) -> None:
        stamped.extend(refs)

    pages = num_pages(10_001, 1_000)
    assert pages == 9
    assert PageAllocator(pages, stamp=stamp).num_free == pages


@pytest.mark.parametrize("cache_bytes", [-1, 0, 999, 1_999])
def test_memory_without_room_for_a_page_beside_the_sink_has_none(cache_bytes: int) -> None:
    assert num_pages(cache_bytes, 1_000) == 0


def allocated_bytes(model: str, pages: int, dtype: torch.dtype) -> int:
    config = RELEASED[model].config
    cache = PagedCache.allocate(config, num_pages=pages, dtype=dtype, device="meta")
    return sum(pool.nbytes for pool in (*cache.latent_N, *cache.index_keys.values()))
