"""The device memory of a page pool: latent rows of every layer, index keys of some.

| tensor | layers | rows of C values | in the formats |
|---|---|---|---|
| latent | all | kv_lora_rank + rope_dim | all |
| index keys | with an indexer of their own | index head dim | all |

| rows | shape | dtype |
|---|---|---|
| float32, bf16 | [pages + 1, 64, C] | of that name |
| fp8 | [pages + 1, 64 * C + 64 * 4] | uint8: rows, then scales (`formats.py`) |

MTP layers have no pages yet: they are loaded, not run.

The last page is a sink for rows that must not be written (`kernels: paged_mla`); the allocator
never hands it out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from tenantry_runtime.core import PAGE_TOKENS
from tenantry_runtime.errors import ConfigurationError

from .budget import SINK_PAGES
from .formats import CacheFormat, RowFormat

if TYPE_CHECKING:
    # the decoder imports this module
    from tenantry_runtime.models.config import ModelConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class PagedCache:
    """The pages of one pool. Ops write and read them through a `CheckedBatch` only."""

    num_pages: int
    cache_format: CacheFormat
    latent_N: tuple[torch.Tensor, ...]
    index_keys: dict[int, torch.Tensor]
    """By layer."""

    @classmethod
    def allocate(
        cls,
        config: ModelConfig,
        *,
        num_pages: int,
        cache_format: CacheFormat,
        device: str = "cpu",
    ) -> PagedCache:
        """Return zeroed pages for one model."""

        def pages(rows: RowFormat, width: int) -> torch.Tensor:
            shape, dtype = _page(rows, width)
            return torch.zeros((num_pages + SINK_PAGES, *shape), dtype=dtype, device=device)

        index_dim = config.indexer.head_dim if config.indexer else 0
        return cls(
            num_pages=num_pages,
            cache_format=cache_format,
            latent_N=tuple(
                pages(cache_format.latent, config.cache_dim) for _ in range(config.num_layers)
            ),
            index_keys={
                layer: pages(cache_format.index, index_dim) for layer in config.index_layers
            },
        )

    @property
    def num_appends(self) -> int:
        """Appends of one step."""
        return len(self.latent_N) + len(self.index_keys)

    @property
    def device(self) -> torch.device:
        return self.latent_N[0].device


def _page(rows: RowFormat, width: int) -> tuple[tuple[int, ...], torch.dtype]:
    """Return shape and dtype of one page of rows of `width` values."""
    match rows.name:
        case "float32":
            return (PAGE_TOKENS, width), torch.float32
        case "bf16":
            return (PAGE_TOKENS, width), torch.bfloat16
        case "fp8":
            return (PAGE_TOKENS * rows.row_bytes(width),), torch.uint8
        case name:
            raise ConfigurationError(f"rows of {name} can be planned, not kept")
