"""The device memory of a page pool: latent rows of every layer, index keys of some.

| tensor | layers | shape | dtype |
|---|---|---|---|
| latent | all | [pages + 1, 64, kv_lora_rank + rope_dim] | the cache's |
| index keys | with an indexer of their own | [pages + 1, 64, index head dim] | the cache's |

MTP layers have no pages yet: they are loaded, not run.

The last page is a sink for rows that must not be written (`kernels: paged_mla`); the allocator
never hands it out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from tenantry_runtime.core import PAGE_TOKENS

if TYPE_CHECKING:
    # the decoder imports this module
    from tenantry_runtime.models.config import ModelConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class PagedCache:
    """The pages of one pool. Ops write and read them through a `CheckedBatch` only."""

    num_pages: int
    latent_N: tuple[torch.Tensor, ...]
    index_keys: dict[int, torch.Tensor]
    """By layer."""

    @classmethod
    def allocate(
        cls, config: ModelConfig, *, num_pages: int, dtype: torch.dtype, device: str = "cpu"
    ) -> PagedCache:
        """Return zeroed pages for one model."""

        def pages(width: int) -> torch.Tensor:
            shape = (num_pages + 1, PAGE_TOKENS, width)
            return torch.zeros(shape, dtype=dtype, device=device)

        index_dim = config.indexer.head_dim if config.indexer else 0
        return cls(
            num_pages=num_pages,
            latent_N=tuple(pages(config.cache_dim) for _ in range(config.num_layers)),
            index_keys={layer: pages(index_dim) for layer in config.index_layers},
        )

    @staticmethod
    def bytes_per_page(config: ModelConfig, dtype: torch.dtype) -> int:
        """Return the bytes that one page takes over all layers."""
        index_dim = config.indexer.head_dim if config.indexer else 0
        values = config.cache_dim * config.num_layers + index_dim * len(config.index_layers)
        return values * PAGE_TOKENS * dtype.itemsize
