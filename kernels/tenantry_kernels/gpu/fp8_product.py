"""Rows times a matrix of FP8 blocks, in the layout of released files.

| tensor | shape | dtype | what |
|---|---|---|---|
| x | [M, K] | bf16 | |
| weight | [N, K] | float8_e4m3fn | |
| scale_inv | [ceil(N / 128), ceil(K / 128)] | float32 | w = q * scale_inv, despite the name |
| result | [M, N] | bf16 | |

The last block of an axis may be partial. A matrix that was put together from several has whole
blocks but for its last part (GLM's q_a and kv_a: 16 blocks of rows, then 4.5), else its scales
would not line up.

Activations stay BF16. Servers that feed FP8 tensor cores round them to e4m3 per 128 columns, which
adds an error of 2.6 percent RMS per value to each product; the released checkpoints are judged by what their
BF16 originals answer, and at decode the time is that of reading weights, which activations do not
change. E4m3 fits BF16 exactly, products are exact in float32, and each block's sum is scaled in
float32, so the only rounding is that of the sums and of the result. The price is at long chunks,
where BF16 instructions run at half the FP8 rate.

E4m3 goes to BF16 by way of FP16, which holds it exactly: Triton's direct conversion takes one F2F per
value, an instruction of low rate. Weights are the 64 rows of the matrix instruction, straight from registers,
so that 16 columns of activations suffice. A long K is divided among programs where there are few.

M rows, N outputs, K columns, S parts of K.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl

FP8_BLOCK = 128

_SUM_BLOCK = 1024
# two programs per multiprocessor of an H200: each has four blocks of 8 KB on their way
_WANTED_PROGRAMS = 2 * 132
_MOST_PARTS = 8


class Fp8Stored(NamedTuple):
    """One matrix, as in the table above."""

    weight: torch.Tensor
    scale_inv: torch.Tensor


class _Tile(NamedTuple):
    rows: int
    outputs: int
    num_warps: int
    num_stages: int


@triton.jit(do_not_specialize=["num_rows"])
def _fp8_product_kernel(
    X,
    WEIGHT,
    SCALE_INV,
    OUT,
    num_rows,
    x_stride,
    N: tl.constexpr,
    K: tl.constexpr,
    PARTS: tl.constexpr,
    ROWS: tl.constexpr,
    OUTPUTS: tl.constexpr,
):
    """OUT[part] = X @ W.T over the part's blocks of 128 columns."""
    # rows vary fastest: neighbors read the same weights at the same time
    i_rows = tl.program_id(0)
    i_outputs = tl.program_id(1)
    i_part = tl.program_id(2)
    num_blocks: tl.constexpr = (K + 127) // 128
    blocks_per_part: tl.constexpr = (num_blocks + PARTS - 1) // PARTS
    is_even: tl.constexpr = blocks_per_part * PARTS * 128 == K
    o_row = (i_rows * ROWS + tl.arange(0, ROWS)).to(tl.int64)
    o_out = (i_outputs * OUTPUTS + tl.arange(0, OUTPUTS)).to(tl.int64)
    m_row = o_row < num_rows
    m_out = o_out < N
    o_column = tl.arange(0, 128)
    first = i_part * blocks_per_part
    p_x = X + o_row[:, None] * x_stride + o_column[None, :]
    p_weight = WEIGHT + o_out[:, None] * K + o_column[None, :]
    p_scale = SCALE_INV + (i_outputs * OUTPUTS // 128) * num_blocks
    # [OUTPUTS, ROWS]
    b_sum = tl.zeros([OUTPUTS, ROWS], tl.float32)
    for i_block in range(first, first + blocks_per_part):
        m_x, m_weight = m_row[:, None], m_out[:, None]
        if not is_even:
            m_column = (i_block * 128 + o_column < K)[None, :]
            m_x, m_weight = m_x & m_column, m_weight & m_column
        b_x = tl.load(p_x + i_block * 128, mask=m_x, other=0.0)
        b_weight = tl.load(
            p_weight + i_block * 128, mask=m_weight, other=0.0, eviction_policy="evict_first"
        )
        scale = tl.load(p_scale + i_block, mask=i_block < num_blocks, other=0.0)
        b_wide = b_weight.to(tl.float16).to(tl.bfloat16)
        b_sum += tl.dot(b_wide, tl.trans(b_x)) * scale
    p_out = OUT + (i_part * num_rows + o_row)[None, :] * N + o_out[:, None]
    tl.store(p_out, b_sum.to(OUT.dtype.element_ty), mask=m_row[None, :] & m_out[:, None])


@triton.jit(do_not_specialize=["num_values"])
def _sum_parts_kernel(PARTIAL, OUT, num_values, PARTS: tl.constexpr, BLOCK: tl.constexpr):
    o_value = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    m_value = o_value < num_values
    b_sum = tl.zeros([BLOCK], tl.float32)
    for i_part in range(PARTS):
        b_sum += tl.load(PARTIAL + i_part * num_values + o_value, mask=m_value, other=0.0)
    tl.store(OUT + o_value, b_sum.to(tl.bfloat16), mask=m_value)


def fp8_product(
    x_MK: torch.Tensor, matrix: Fp8Stored, *, num_parts: int | None = None
) -> torch.Tensor:
    """Return x @ w.T [M, N] in BF16. A row's bits depend on the number of parts, not on its company."""
    _check(x_MK, matrix)
    num_rows, num_columns = x_MK.shape
    num_outputs = matrix.weight.shape[0]
    result = x_MK.new_empty(num_rows, num_outputs)
    if num_rows == 0:
        return result
    tile = _tile(num_rows)
    grid = (triton.cdiv(num_rows, tile.rows), triton.cdiv(num_outputs, tile.outputs))
    num_blocks = triton.cdiv(num_columns, FP8_BLOCK)
    if num_parts is None:
        num_parts = max(
            1, min(_WANTED_PROGRAMS // (grid[0] * grid[1]), num_blocks // 4, _MOST_PARTS)
        )
    # a part without blocks would add nothing
    num_parts = triton.cdiv(num_blocks, triton.cdiv(num_blocks, num_parts))
    out = (
        result
        if num_parts == 1
        else x_MK.new_empty(num_parts, num_rows, num_outputs, dtype=torch.float32)
    )
    _fp8_product_kernel[(*grid, num_parts)](
        x_MK,
        matrix.weight,
        matrix.scale_inv,
        out,
        num_rows,
        x_MK.stride(0),
        N=num_outputs,
        K=num_columns,
        PARTS=num_parts,
        ROWS=tile.rows,
        OUTPUTS=tile.outputs,
        num_warps=tile.num_warps,
        num_stages=tile.num_stages,
    )
    if num_parts > 1:
        _sum_parts_kernel[(triton.cdiv(result.numel(), _SUM_BLOCK),)](
            out, result, result.numel(), PARTS=num_parts, BLOCK=_SUM_BLOCK, num_warps=4
        )
    return result


def fp8_product_reference(x_MK: torch.Tensor, matrix: Fp8Stored) -> torch.Tensor:
    """Return the same in plain PyTorch, float32 inside and out."""
    num_outputs, num_columns = matrix.weight.shape
    scale = matrix.scale_inv.repeat_interleave(FP8_BLOCK, 0)[:num_outputs]
    scale = scale.repeat_interleave(FP8_BLOCK, 1)[:, :num_columns]
    return x_MK.float() @ (matrix.weight.float() * scale).T


def _tile(num_rows: int) -> _Tile:
    if num_rows <= 32:
        return _Tile(rows=16 if num_rows <= 16 else 32, outputs=64, num_warps=4, num_stages=4)
    if num_rows <= 64:
        return _Tile(rows=64, outputs=64, num_warps=4, num_stages=4)
    return _Tile(rows=128, outputs=128, num_warps=8, num_stages=4)


def _check(x_MK: torch.Tensor, matrix: Fp8Stored) -> None:
    if x_MK.dtype != torch.bfloat16 or x_MK.stride(1) != 1:
        raise ValueError(f"rows must be BF16 and contiguous, not {x_MK.dtype} {x_MK.stride()}")
    num_outputs, num_columns = matrix.weight.shape
    if num_columns != x_MK.shape[1]:
        raise ValueError(f"the matrix has {num_columns} columns, the rows {x_MK.shape[1]}")
    if matrix.weight.dtype != torch.float8_e4m3fn or matrix.scale_inv.dtype != torch.float32:
        raise ValueError(f"the matrix is {matrix.weight.dtype}, {matrix.scale_inv.dtype}")
    blocks = (triton.cdiv(num_outputs, FP8_BLOCK), triton.cdiv(num_columns, FP8_BLOCK))
    if matrix.scale_inv.shape != blocks:
        raise ValueError(f"{blocks} blocks have scales {tuple(matrix.scale_inv.shape)}")
    if not (matrix.weight.is_contiguous() and matrix.scale_inv.is_contiguous()):
        raise ValueError("the matrix is not contiguous")
