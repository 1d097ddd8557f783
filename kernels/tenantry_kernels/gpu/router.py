"""Choose each row's experts: sigmoid scores, a bias for the choice alone, normalized weights.

The router of DeepSeek-V3, Kimi and GLM (`noaux_tc`) without groups of experts, as both released
models have it (`n_group` 1).

| tensor | shape | dtype | what |
|---|---|---|---|
| x | [T, H] | bf16 | |
| weight | [E, H] | bf16 or float32 | BF16 products are exact; float32 ones run as three TF32 products |
| bias | [E] | float32 | added to scores for the choice, not for the weights |
| ok | [T] | bool, or none | rows that did not fail |
| chosen experts | [T, K] | int32 | by falling score plus bias, ties to the lower number; -1 where not ok |
| their weights | [T, K] | float32 | score / sum of the K scores (if normalized) * scaling; 0 where not ok |

Scores are products divided among programs by experts and by columns; the second launch sums the
parts in order and chooses, one program per row. A score that is not a number is never preferred.

T rows, H hidden values, E experts, K choices per row, S parts of H.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

_TILE_EXPERTS = 64
_BLOCK_COLUMNS = {torch.bfloat16: 128, torch.float32: 32}
_WANTED_PROGRAMS = 2 * 132
_MOST_PARTS = 16


@triton.jit(do_not_specialize=["num_rows"])
def _score_kernel(
    X,
    WEIGHT,
    OUT,
    num_rows,
    x_stride,
    E: tl.constexpr,
    H: tl.constexpr,
    PARTS: tl.constexpr,
    ROWS: tl.constexpr,
    EXPERTS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    i_part = tl.program_id(2)
    num_blocks: tl.constexpr = (H + COLUMNS - 1) // COLUMNS
    blocks_per_part: tl.constexpr = (num_blocks + PARTS - 1) // PARTS
    is_even: tl.constexpr = blocks_per_part * PARTS * COLUMNS == H
    o_row = (tl.program_id(0) * ROWS + tl.arange(0, ROWS)).to(tl.int64)
    o_expert = tl.program_id(1) * EXPERTS + tl.arange(0, EXPERTS)
    o_column = tl.arange(0, COLUMNS)
    m_row = o_row < num_rows
    m_expert = o_expert < E
    first = i_part * blocks_per_part * COLUMNS
    p_x = X + o_row[:, None] * x_stride + o_column[None, :]
    p_weight = WEIGHT + o_expert.to(tl.int64)[:, None] * H + o_column[None, :]
    # [EXPERTS, ROWS]
    b_sum = tl.zeros([EXPERTS, ROWS], tl.float32)
    for i_block in range(blocks_per_part):
        start = first + i_block * COLUMNS
        m_x, m_weight = m_row[:, None], m_expert[:, None]
        if not is_even:
            m_column = (start + o_column < H)[None, :]
            m_x, m_weight = m_x & m_column, m_weight & m_column
        b_x = tl.load(p_x + start, mask=m_x, other=0.0)
        b_weight = tl.load(p_weight + start, mask=m_weight, other=0.0)
        if WEIGHT.dtype.element_ty == tl.bfloat16:
            b_sum = tl.dot(b_weight, tl.trans(b_x), b_sum)
        else:
            b_sum = tl.dot(b_weight, tl.trans(b_x.to(tl.float32)), b_sum, input_precision="tf32x3")
    p_out = OUT + (i_part * num_rows + o_row)[None, :] * E + o_expert[:, None]
    tl.store(p_out, b_sum, mask=m_row[None, :] & m_expert[:, None])


@triton.jit(do_not_specialize=["num_rows"])
def _choose_kernel(
    PARTIAL,
    BIAS,
    OK,
    CHOSEN,
    WEIGHT,
    num_rows,
    scaling,
    E: tl.constexpr,
    K: tl.constexpr,
    PARTS: tl.constexpr,
    IS_NORMALIZED: tl.constexpr,
    MOST_EXPERTS: tl.constexpr,
    MOST_CHOICES: tl.constexpr,
):
    i_row = tl.program_id(0).to(tl.int64)
    o_expert = tl.arange(0, MOST_EXPERTS)
    o_choice = tl.arange(0, MOST_CHOICES)
    m_expert = o_expert < E
    b_product = tl.zeros([MOST_EXPERTS], tl.float32)
    for i_part in range(PARTS):
        p_part = PARTIAL + (i_part * num_rows + i_row) * E + o_expert
        b_product += tl.load(p_part, mask=m_expert, other=0.0)
    b_score = 1 / (1 + tl.exp(-b_product))
    b_preference = b_score + tl.load(BIAS + o_expert, mask=m_expert, other=0.0)
    # what is not a number equals nothing, not even itself
    is_number = b_preference == b_preference
    b_preference = tl.where(is_number, b_preference, -3.0e38)
    b_preference = tl.where(m_expert, b_preference, float("-inf"))
    b_chosen = tl.full([MOST_CHOICES], -1, tl.int32)
    b_weight = tl.zeros([MOST_CHOICES], tl.float32)
    for i_choice in tl.static_range(K):
        best = tl.max(b_preference, 0)
        expert = tl.min(tl.where(b_preference == best, o_expert, MOST_EXPERTS), 0)
        is_best = o_expert == expert
        score = tl.sum(tl.where(is_best, b_score, 0.0), 0)
        b_chosen = tl.where(o_choice == i_choice, expert, b_chosen)
        b_weight = tl.where(o_choice == i_choice, score, b_weight)
        b_preference = tl.where(is_best, float("-inf"), b_preference)
    if IS_NORMALIZED:
        b_weight = b_weight / (tl.sum(b_weight, 0) + 1e-20)
    b_weight *= scaling
    if OK is not None:
        is_ok = tl.load(OK + i_row) != 0
        b_chosen = tl.where(is_ok, b_chosen, -1)
        b_weight = tl.where(is_ok, b_weight, 0.0)
    m_choice = o_choice < K
    tl.store(CHOSEN + i_row * K + o_choice, b_chosen, mask=m_choice)
    tl.store(WEIGHT + i_row * K + o_choice, b_weight, mask=m_choice)


def route(
    x_TH: torch.Tensor,
    weight_EH: torch.Tensor,
    bias_E: torch.Tensor,
    num_choices: int,
    *,
    is_normalized: bool = True,
    scaling: float = 1.0,
    ok_T: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return chosen experts int32 [T, K] and their float32 weights [T, K]."""
    _check(x_TH, weight_EH, bias_E, num_choices)
    num_rows, hidden_dim = x_TH.shape
    num_experts = weight_EH.shape[0]
    chosen = x_TH.new_empty(num_rows, num_choices, dtype=torch.int32)
    weight = x_TH.new_empty(num_rows, num_choices, dtype=torch.float32)
    if num_rows == 0:
        return chosen, weight
    tile_rows = next((rows for rows in (16, 32) if num_rows <= rows), 64)
    grid = (triton.cdiv(num_rows, tile_rows), triton.cdiv(num_experts, _TILE_EXPERTS))
    columns = _BLOCK_COLUMNS[weight_EH.dtype]
    num_blocks = triton.cdiv(hidden_dim, columns)
    wanted = max(1, min(_WANTED_PROGRAMS // (grid[0] * grid[1]), num_blocks // 2, _MOST_PARTS))
    num_parts = triton.cdiv(num_blocks, triton.cdiv(num_blocks, wanted))
    partial = x_TH.new_empty(num_parts, num_rows, num_experts, dtype=torch.float32)
    _score_kernel[(*grid, num_parts)](
        x_TH,
        weight_EH,
        partial,
        num_rows,
        x_TH.stride(0),
        E=num_experts,
        H=hidden_dim,
        PARTS=num_parts,
        ROWS=tile_rows,
        EXPERTS=_TILE_EXPERTS,
        COLUMNS=columns,
        num_warps=4,
        num_stages=3,
    )
    _choose_kernel[(num_rows,)](
        partial,
        bias_E,
        ok_T,
        chosen,
        weight,
        num_rows,
        scaling,
        E=num_experts,
        K=num_choices,
        PARTS=num_parts,
        IS_NORMALIZED=is_normalized,
        MOST_EXPERTS=triton.next_power_of_2(num_experts),
        MOST_CHOICES=triton.next_power_of_2(num_choices),
        num_warps=1,
    )
    return chosen, weight


def route_reference(
    x_TH: torch.Tensor,
    weight_EH: torch.Tensor,
    bias_E: torch.Tensor,
    num_choices: int,
    *,
    is_normalized: bool = True,
    scaling: float = 1.0,
    ok_T: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the same in plain PyTorch."""
    score_TE = (x_TH.float() @ weight_EH.float().T).sigmoid()
    preference: torch.Tensor = (score_TE + bias_E).nan_to_num(nan=-3.0e38)
    # stable: of equals, the lower number stays first
    order = torch.sort(preference, dim=-1, descending=True, stable=True).indices
    chosen = order[:, :num_choices]
    weight = score_TE.gather(1, chosen)
    if is_normalized:
        weight = weight / (weight.sum(-1, keepdim=True) + 1e-20)
    weight = weight * scaling
    if ok_T is not None:
        chosen = chosen.where(ok_T[:, None], -1)
        weight = weight.where(ok_T[:, None], 0.0)
    return chosen.int(), weight


def _check(
    x_TH: torch.Tensor, weight_EH: torch.Tensor, bias_E: torch.Tensor, num_choices: int
) -> None:
    if x_TH.dtype != torch.bfloat16 or x_TH.stride(1) != 1:
        raise ValueError(f"rows must be BF16 and contiguous, not {x_TH.dtype} {x_TH.stride()}")
    num_experts, width = weight_EH.shape
    if width != x_TH.shape[1] or not weight_EH.is_contiguous():
        raise ValueError(f"the router has {width} columns, the rows {x_TH.shape[1]}")
    if weight_EH.dtype not in _BLOCK_COLUMNS:
        raise ValueError(f"the router's weights are {weight_EH.dtype}")
    if bias_E.shape != (num_experts,) or bias_E.dtype != torch.float32:
        raise ValueError(f"the bias is {bias_E.dtype} {tuple(bias_E.shape)}")
    if not 0 < num_choices <= num_experts:
        raise ValueError(f"{num_choices} choices of {num_experts} experts")
