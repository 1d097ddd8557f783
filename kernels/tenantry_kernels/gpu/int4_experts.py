"""SwiGLU experts with INT4 weights for 1 to 512 rows: tokens sorted by expert, weights read once.

Weights are in the layout of released files (compressed-tensors `pack-quantized`), stacked by expert:

| tensor | shape | dtype | what |
|---|---|---|---|
| x | [T, H] | bf16 | |
| gate_up packed | [E, 2I, H / 8] | int32 | gate's rows, then up's; column j is nibble j % 8 of word j // 8, lowest first, stored as q + 8 |
| gate_up scale | [E, 2I, H / 32] | bf16 | w = q * scale, q in -8..7 |
| down packed | [E, H, I / 8] | int32 | the same |
| down scale | [E, H, I / 32] | bf16 | |
| chosen experts | [T, K] | int | one outside 0..E-1 takes no place and adds nothing |
| their weights | [T, K] | float32 | |
| result | [T, H] | bf16 | sum over k, in the order of k |

How a word becomes eight BF16 weights in nine instructions. `q & 0x000F000F` holds nibbles 0 and 4
in the low bits of two BF16: read as floats these are n * 2^-133 (BF16 is linear from zero through
its subnormals to 2^-125, that is for the low eight bits), and `q & 0x00F000F0` holds nibbles 1 and
5, times 16; after one shift by 8 the same masks give 2, 6 and 3, 7. One fused multiply-add then
gives n * s - 8 * s with one rounding, as (n - 8) * s would have: -8 * s is exact. To keep the
multiplier s * 2^133 within BF16's range, weights are made 2^-24 times too small and sums are
corrected at the end, which is exact: both are powers of two.

Pairs come out as (n, n + 4 columns), and a thread that loads 16 bytes of a row has one group of 32
columns to itself, hence one scale. So the products run over K in another order, in which the
activations are stored beforehand; within each 128 columns, the bits of a place are

| places' bits | 6-5 | 4 | 3 | 2-1 | 0 |
|---|---|---|---|---|---|
| | word in the group | shift by 8 | mask | group | half |

Rows are a tile's columns of the matrix instruction and weights its 64 rows, straight from registers
(`wgmma` with a register operand). It takes 16 rows or more: smaller tiles compile to `mma.sync` with
a trip through shared memory, so that a tile of 8 rows is allowed but never chosen. Empty rows are
not read. The gate-and-up product divides its long K among programs when there are few tiles; the
parts are summed in order by the SwiGLU pass, which also stores its result in the order above.

T rows, H hidden values, E experts, K choices per row, I values inside an expert, S parts of K.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch.nn.functional import silu

from .expert_sort import Tiles, expert_sort, tile_slots

GROUP = 32
"""Columns that share a scale."""
WORD = 8
"""Columns in a word."""
ORDER_BLOCK = 128
"""Columns among which the products' order permutes."""
TILE_ROWS = (8, 16, 32, 64)

_ROW_BLOCK = 1024
# four programs per multiprocessor of an H200 (132 of them) keep its memory busy
_WANTED_PROGRAMS = 4 * 132
_MOST_PARTS = 8
# with fewer columns a program is over before a deep pipeline is full
_LONG_K = 1024


class Int4Stack(NamedTuple):
    """One matrix per expert, as in the table above."""

    packed: torch.Tensor
    scale: torch.Tensor


class Int4Experts(NamedTuple):
    """All experts of a layer, or of one shard of it."""

    gate_up: Int4Stack
    down: Int4Stack


class _Block(NamedTuple):
    outputs: int
    columns: int
    num_warps: int
    num_stages: int


@triton.jit
def _column(place):
    """Return the column that stands at a place of the products' order."""
    in_block = place & 127
    word = in_block >> 5
    shift_and_mask = (in_block >> 3) & 3
    group = (in_block >> 1) & 3
    return place - in_block + group * 32 + word * 8 + (in_block & 1) * 4 + shift_and_mask


