"""How many pages fit into how many bytes, by the format of the cache.

| format | bytes of a row of 512 latent and 64 rope values | index key of 128 values |
|---|---|---|
| bf16 | 1,152 | FP8, one float32 scale: 132 |
| fp8 | 580: FP8, one float32 scale | 132 |
| fp8-576 | 576: FP8, a scale per tensor, which no row carries | 132 |
| fp8-644 | 644: FP8 latent, one float32 scale, BF16 rope | 132 |
| fp8-656 | 656: FP8 latent, a float32 scale per 128 values, BF16 rope | 132 |

A page has no padding: 64 rows of whole values and their scales are multiples of 128 bytes in every
released model. Each GPU of a member holds every page, because its heads attend over whole latents:
more GPUs hold more tokens only in that each holds fewer weights.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tenantry_runtime.core import PAGE_TOKENS

if TYPE_CHECKING:
    # importing it imports torch, which this arithmetic does without
    from tenantry_runtime.models.config import ModelConfig

SINK_PAGES = 1
"""That a pool allocates and never hands out (`cache/paged.py`)."""

_SCALE_BYTES = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheFormat:
    """What a token leaves in a layer's pages."""

    latent_value_bytes: int
    rope_value_bytes: int
    index_value_bytes: int
    has_row_scale: bool = False
    """One float32 scale per row, of its FP8 values."""
    latent_block: int | None = None
    """Latent values per float32 scale; None: no scale but the row's."""
    has_index_scale: bool = False
    """One float32 scale per index key."""

    def row_bytes(self, latent_dim: int, rope_dim: int) -> int:
        """Return the bytes of a token in the latent pages of one layer."""
        num_scales = int(self.has_row_scale)
        if self.latent_block is not None:
            num_scales += -(-latent_dim // self.latent_block)
        values = latent_dim * self.latent_value_bytes + rope_dim * self.rope_value_bytes
        return values + num_scales * _SCALE_BYTES

    def index_key_bytes(self, head_dim: int) -> int:
        """Return the bytes of a token in the index keys of one layer."""
        return head_dim * self.index_value_bytes + int(self.has_index_scale) * _SCALE_BYTES


def unscaled(value_bytes: int) -> CacheFormat:
    """Return the format of `PagedCache`: every value, index keys too, in one dtype."""
    return CacheFormat(
        latent_value_bytes=value_bytes,
        rope_value_bytes=value_bytes,
        index_value_bytes=value_bytes,
    )


def _with_fp8_index(
    latent_value_bytes: int,
    rope_value_bytes: int,
    *,
    has_row_scale: bool = False,
    latent_block: int | None = None,
) -> CacheFormat:
    return CacheFormat(
        latent_value_bytes=latent_value_bytes,
        rope_value_bytes=rope_value_bytes,
        index_value_bytes=1,
        has_row_scale=has_row_scale,
        latent_block=latent_block,
        has_index_scale=True,
    )


CACHE_FORMATS: Mapping[str, CacheFormat] = {
    "bf16": _with_fp8_index(2, 2),
    "fp8": _with_fp8_index(1, 1, has_row_scale=True),
    "fp8-576": _with_fp8_index(1, 1),
    "fp8-644": _with_fp8_index(1, 2, has_row_scale=True),
    "fp8-656": _with_fp8_index(1, 2, latent_block=128),
}


def bytes_per_token(config: ModelConfig, cache: CacheFormat) -> int:
    """Return the bytes of a token over all layers; MTP layers have no pages."""
    rows = config.num_layers * cache.row_bytes(config.kv_lora_rank, config.rope_dim)
    if config.indexer is None:
        return rows
    return rows + len(config.index_layers) * cache.index_key_bytes(config.indexer.head_dim)


def bytes_per_page(config: ModelConfig, cache: CacheFormat) -> int:
    """Return the bytes of a page over all layers."""
    return PAGE_TOKENS * bytes_per_token(config, cache)


def num_pages(cache_bytes: int, page_bytes: int) -> int:
    """Return how many pages can be handed out where `cache_bytes` hold them and the sink."""
    return max(cache_bytes // page_bytes - SINK_PAGES, 0)
