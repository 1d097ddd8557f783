"""A weight source without weights that adds up what one shard's tensors take, as they are stored."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil
from typing import Literal

import torch

from support.counting_source import CountingSource
from tenantry_runtime.models.config import Shard
from tenantry_runtime.models.linear import Experts, HeadMaps, Linear, Part, Split

Format = Literal["bf16", "fp8", "int4"]

# matrices that released FP8 and INT4 checkpoints leave in BF16
KEPT = ("lm_head", "weights_proj", "eh_proj")


class StoredSizes(CountingSource):
    """Notes the bytes of what a decoder asks for, split as it asks."""

    def __init__(self, *, experts: Format, rest: Format, shard: Shard | None = None) -> None:
        super().__init__()
        self._shard = shard or Shard()
        self._experts = experts
        self._rest = rest
        self.bytes_of: dict[str, int] = {}

    @property
    def shard(self) -> Shard:
        return self._shard

    def linear(self, parts: Sequence[Part], in_dim: int, split: Split | None = None) -> Linear:
        size = self._shard.size
        mine = [
            Part(part.name, part.out_dim // size if split == "rows" else part.out_dim)
            for part in parts
        ]
        return super().linear(mine, in_dim // size if split == "columns" else in_dim)

    def heads(
        self, name: str, num_heads: int, key_dim: int, value_dim: int, in_dim: int
    ) -> HeadMaps:
        return super().heads(name, num_heads // self._shard.size, key_dim, value_dim, in_dim)

    def experts(
        self, prefix: str, num_experts: int, hidden_dim: int, intermediate_dim: int
    ) -> Experts:
        mine = intermediate_dim // self._shard.size
        for expert in range(num_experts):
            for part in ("gate_proj", "up_proj"):
                self._note_matrix(f"{prefix}.{expert}.{part}", mine, hidden_dim)
            self._note_matrix(f"{prefix}.{expert}.down_proj", hidden_dim, mine)
        return lambda x, expert_TK, weight_TK: x

    def _note_matrix(self, name: str, out_dim: int, in_dim: int) -> None:
        super()._note_matrix(name, out_dim, in_dim)
        stored = self._experts if ".experts." in name else self._rest
        self.bytes_of[f"{name}.weight"] = stored_bytes(
            "bf16" if name.endswith(KEPT) else stored, out_dim, in_dim
        )

    def _note(self, name: str, *shape: int) -> None:
        super()._note(name, *shape)
        value_bytes = 4 if name.endswith("e_score_correction_bias") else 2
        self.bytes_of[name] = torch.Size(shape).numel() * value_bytes


def stored_bytes(stored: Format, out_dim: int, in_dim: int) -> int:
    """Return what one matrix takes: 4 bits and a BF16 scale per 32, or 8 bits and a float32 per block."""
    match stored:
        case "bf16":
            return 2 * out_dim * in_dim
        case "fp8":
            return out_dim * in_dim + 4 * ceil(out_dim / 128) * ceil(in_dim / 128)
        case "int4":
            return out_dim * in_dim * 4 // 8 + out_dim * in_dim // 32 * 2