@triton.jit
def _int4_weights(words, scale, OUTPUTS: tl.constexpr, COLUMNS: tl.constexpr):
    """Return 2^-24 times the weights [OUTPUTS, COLUMNS] of words, in the products' order."""
    shifted = words >> 8
    # [OUTPUTS, words, shift, mask]
    pairs = tl.join(
        tl.join(words & 0x000F000F, shifted & 0x000F000F),
        tl.join(words & 0x00F000F0, shifted & 0x00F000F0),
    )
    low = pairs.to(tl.int16).to(tl.bfloat16, bitcast=True)
    high = (pairs >> 16).to(tl.int16).to(tl.bfloat16, bitcast=True)
    # the half that comes first here lands in the upper half of a packed fused multiply-add: ptxas
    # pairs them backwards, and swaps twice per pair if they come in order
    nibbles = tl.reshape(tl.join(high, low), (OUTPUTS, COLUMNS // 128, 4, 4, 2, 2, 2))
    # 2^(133 - 24), and 16 times less where the mask left the nibble 4 bits higher
    by_mask = tl.join(scale * 6.490371073168535e32, scale * 4.056481920730334e31)
    multiplier = tl.reshape(by_mask, (OUTPUTS, COLUMNS // 128, 4, 2))
    # -8 * 2^-24
    offset = tl.reshape(scale * -4.76837158203125e-07, (OUTPUTS, COLUMNS // 128, 4))
    weights = tl.fma(
        nibbles,
        tl.broadcast_to(multiplier[:, :, :, None, None, :, None], nibbles.shape),
        tl.broadcast_to(offset[:, :, :, None, None, None, None], nibbles.shape),
    )
    high, low = tl.split(weights)
    ordered = tl.permute(tl.join(low, high), (0, 1, 3, 4, 5, 2, 6))
    return tl.reshape(ordered, (OUTPUTS, COLUMNS))


@triton.jit(do_not_specialize=["num_slots"])
def _int4_product_kernel(
    X,
    PACKED,
    SCALE,
    TILE_EXPERT,
    TILE_SLOT,
    TILE_COUNT,
    OUT,
    num_slots,
    NUM_EXPERTS: tl.constexpr,
    N: tl.constexpr,
    K: tl.constexpr,
    X_STRIDE: tl.constexpr,
    SLOTS_PER_ROW: tl.constexpr,
    PARTS: tl.constexpr,
    TILE_ROWS: tl.constexpr,
    OUTPUTS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """OUT[part, slot] = X[slot // SLOTS_PER_ROW] @ W[expert].T over the part's columns."""
    i_tile = tl.program_id(0)
    i_part = tl.program_id(2)
    if TILE_COUNT is not None:
        if i_tile >= tl.load(TILE_COUNT):
            return
    expert = tl.load(TILE_EXPERT + i_tile).to(tl.int64)
    # choices that were not sorted may still be none
    if (expert < 0) | (expert >= NUM_EXPERTS):
        return
    slot = tile_slots(TILE_SLOT, i_tile, TILE_ROWS)
    m_row = slot >= 0
    o_out = tl.program_id(1) * OUTPUTS + tl.arange(0, OUTPUTS)
    m_out = o_out < N
    o_weight = expert * N + o_out
    o_column = tl.arange(0, COLUMNS)
    o_word = tl.arange(0, COLUMNS // 8)
    o_group = tl.arange(0, COLUMNS // 32)
    blocks: tl.constexpr = (K + COLUMNS - 1) // COLUMNS
    blocks_per_part: tl.constexpr = (blocks + PARTS - 1) // PARTS
    is_even: tl.constexpr = blocks_per_part * PARTS * COLUMNS == K
    first = i_part * blocks_per_part * COLUMNS
    p_x = X + (slot // SLOTS_PER_ROW)[:, None] * X_STRIDE + o_column[None, :]
    p_words = PACKED + o_weight[:, None] * (K // 8) + o_word[None, :]
    p_scale = SCALE + o_weight[:, None] * (K // 32) + o_group[None, :]
    # [OUTPUTS, TILE_ROWS]
    b_sum = tl.zeros([OUTPUTS, TILE_ROWS], tl.float32)
    # the number of turns is a constant: were it none, sums would not come from wgmma, and ptxas would
    # let each wgmma end before the next begins
    for i_block in range(blocks_per_part):
        start = first + i_block * COLUMNS
        m_x, m_words, m_scale = m_row[:, None], m_out[:, None], m_out[:, None]
        if not is_even:
            m_x = m_x & (start + o_column < X_STRIDE)[None, :]
            m_words = m_words & (start // 8 + o_word < K // 8)[None, :]
            m_scale = m_scale & (start // 32 + o_group < K // 32)[None, :]
        b_x = tl.load(p_x + start, mask=m_x, other=0.0)
        b_words = tl.load(
            p_words + start // 8, mask=m_words, other=0, eviction_policy="evict_first"
        )
        b_scale = tl.load(p_scale + start // 32, mask=m_scale, other=0.0)
        b_weight = _int4_weights(b_words, b_scale, OUTPUTS, COLUMNS)
        b_sum = tl.dot(b_weight, tl.trans(b_x), b_sum)
    b_sum *= 16777216.0
    p_out = OUT + (i_part.to(tl.int64) * num_slots + slot)[None, :] * N + o_out[:, None]
    tl.store(p_out, b_sum.to(OUT.dtype.element_ty), mask=m_row[None, :] & m_out[:, None])


@triton.jit
def _order_kernel(X, OUT, x_stride, K: tl.constexpr, OUT_STRIDE: tl.constexpr, BLOCK: tl.constexpr):
    i_row = tl.program_id(0).to(tl.int64)
    o_place = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    column = _column(o_place)
    b_x = tl.load(X + i_row * x_stride + column, mask=column < K, other=0.0)
    tl.store(OUT + i_row * OUT_STRIDE + o_place, b_x, mask=o_place < OUT_STRIDE)


@triton.jit(do_not_specialize=["num_slots"])
def _swiglu_kernel(
    GATE_UP,
    CHOSEN,
    OUT,
    num_slots,
    NUM_EXPERTS: tl.constexpr,
    INNER: tl.constexpr,
    OUT_STRIDE: tl.constexpr,
    PARTS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    i_slot = tl.program_id(0).to(tl.int64)
    expert = tl.load(CHOSEN + i_slot)
    if (expert < 0) | (expert >= NUM_EXPERTS):
        return
    o_place = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    column = _column(o_place)
    m_column = column < INNER
    b_gate = tl.zeros([BLOCK], tl.float32)
    b_up = tl.zeros([BLOCK], tl.float32)
    for i_part in range(PARTS):
        p_gate = GATE_UP + (i_part * num_slots + i_slot) * (2 * INNER) + column
        b_gate += tl.load(p_gate, mask=m_column, other=0.0)
        b_up += tl.load(p_gate + INNER, mask=m_column, other=0.0)
    b_out = b_gate * tl.sigmoid(b_gate) * b_up
    tl.store(OUT + i_slot * OUT_STRIDE + o_place, b_out.to(tl.bfloat16), mask=o_place < OUT_STRIDE)


@triton.jit
def _combine_kernel(
    OUTPUT,
    CHOSEN,
    WEIGHT,
    OUT,
    NUM_EXPERTS: tl.constexpr,
    H: tl.constexpr,
    NUM_CHOICES: tl.constexpr,
    BLOCK: tl.constexpr,
):
    i_row = tl.program_id(0).to(tl.int64)
    o_hidden = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    m_hidden = o_hidden < H
    b_sum = tl.zeros([BLOCK], tl.float32)
    for i_choice in range(NUM_CHOICES):
        slot = i_row * NUM_CHOICES + i_choice
        expert = tl.load(CHOSEN + slot)
        # what was not chosen was not computed either: do not read it
        m_chosen = (expert >= 0) & (expert < NUM_EXPERTS)
        b_output = tl.load(OUTPUT + slot * H + o_hidden, mask=m_hidden & m_chosen, other=0.0)
        b_sum += tl.load(WEIGHT + slot, mask=m_chosen, other=0.0) * b_output.to(tl.float32)
    tl.store(OUT + i_row * H + o_hidden, b_sum.to(tl.bfloat16), mask=m_hidden)


def int4_experts(
    x_TH: torch.Tensor,
    expert_TK: torch.Tensor,
    weight_TK: torch.Tensor,
    experts: Int4Experts,
    *,
    tile_rows: int | None = None,
    num_parts: int | None = None,
) -> torch.Tensor:
    """Return sum over k of weight[t, k] * expert[t, k](x[t]) [T, H] in BF16.

    `tile_rows` (one of TILE_ROWS) and `num_parts` of the gate-and-up product are chosen by the
    number of rows unless given; a row's bits depend on `num_parts`, not on its company.
    """
    num_experts, gate_up_dim, _ = experts.gate_up.packed.shape
    _check(x_TH, expert_TK, weight_TK, experts)
    num_slots = expert_TK.numel()
    if num_slots == 0:
        return torch.zeros_like(x_TH)
    rows = choose_tile_rows(num_slots, num_experts) if tile_rows is None else tile_rows
    tiles = expert_sort(expert_TK, num_experts, rows)
    chosen = expert_TK.contiguous()
    gate_up = int4_product(
        in_product_order(x_TH), experts.gate_up, tiles, num_slots, num_parts=num_parts
    )
    hidden = x_TH.new_empty(num_slots, _padded(gate_up_dim // 2))
    block = min(_ROW_BLOCK, triton.next_power_of_2(hidden.shape[1]))
    _swiglu_kernel[(num_slots, triton.cdiv(hidden.shape[1], block))](
        gate_up,
        chosen,
        hidden,
        num_slots,
        NUM_EXPERTS=num_experts,
        INNER=gate_up_dim // 2,
        OUT_STRIDE=hidden.shape[1],
        PARTS=gate_up.shape[0],
        BLOCK=block,
        num_warps=4,
    )
    outputs = int4_product(
        hidden, experts.down, tiles, num_slots, num_parts=1, dtype=torch.bfloat16
    )
    result = torch.empty_like(x_TH, memory_format=torch.contiguous_format)
    _combine_kernel[(x_TH.shape[0], triton.cdiv(x_TH.shape[1], _ROW_BLOCK))](
        outputs,
        chosen,
        weight_TK.contiguous(),
        result,
        NUM_EXPERTS=num_experts,
        H=x_TH.shape[1],
        NUM_CHOICES=expert_TK.shape[1],
        BLOCK=_ROW_BLOCK,
        num_warps=4,
    )
    return result


def in_product_order(x_TH: torch.Tensor) -> torch.Tensor:
    """Return rows in the order that products run over, zeros up to a multiple of 128 [T, padded H]."""
    num_rows, width = x_TH.shape
    ordered = x_TH.new_empty(num_rows, _padded(width))
    _order_kernel[(num_rows, triton.cdiv(ordered.shape[1], _ROW_BLOCK))](
        x_TH,
        ordered,
        x_TH.stride(0),
        K=width,
        OUT_STRIDE=ordered.shape[1],
        BLOCK=_ROW_BLOCK,
        num_warps=4,
    )
    return ordered


def int4_product(
    x: torch.Tensor,
    matrices: Int4Stack,
    tiles: Tiles,
    num_slots: int,
    *,
    num_parts: int | None = None,
    dtype: torch.dtype = torch.float32,
) -> torch.Tensor:
    """Return parts [S, slots, N] of each slot's product with its expert's matrix [N, K].

    `x` is in product order, one row per slot, or per K slots. Slots in no tile are left undefined.
    """
    num_experts, num_outputs, num_words = matrices.packed.shape
    num_columns = num_words * WORD
    block = _block(tiles.num_rows, num_columns)
    grid = (tiles.max_tiles, triton.cdiv(num_outputs, block.outputs))
    num_blocks = triton.cdiv(num_columns, block.columns)
    if num_parts is None:
        num_parts = _choose_parts(grid[0] * grid[1], num_blocks)
    # a part without columns would add nothing
    num_parts = triton.cdiv(num_blocks, triton.cdiv(num_blocks, num_parts))
    out = x.new_empty(num_parts, num_slots, num_outputs, dtype=dtype)
    _int4_product_kernel[(*grid, num_parts)](
        x,
        matrices.packed,
        matrices.scale,
        tiles.expert,
        tiles.slot,
        tiles.count,
        out,
        num_slots,
        NUM_EXPERTS=num_experts,
        N=num_outputs,
        K=num_columns,
        X_STRIDE=x.shape[1],
        SLOTS_PER_ROW=num_slots // x.shape[0],
        PARTS=num_parts,
        TILE_ROWS=tiles.num_rows,
        OUTPUTS=block.outputs,
        COLUMNS=block.columns,
        num_warps=block.num_warps,
        num_stages=block.num_stages,
    )
    return out


def choose_tile_rows(num_slots: int, num_experts: int) -> int:
    """Return the smallest tile that the average expert's slots leave room in."""
    return next((rows for rows in (16, 32) if num_slots < 0.9 * rows * num_experts), 64)


def int4_experts_reference(
    x_TH: torch.Tensor, expert_TK: torch.Tensor, weight_TK: torch.Tensor, experts: Int4Experts
) -> torch.Tensor:
    """Return the same in plain PyTorch, float32 inside and out."""
    num_experts = experts.gate_up.packed.shape[0]
    result = torch.zeros_like(x_TH, dtype=torch.float32)
    for expert in range(num_experts):
        row, choice = (expert_TK == expert).nonzero(as_tuple=True)
        if row.numel() == 0:
            continue
        gate, up = (x_TH[row].float() @ _dequantized(experts.gate_up, expert).T).chunk(2, -1)
        output = (silu(gate) * up) @ _dequantized(experts.down, expert).T
        result.index_add_(0, row, output * weight_TK[row, choice, None])
    return result


def _dequantized(stack: Int4Stack, expert: int) -> torch.Tensor:
    shift = torch.arange(0, 32, 4, device=stack.packed.device)
    nibbles: torch.Tensor = (stack.packed[expert, :, :, None] >> shift) & 0xF
    groups: torch.Tensor = (nibbles - 8).float().flatten(1).unflatten(1, (-1, GROUP))
    return (groups * stack.scale[expert, :, :, None].float()).flatten(1)


def _block(tile_rows: int, num_columns: int) -> _Block:
    if tile_rows == 64:
        return _Block(outputs=128, columns=128, num_warps=8, num_stages=4)
    if tile_rows == 32:
        columns = 256 if num_columns >= _LONG_K else 128
        return _Block(outputs=128, columns=columns, num_warps=8, num_stages=3)
    if num_columns >= _LONG_K:
        return _Block(outputs=64, columns=256, num_warps=4, num_stages=4)
    return _Block(outputs=64, columns=128, num_warps=4, num_stages=3)


def _choose_parts(num_programs: int, num_blocks: int) -> int:
    # two blocks of columns per part at least: one to compute on while the other loads
    return max(1, min(_WANTED_PROGRAMS // num_programs, num_blocks // 2, _MOST_PARTS))


def _padded(width: int) -> int:
    return -(-width // ORDER_BLOCK) * ORDER_BLOCK


def _check(
    x_TH: torch.Tensor, expert_TK: torch.Tensor, weight_TK: torch.Tensor, experts: Int4Experts
) -> None:
    if x_TH.dtype != torch.bfloat16 or x_TH.stride(1) != 1:
        raise ValueError(f"rows must be BF16 and contiguous, not {x_TH.dtype} {x_TH.stride()}")
    if weight_TK.dtype != torch.float32 or weight_TK.shape != expert_TK.shape:
        raise ValueError(f"weights are {weight_TK.dtype} {tuple(weight_TK.shape)}")
    for name, stack, width in (
        ("gate_up", experts.gate_up, x_TH.shape[1]),
        ("down", experts.down, experts.gate_up.packed.shape[1] // 2),
    ):
        num_experts, num_outputs, num_words = stack.packed.shape
        if num_words * WORD != width or width % GROUP:
            raise ValueError(f"{name} has {num_words} words per row for {width} columns")
        if stack.scale.shape != (num_experts, num_outputs, width // GROUP):
            raise ValueError(f"{name} has scales {tuple(stack.scale.shape)}")
        if stack.packed.dtype != torch.int32 or stack.scale.dtype != torch.bfloat16:
            raise ValueError(f"{name} is {stack.packed.dtype}, {stack.scale.dtype}")
        if not (stack.packed.is_contiguous() and stack.scale.is_contiguous()):
            raise ValueError(f"{name} is not contiguous")
