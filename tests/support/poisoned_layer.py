"""One layer whose pages hold NaN wherever a test has written nothing, and rows to attend with."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import torch

from tenantry_kernels import fp8_rows
from tenantry_runtime.cache.formats import SERVED_FORMATS
from tenantry_runtime.cache.paged import PagedCache
from tenantry_runtime.core import PAGE_TOKENS
from tenantry_runtime.models.attend import AttentionRows, IndexRows
from tenantry_runtime.models.linear import HeadMaps

HEADS = 2
_WIDTHS = {"float32": (6, 4, 8), "fp8": (64, 8, 16)}
"""Latent, rotated and index values: what compiled FP8 loops take, and what no block divides."""


def _noise() -> torch.Generator:
    return torch.Generator().manual_seed(1)


@dataclass
class PoisonedLayer:
    """Two pages and the sink."""

    cache_name: Literal["float32", "fp8"]
    _generator: torch.Generator = field(default_factory=_noise)

    def __post_init__(self) -> None:
        self.latent, self.rope, self.index = _WIDTHS[self.cache_name]
        self.cache = PagedCache(
            num_pages=2,
            cache_format=SERVED_FORMATS[self.cache_name],
            latent_N=(self._pool(self.latent + self.rope),),
            index_keys={0: self._pool(self.index)},
        )

    def write_ones(self, num_tokens: int) -> None:
        """Fill the first slots of the first page."""
        for pool in (self.cache.latent_N[0], self.cache.index_keys[0]):
            if self.cache_name == "fp8":
                ones = torch.ones(num_tokens, fp8_rows.page_width(pool.shape[1]))
                fp8_rows.append_rows(pool, torch.arange(num_tokens), ones)
            else:
                pool[0, :num_tokens] = 1.0

    def attention_rows(self, num_rows: int) -> AttentionRows:
        return AttentionRows(
            q_nope_TNd=self._rows(num_rows, HEADS, 5),
            q_rope_TNr=self._rows(num_rows, HEADS, self.rope),
            latent_TL=self._rows(num_rows, self.latent),
            k_rope_Tr=self._rows(num_rows, self.rope),
            head_maps=HeadMaps(self._rows(HEADS, 5 + 3, self.latent), 5),
            scale=0.3,
        )

    def index_rows(self, num_rows: int, top_k: int) -> IndexRows:
        return IndexRows(
            q_TJD=self._rows(num_rows, 16, self.index),
            weight_TJ=self._rows(num_rows, 16),
            key_TD=self._rows(num_rows, self.index),
            top_k=top_k,
        )

    def _rows(self, *shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=self._generator)

    def _pool(self, width: int) -> torch.Tensor:
        if self.cache_name == "fp8":
            # 0xFF is NaN as a value and as a scale
            return torch.full((3, fp8_rows.page_bytes(width)), 0xFF, dtype=torch.uint8)
        return torch.full((3, PAGE_TOKENS, width), torch.nan)
