"""The arithmetic of cache memory gives the published bytes, and the pages that really fit."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from tenantry_runtime.cache.allocator import PageAllocator
from tenantry_runtime.cache.budget import bytes_per_page, num_pages
from tenantry_runtime.cache.formats import CACHE_FORMATS, SERVED_FORMATS, CacheName
from tenantry_runtime.cache.paged import PagedCache
from tenantry_runtime.cache.pages import PageRef
from tenantry_runtime.errors import ConfigurationError
from tenantry_runtime.models.loader import load_config
from tenantry_runtime.models.released import RELEASED

CHECKPOINTS = Path(str(files("tenantry_runtime"))) / "checkpoints"
CONFIGS = {name: model.config for name, model in RELEASED.items()} | {
    name: load_config(CHECKPOINTS / name) for name in ("kimi-k2.6-nano", "glm-5.2-nano")
}
SERVED = st.sampled_from(list(SERVED_FORMATS))


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
    assert CACHE_FORMATS[cache].bytes_per_token(RELEASED[model].config) == expected


@pytest.mark.parametrize(("model", "ratio"), [("kimi-k2.6", 1.986), ("glm-5.2", 1.929)])
def test_fp8_pages_hold_almost_twice_the_tokens(model: str, ratio: float) -> None:
    config = RELEASED[model].config
    bf16, fp8 = (CACHE_FORMATS[name].bytes_per_token(config) for name in ("bf16", "fp8"))
    assert round(bf16 / fp8, 3) == ratio


def test_an_fp8_page_of_one_layer_is_the_specified_block() -> None:
    # 64 rows of 576 values, then 64 scales
    assert 64 * CACHE_FORMATS["fp8"].latent.row_bytes(576, 64) == 37_120


@pytest.mark.parametrize("model", RELEASED)
@pytest.mark.parametrize("cache", CACHE_FORMATS)
def test_layers_pages_are_aligned_without_padding(model: str, cache: str) -> None:
    config, stored = RELEASED[model].config, CACHE_FORMATS[cache]
    assert 64 * stored.latent.row_bytes(config.cache_dim, config.rope_dim) % 128 == 0
    assert 64 * stored.index.row_bytes(128) % 128 == 0


@pytest.mark.parametrize("model", CONFIGS)
@given(cache=SERVED, cache_bytes=st.integers(0, 200 << 30))
def test_pages_are_as_many_as_the_memory_holds(
    model: str, cache: CacheName, cache_bytes: int
) -> None:
    page_bytes = bytes_per_page(CONFIGS[model], SERVED_FORMATS[cache])
    fitting = num_pages(cache_bytes, page_bytes)
    assert not fitting or allocated_bytes(model, fitting, cache) <= cache_bytes
    assert allocated_bytes(model, fitting + 1, cache) > cache_bytes


@pytest.mark.parametrize("model", CONFIGS)
@given(cache=SERVED, pages=st.integers(1, 50_000))
def test_allocated_pages_and_the_sink_take_what_the_arithmetic_says(
    model: str, cache: CacheName, pages: int
) -> None:
    page_bytes = bytes_per_page(CONFIGS[model], SERVED_FORMATS[cache])
    allocated = allocated_bytes(model, pages, cache)
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


@pytest.mark.parametrize("cache", SERVED_FORMATS)
@pytest.mark.parametrize("model", ["kimi-k2.6-nano", "glm-5.2-nano"])
def test_pages_in_real_memory_are_as_large_as_planned(model: str, cache: CacheName) -> None:
    # 64 latent and 32 rope values in six layers, and 48 values of index keys in four of GLM's
    latent = {"bf16": 96 * 2, "fp8": 96 + 4, "float32": 96 * 4}[cache]
    key = {"bf16": 48 + 4, "fp8": 48 + 4, "float32": 48 * 4}[cache]
    token_bytes = 6 * latent + (4 * key if model.startswith("glm") else 0)
    assert allocated_bytes(model, 7, cache, device="cpu") == 8 * 64 * token_bytes
    assert bytes_per_page(CONFIGS[model], SERVED_FORMATS[cache]) == 64 * token_bytes


def test_rows_that_are_only_planned_are_not_allocated() -> None:
    with pytest.raises(ConfigurationError, match="fp8-656"):
        PagedCache.allocate(
            CONFIGS["kimi-k2.6-nano"], num_pages=1, cache_format=CACHE_FORMATS["fp8-656"]
        )


def allocated_bytes(model: str, pages: int, cache: CacheName, *, device: str = "meta") -> int:
    memory = PagedCache.allocate(
        CONFIGS[model], num_pages=pages, cache_format=SERVED_FORMATS[cache], device=device
    )
    return sum(pool.nbytes for pool in (*memory.latent_N, *memory.index_keys.values()))
