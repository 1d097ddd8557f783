"""SwiGLU experts kept in FP8 blocks, applied to the rows that chose them, without asking the device.

Weights are in the layout of released files, stacked by expert:

| tensor | shape | dtype | what |
|---|---|---|---|
| x | [T, H] | bf16 | |
| chosen experts | [T, K] | int32 or int64 | a number outside 0..E-1 adds nothing |
| their weights | [T, K] | float32 | |
| gate and up | [E, 2, I, H] | float8_e4m3fn | |
| their scale_inv | [E, 2, ceil(I / 128), ceil(H / 128)] | float32 | w = q * scale_inv, despite the name |
| down | [E, 1, H, I] | float8_e4m3fn | |
| its scale_inv | [E, 1, ceil(H / 128), ceil(I / 128)] | float32 | |
| result | [T, H] | bf16 | |

Rows are sorted by expert into tiles (`expert_sort`), and each weight that somebody chose is read from
memory once per tile. As in `fp8_product`, activations stay BF16, e4m3 goes to BF16 by way of FP16, and
each block's sum is scaled in float32. Where gate's last block is partial, up's blocks begin anew, so
that a tile of outputs may have several scales: each output then has its own.

T rows, H hidden values, E experts, K choices per row, I values inside an expert, P parts of a matrix.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import torch
import triton
import triton.language as tl

from .expert_sort import Tiles, tile_slots
from .fp8_product import FP8_BLOCK
from .grouped import grouped_experts


class Fp8Stack(NamedTuple):
    """One kind of matrix of all experts, as in the table above."""

    weight: torch.Tensor
    scale_inv: torch.Tensor


@triton.jit(do_not_specialize=["num_slots"])
def _fp8_experts_kernel(
    X, WEIGHT, SCALE_INV, TILE_EXPERT, TILE_SLOT, TILE_COUNT, OUT, num_slots,
    NUM_EXPERTS: tl.constexpr, PARTS: tl.constexpr, N: tl.constexpr, K: tl.constexpr,
    SLOTS_PER_ROW: tl.constexpr, TILE_ROWS: tl.constexpr, OUTPUTS: tl.constexpr,
):  # fmt: skip
    """OUT[slot] = X[slot // SLOTS_PER_ROW] @ W[expert].T for a tile's slots; W has PARTS * N rows."""
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
    num_blocks: tl.constexpr = (K + 127) // 128
    part_blocks: tl.constexpr = (N + 127) // 128
    first_out = tl.program_id(1) * OUTPUTS
    o_out = first_out + tl.arange(0, OUTPUTS)
    o_column = tl.arange(0, 128)
    m_out = o_out < PARTS * N
    p_x = X + (slot // SLOTS_PER_ROW)[:, None] * K + o_column[None, :]
    p_weight = WEIGHT + (expert * PARTS * N + o_out)[:, None] * K + o_column[None, :]
    p_scale = SCALE_INV + expert * PARTS * part_blocks * num_blocks
    # one scale for a tile of outputs
    is_aligned: tl.constexpr = N % 128 == 0 or (PARTS == 1 and 128 % OUTPUTS == 0)
    # [OUTPUTS, TILE_ROWS]
    b_sum = tl.zeros([OUTPUTS, TILE_ROWS], tl.float32)
    for i_block in range(num_blocks):
        m_x, m_weight = m_row[:, None], m_out[:, None]
        if num_blocks * 128 != K:
            m_column = (i_block * 128 + o_column < K)[None, :]
            m_x, m_weight = m_x & m_column, m_weight & m_column
        b_x = tl.load(p_x + i_block * 128, mask=m_x, other=0.0)
        b_weight = tl.load(
            p_weight + i_block * 128, mask=m_weight, other=0.0, eviction_policy="evict_first"
        )
        b_product = tl.dot(b_weight.to(tl.float16).to(tl.bfloat16), tl.trans(b_x))
        if is_aligned:
            b_sum += b_product * tl.load(p_scale + first_out // 128 * num_blocks + i_block)
        else:
            o_scale = o_out // N * part_blocks + o_out % N // 128
            b_scale = tl.load(p_scale + o_scale * num_blocks + i_block, mask=m_out, other=0.0)
            b_sum += b_product * b_scale[:, None]
    p_out = OUT + slot[None, :] * (PARTS * N) + o_out[:, None]
    tl.store(p_out, b_sum.to(tl.bfloat16), mask=m_row[None, :] & m_out[:, None])


def fp8_experts(
    x_TH: torch.Tensor,
    expert_TK: torch.Tensor,
    weight_TK: torch.Tensor,
    gate_up: Fp8Stack,
    down: Fp8Stack,
    *,
    tile_rows: int | None = None,
) -> torch.Tensor:
    """Return sum over k of weight[t, k] * expert[t, k](x[t]) [T, H]; `tile_rows` as in `grouped_experts`."""
    _check(x_TH, expert_TK, weight_TK, gate_up, down)
    return grouped_experts(
        x_TH,
        expert_TK,
        weight_TK,
        num_experts=gate_up.weight.shape[0],
        gate_up=partial(_product, gate_up),
        down=partial(_product, down),
        tile_rows=tile_rows,
    )


def _product(stack: Fp8Stack, x: torch.Tensor, tiles: Tiles, num_slots: int) -> torch.Tensor:
    num_experts, num_parts, part_outputs, num_columns = stack.weight.shape
    num_outputs = num_parts * part_outputs
    out = x.new_empty(num_slots, num_outputs)
    is_tall = tiles.num_rows == 64
    outputs = 128 if is_tall else 64
    _fp8_experts_kernel[(tiles.max_tiles, triton.cdiv(num_outputs, outputs))](
        x, stack.weight, stack.scale_inv, tiles.expert, tiles.slot, tiles.count, out, num_slots,
        NUM_EXPERTS=num_experts, PARTS=num_parts, N=part_outputs, K=num_columns,
        SLOTS_PER_ROW=num_slots // x.shape[0], TILE_ROWS=tiles.num_rows, OUTPUTS=outputs,
        num_warps=8 if is_tall else 4, num_stages=4,
    )  # fmt: skip
    return out


def _check(
    x_TH: torch.Tensor,
    expert_TK: torch.Tensor,
    weight_TK: torch.Tensor,
    gate_up: Fp8Stack,
    down: Fp8Stack,
) -> None:
    if x_TH.dtype != torch.bfloat16:
        raise ValueError(f"rows must be BF16, not {x_TH.dtype}")
    if expert_TK.shape != weight_TK.shape or expert_TK.shape[0] != x_TH.shape[0]:
        raise ValueError(
            f"{x_TH.shape[0]} rows have choices {tuple(expert_TK.shape)} "
            f"with weights {tuple(weight_TK.shape)}"
        )
    num_experts, _, inner, hidden = gate_up.weight.shape
    if x_TH.shape[1] != hidden:
        raise ValueError(f"the experts have {hidden} columns, the rows {x_TH.shape[1]}")
    for stack, shape in (
        (gate_up, (num_experts, 2, inner, hidden)),
        (down, (num_experts, 1, hidden, inner)),
    ):
        if stack.weight.shape != shape:
            raise ValueError(f"matrices are {tuple(stack.weight.shape)}, not {shape}")
        blocks = (*shape[:2], *(triton.cdiv(size, FP8_BLOCK) for size in shape[2:]))
        if stack.scale_inv.shape != blocks:
            raise ValueError(f"{blocks} blocks have scales {tuple(stack.scale_inv.shape)}")
        if (stack.weight.dtype, stack.scale_inv.dtype) != (torch.float8_e4m3fn, torch.float32):
            raise ValueError(f"matrices are {stack.weight.dtype}, {stack.scale_inv.dtype}")
        if not (stack.weight.is_contiguous() and stack.scale_inv.is_contiguous()):
            raise ValueError("matrices are not contiguous")
