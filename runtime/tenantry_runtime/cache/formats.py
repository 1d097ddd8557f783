"""How a cache keeps what tokens leave in it: latent rows in every layer, index keys in some.

| rows | a page of 64 rows of C values | bytes of 512 latent and 64 rope values |
|---|---|---|
| float32, bf16 | [64, C] of that dtype | 2,304, 1,152 |
| fp8 | 64 rows of C e4m3 bytes, then 64 float32 scales, each a power of two | 580 |
| fp8-576 | 64 rows of C e4m3 bytes; one scale per tensor, which no page carries | 576 |
| fp8-644 | latent as in fp8, rope in BF16 | 644 |
| fp8-656 | latent with a scale per 128 values, rope in BF16 | 656 |

A row of fp8 is `byte * scale`, where scale = 2^ceil(log2(greatest magnitude / 448)). Index keys are
rows too: 132 bytes of 128 values in fp8. Rows are kept and read by the ops of `ops.py`; those that
have none there are what plans and comparisons know (`models plan`, `recipes: cache_error`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    # importing it imports torch, which this arithmetic does without
    from tenantry_runtime.models.config import ModelConfig

RowName: TypeAlias = Literal["float32", "bf16", "fp8", "fp8-576", "fp8-644", "fp8-656"]
CacheName: TypeAlias = Literal["bf16", "fp8", "float32"]
"""What members keep their pages in."""

_SCALE_BYTES = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class RowFormat:
    """How pages keep rows of values, of which the last may be a rope part."""

    name: RowName
    value_bytes: int
    rope_value_bytes: int | None = None
    """Of the rope part, where it is kept in another way, without a scale; None: as the rest."""
    has_scale: bool = False
    """Float32 scales go with every row."""
    scale_block: int | None = None
    """Values per scale; None: one scale for all values but a rope part kept in another way."""

    def row_bytes(self, width: int, rope_dim: int = 0) -> int:
        """Return the bytes of a row of `width` values, the last `rope_dim` of them rope."""
        apart = 0 if self.rope_value_bytes is None else rope_dim
        num_bytes = (width - apart) * self.value_bytes + apart * (self.rope_value_bytes or 0)
        if not self.has_scale:
            return num_bytes
        num_scales = 1 if self.scale_block is None else -(-(width - apart) // self.scale_block)
        return num_bytes + num_scales * _SCALE_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheFormat:
    """What a token leaves in a layer's pages."""

    latent: RowFormat
    index: RowFormat

    def bytes_per_token(self, config: ModelConfig) -> int:
        """Return the bytes of a token over all layers; MTP layers have no pages."""
        rows = config.num_layers * self.latent.row_bytes(config.cache_dim, config.rope_dim)
        if config.indexer is None:
            return rows
        return rows + len(config.index_layers) * self.index.row_bytes(config.indexer.head_dim)


FLOAT32 = RowFormat(name="float32", value_bytes=4)
BF16 = RowFormat(name="bf16", value_bytes=2)
FP8 = RowFormat(name="fp8", value_bytes=1, has_scale=True)
FP8_576 = RowFormat(name="fp8-576", value_bytes=1)
FP8_644 = RowFormat(name="fp8-644", value_bytes=1, rope_value_bytes=2, has_scale=True)
FP8_656 = RowFormat(
    name="fp8-656", value_bytes=1, rope_value_bytes=2, has_scale=True, scale_block=128
)

# released models keep index keys in FP8 whatever their latents are in
CACHE_FORMATS: Mapping[str, CacheFormat] = {
    rows.name: CacheFormat(latent=rows, index=FP8)
    for rows in (BF16, FP8, FP8_576, FP8_644, FP8_656)
}
"""Of released models: those that members keep, and those that plans compare with them."""

SERVED_FORMATS: Mapping[CacheName, CacheFormat] = {
    "bf16": CACHE_FORMATS["bf16"],
    "fp8": CACHE_FORMATS["fp8"],
    # exact, for tests
    "float32": CacheFormat(latent=FLOAT32, index=FLOAT32),
}
