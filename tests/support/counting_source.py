"""A weight source without weights: it notes what a decoder asks for."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from tenantry_runtime.models.config import Shard
from tenantry_runtime.models.linear import Experts, HeadMaps, Linear, Part, Split


class CountingSource:
    """Notes each tensor's name and size as the released BF16 files have them."""

    def __init__(self) -> None:
        self.num_values: dict[str, int] = {}
        self.matrices: list[str] = []
        """Those that a quantized checkpoint may hold in another format."""

    @property
    def shard(self) -> Shard:
        return Shard()

    @property
    def num_bytes(self) -> int:
        """Of the BF16 files, in which the router's bias alone is float32."""
        return sum(
            count * (4 if name.endswith("e_score_correction_bias") else 2)
            for name, count in self.num_values.items()
        )

    def tensor(
        self, name: str, shape: tuple[int, ...], *, dtype: torch.dtype | None = None
    ) -> torch.Tensor:
        self._note(name, *shape)
        return torch.empty(shape, device="meta")

    def linear(self, parts: Sequence[Part], in_dim: int, split: Split | None = None) -> Linear:
        for part in parts:
            self._note_matrix(part.name, part.out_dim, in_dim)
        return lambda x: x

    def heads(
        self, name: str, num_heads: int, key_dim: int, value_dim: int, in_dim: int
    ) -> HeadMaps:
        self._note_matrix(name, num_heads * (key_dim + value_dim), in_dim)
        weight = torch.empty(num_heads, key_dim + value_dim, in_dim, device="meta")
        return HeadMaps(weight, key_dim)

    def experts(
        self, prefix: str, num_experts: int, hidden_dim: int, intermediate_dim: int
    ) -> Experts:
        for expert in range(num_experts):
            for part in ("gate_proj", "up_proj", "down_proj"):
                self._note_matrix(f"{prefix}.{expert}.{part}", intermediate_dim, hidden_dim)
        return lambda x, expert_TK, weight_TK: x

    def _note_matrix(self, name: str, out_dim: int, in_dim: int) -> None:
        self._note(f"{name}.weight", out_dim, in_dim)
        self.matrices.append(name)

    def _note(self, name: str, *shape: int) -> None:
        assert name not in self.num_values, f"{name} is asked for twice"
        self.num_values[name] = torch.Size(shape).numel()
