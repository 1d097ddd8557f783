"""What a layer multiplies by, as callables that a weight source hands it.

Layers know names and shapes; whether a weight is dense, quantized, one shard of it or under
training is the source's business (`WeightSource`).

T rows, N heads, L latent values, V values per head, d no-rope values per head.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias

import torch
from torch.nn.functional import linear, pad

from tenantry_kernels import on_gpu
from tenantry_kernels.choice import is_compiled, is_triton
from tenantry_kernels.cpu import ops as cpu
from tenantry_kernels.experts import route_to_experts, swiglu

from .config import Shard

Linear: TypeAlias = Callable[[torch.Tensor], torch.Tensor]
"""[T, in] to [T, out]."""

Experts: TypeAlias = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]
"""Rows [T, H], chosen experts [T, K] and their weights [T, K] to [T, H]."""

Split: TypeAlias = Literal["rows", "columns"]
"""Which axis of a matrix [out, in] the shards divide."""

ROW_TILE = 16
"""Rows per matrix product in deterministic mode: enough for a decode batch, little waste for one."""


@dataclass(frozen=True, slots=True)
class Part:
    """One named matrix [out, in] of a product that shares its input with others."""

    name: str
    out_dim: int


class WeightSource(Protocol):
    """Where a decoder's weights come from: a checkpoint, or a trainer's parameters."""

    @property
    def shard(self) -> Shard:
        """Which part of split matrices this source gives."""
        ...

    def tensor(
        self, name: str, shape: tuple[int, ...], *, dtype: torch.dtype | None = None
    ) -> torch.Tensor:
        """Return an unsplit tensor, in the source's compute dtype unless `dtype` is given."""
        ...

    def linear(self, parts: Sequence[Part], in_dim: int, split: Split | None = None) -> Linear:
        """Return the product with the parts' rows one below the other; each part is split alike."""
        ...

    def heads(
        self, name: str, num_heads: int, key_dim: int, value_dim: int, in_dim: int
    ) -> HeadMaps:
        """Return this shard's heads of kv_b_proj, whose rows are per head: key_dim, then value_dim."""
        ...

    def experts(
        self, prefix: str, num_experts: int, hidden_dim: int, intermediate_dim: int
    ) -> Experts:
        """Return `prefix.{e}.{gate,up,down}_proj`, split along the intermediate axis."""
        ...


def in_row_tiles(product: Linear, x: torch.Tensor) -> torch.Tensor:
    """Apply `product` to ROW_TILE rows at a time, so that a row's sums do not depend on its company."""
    num_rows = x.shape[0]
    padded = pad(x, [0, 0] * (x.dim() - 1) + [0, -num_rows % ROW_TILE])
    return torch.cat([product(tile) for tile in padded.split(ROW_TILE)])[:num_rows]


class DenseLinear:
    """A dense matrix [out, in]."""

    def __init__(self, weight: torch.Tensor, *, deterministic: bool) -> None:
        self.weight = weight
        self._deterministic = deterministic

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        if is_compiled("product", x, deterministic=self._deterministic):
            return cpu.linear(x, self.weight)
        if self._deterministic:
            return in_row_tiles(self._product, x)
        return self._product(x)

    def _product(self, x: torch.Tensor) -> torch.Tensor:
        return linear(x, self.weight)


class HeadMaps:
    """kv_b_proj of this shard's heads: into the latent space for queries, out of it for values."""

    def __init__(
        self, weight_NRL: torch.Tensor, key_dim: int, *, deterministic: bool = False
    ) -> None:
        self.weight_NRL = weight_NRL
        self.key_NdL = weight_NRL[:, :key_dim]
        self.value_NVL = weight_NRL[:, key_dim:]
        self._deterministic = deterministic

    @property
    def dims(self) -> tuple[int, int, int]:
        """N, d + V, L."""
        num_heads, width, latent_dim = self.weight_NRL.shape
        return num_heads, width, latent_dim

    def absorb(self, q_TNd: torch.Tensor) -> torch.Tensor:
        """Return queries in the latent space [T, N, L]."""
        if is_compiled("absorb", q_TNd, deterministic=self._deterministic):
            return cpu.absorb_heads(q_TNd, self.weight_NRL)
        return self._apply(self._absorb, q_TNd)

    def expand(self, latent_TNL: torch.Tensor) -> torch.Tensor:
        """Return values per head [T, N, V] of latent sums."""
        if is_compiled("expand", latent_TNL, deterministic=self._deterministic):
            return cpu.expand_heads(latent_TNL, self.weight_NRL, self.key_NdL.shape[1])
        return self._apply(self._expand, latent_TNL)

    def keys_and_values(
        self, latent_KL: torch.Tensor, heads: slice
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return some heads' keys [heads, K, d] and values [heads, K, V] of cached latents."""
        weight_NRL = self.weight_NRL[heads]
        rows_KR = linear(latent_KL, weight_NRL.flatten(0, 1))
        both_NKR = rows_KR.view(-1, *weight_NRL.shape[:2]).transpose(0, 1)
        key_dim = self.key_NdL.shape[1]
        return both_NKR[..., :key_dim], both_NKR[..., key_dim:]

    def _apply(self, product: Linear, x: torch.Tensor) -> torch.Tensor:
        return in_row_tiles(product, x) if self._deterministic else product(x)

    def _absorb(self, q_TNd: torch.Tensor) -> torch.Tensor:
        return torch.bmm(q_TNd.transpose(0, 1), self.key_NdL).transpose(0, 1)

    def _expand(self, latent_TNL: torch.Tensor) -> torch.Tensor:
        value_NLV = self.value_NVL.transpose(1, 2)
        return torch.bmm(latent_TNL.transpose(0, 1), value_NLV).transpose(0, 1)


class DenseExperts:
    """Routed experts as two stacks: gate and up [E, 2I, H], down [E, H, I]."""

    def __init__(
        self, gate_up_EJH: torch.Tensor, down_EHI: torch.Tensor, *, deterministic: bool = False
    ) -> None:
        self.gate_up_EJH = gate_up_EJH
        self.down_EHI = down_EHI
        self._deterministic = deterministic

    def __call__(
        self, x_TH: torch.Tensor, expert_TK: torch.Tensor, weight_TK: torch.Tensor
    ) -> torch.Tensor:
        if is_compiled("experts", x_TH, deterministic=self._deterministic):
            return cpu.routed_experts(x_TH, expert_TK, weight_TK, self.gate_up_EJH, self.down_EHI)
        if is_triton(x_TH):
            tile_rows = ROW_TILE if self._deterministic else None
            return on_gpu.routed_experts(
                x_TH,
                expert_TK,
                weight_TK,
                self.gate_up_EJH,
                self.down_EHI,
                tile_rows=tile_rows,
            )
        num_experts = self.gate_up_EJH.shape[0]
        return route_to_experts(x_TH, expert_TK, weight_TK, num_experts, self._expert)

    def _expert(self, expert: int, rows: torch.Tensor) -> torch.Tensor:
        def product(x: torch.Tensor) -> torch.Tensor:
            return linear(swiglu(linear(x, self.gate_up_EJH[expert])), self.down_EHI[expert])

        return in_row_tiles(product, rows) if self._deterministic else product(rows)
