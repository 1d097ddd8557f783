"""SwiGLU experts of any format over sorted rows: two grouped products, and what is between and after them.

T rows, H hidden values, E experts, K choices per row, I values inside an expert, N outputs.
"""

from __future__ import annotations

from typing import Protocol

import torch

from tenantry_kernels.experts import swiglu

from .expert_sort import Tiles, expert_sort

# rows of a tile: 64 only where the average expert fills most of it
_TILE_ROWS = (16, 32, 64)


class GroupedProduct(Protocol):
    """One kind of matrix of all experts."""

    def __call__(self, x: torch.Tensor, tiles: Tiles, num_slots: int, /) -> torch.Tensor:
        """Return each slot's product with its expert's matrix [T * K, N]; x has a row per slot, or per
        K slots. What is no expert's slot is left as it is."""
        ...


def grouped_experts(
    x_TH: torch.Tensor,
    expert_TK: torch.Tensor,
    weight_TK: torch.Tensor,
    *,
    num_experts: int,
    gate_up: GroupedProduct,
    down: GroupedProduct,
    tile_rows: int | None = None,
) -> torch.Tensor:
    """Return sum over k of weight[t, k] * expert[t, k](x[t]) [T, H].

    tile_rows: of 16, 32 and 64; by default as the number of rows has it, given where a row's
    sums must not depend on its company.
    """
    num_rows, num_choices = expert_TK.shape
    num_slots = expert_TK.numel()
    if num_slots == 0:
        return torch.zeros_like(x_TH)
    if tile_rows is None:
        tile_rows = next((rows for rows in _TILE_ROWS[:-1] if num_slots < rows * num_experts), 64)
    tiles = expert_sort(expert_TK, num_experts, tile_rows)
    output = down(swiglu(gate_up(x_TH.contiguous(), tiles, num_slots)), tiles, num_slots)
    is_none = (expert_TK < 0) | (expert_TK >= num_experts)
    # nothing was computed there, and what memory held before need not be a number
    output_TKH = output.view(num_rows, num_choices, -1).masked_fill(is_none[..., None], 0)
    weight_TK = weight_TK.masked_fill(is_none, 0).to(output.dtype)
    return torch.bmm(weight_TK[:, None], output_TKH).squeeze(1)
