"""SwiGLU experts kept in BF16, applied to the rows that chose them, without asking the device.

| tensor | shape | dtype | what |
|---|---|---|---|
| x | [T, H] | bf16 | |
| chosen experts | [T, K] | int32 or int64 | a number outside 0..E-1 adds nothing |
| their weights | [T, K] | float32 | |
| gate and up | [E, 2 I, H] | bf16 | |
| down | [E, H, I] | bf16 | |
| result | [T, H] | bf16 | |

Rows are sorted by expert into tiles (`expert_sort`); a program multiplies a tile with some outputs
of its expert. Weights are the 64 rows or more of the matrix instruction, so that a tile of 16 rows
suffices at decode. Products are rounded to BF16, as the reference's are.

T rows, H hidden values, E experts, K choices per row, I values inside an expert.
"""

from __future__ import annotations

from functools import partial

import torch
import triton
import triton.language as tl

from .expert_sort import Tiles, tile_slots
from .grouped import grouped_experts

_OUTPUTS, _COLUMNS = 64, 128


@triton.jit(do_not_specialize=["num_slots"])
def _dense_product_kernel(
    X, WEIGHT, TILE_EXPERT, TILE_SLOT, TILE_COUNT, OUT, num_slots,
    NUM_EXPERTS: tl.constexpr, N: tl.constexpr, K: tl.constexpr, SLOTS_PER_ROW: tl.constexpr,
    TILE_ROWS: tl.constexpr, OUTPUTS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """OUT[slot] = X[slot // SLOTS_PER_ROW] @ W[expert].T for a tile's slots."""
    i_tile = tl.program_id(0)
    if TILE_COUNT is not None:
        if i_tile >= tl.load(TILE_COUNT):
            return
    expert = tl.load(TILE_EXPERT + i_tile).to(tl.int64)
    # choices that were not sorted may still be none
    if (expert < 0) | (expert >= NUM_EXPERTS):
        return
    slot = tile_slots(TILE_SLOT, i_tile, TILE_ROWS)
    m_row = (slot >= 0) & (slot < num_slots)
    o_out = tl.program_id(1) * OUTPUTS + tl.arange(0, OUTPUTS)
    o_column = tl.arange(0, COLUMNS)
    m_out = o_out < N
    p_x = X + (slot // SLOTS_PER_ROW)[:, None] * K + o_column[None, :]
    p_weight = WEIGHT + (expert * N + o_out)[:, None] * K + o_column[None, :]
    # [OUTPUTS, TILE_ROWS]
    b_sum = tl.zeros([OUTPUTS, TILE_ROWS], tl.float32)
    num_blocks: tl.constexpr = (K + COLUMNS - 1) // COLUMNS
    for i_block in range(num_blocks):
        start = i_block * COLUMNS
        m_x, m_weight = m_row[:, None], m_out[:, None]
        if num_blocks * COLUMNS != K:
            m_column = (start + o_column < K)[None, :]
            m_x, m_weight = m_x & m_column, m_weight & m_column
        b_x = tl.load(p_x + start, mask=m_x, other=0.0)
        b_weight = tl.load(
            p_weight + start, mask=m_weight, other=0.0, eviction_policy="evict_first"
        )
        b_sum = tl.dot(b_weight, tl.trans(b_x), b_sum)
    p_out = OUT + slot[None, :] * N + o_out[:, None]
    tl.store(p_out, b_sum.to(tl.bfloat16), mask=m_row[None, :] & m_out[:, None])


def dense_experts(
    x_TH: torch.Tensor,
    expert_TK: torch.Tensor,
    weight_TK: torch.Tensor,
    gate_up_EJH: torch.Tensor,
    down_EHI: torch.Tensor,
    *,
    tile_rows: int | None = None,
) -> torch.Tensor:
    """Return sum over k of weight[t, k] * expert[t, k](x[t]) [T, H]; `tile_rows` as in `grouped_experts`."""
    num_experts, _, hidden_dim = gate_up_EJH.shape
    assert x_TH.dtype == gate_up_EJH.dtype == down_EHI.dtype == torch.bfloat16
    assert x_TH.shape[1] == hidden_dim == down_EHI.shape[1] and expert_TK.shape == weight_TK.shape
    assert gate_up_EJH.is_contiguous() and down_EHI.is_contiguous()
    return grouped_experts(
        x_TH,
        expert_TK,
        weight_TK,
        num_experts=num_experts,
        gate_up=partial(_product, gate_up_EJH),
        down=partial(_product, down_EHI),
        tile_rows=tile_rows,
    )


def _product(
    weight_ENK: torch.Tensor, x: torch.Tensor, tiles: Tiles, num_slots: int
) -> torch.Tensor:
    num_experts, num_outputs, num_columns = weight_ENK.shape
    out = x.new_empty(num_slots, num_outputs)
    is_tall = tiles.num_rows == 64
    outputs = 2 * _OUTPUTS if is_tall else _OUTPUTS
    _dense_product_kernel[(tiles.max_tiles, triton.cdiv(num_outputs, outputs))](
        x, weight_ENK, tiles.expert, tiles.slot, tiles.count, out, num_slots,
        NUM_EXPERTS=num_experts, N=num_outputs, K=num_columns,
        SLOTS_PER_ROW=num_slots // x.shape[0], TILE_ROWS=tiles.num_rows, OUTPUTS=outputs,
        COLUMNS=_COLUMNS, num_warps=8 if is_tall else 4, num_stages=3,
    )  # fmt: skip
    return out
