"""What the two MLA decode kernels share: a tile of keys folded into running sums, and the combine.

Keys are the rows of the matrix products (64 or more to a tile, the height of Hopper's matrix
instructions) and queries their columns, so that eight heads use an instruction as well as 64 do:

| block | shape | holds |
|---|---|---|
| latent, rope | [T, L], [T, R] | a tile of keys: BF16, or e4m3 widened to float16 without their scales |
| score | [T, M] float32 | log2(weight * key scale) before normalization |
| sum | [L, M] float32 | latent^T @ 2^(score - running maximum) |
| total | [M] float32 | the weights alone, so without the key scale |

A key's scale s is a power of two. It multiplies the key's score, and as log2(s), an integer, it
joins the exponent of the key's weight, since the latent that the weight multiplies lacks it too.
So the largest factor of a row is 1 and float16 holds all that matter. Float16, because one
instruction widens two e4m3 values to it, and because it holds every e4m3 value.

A power of two for all queries of a program (`query_scale`) brings them into float16 the same way.

With two halves, a key's first and second half of values are rows of their own, T apart, and so are
a query's. Every half is multiplied with every half, which few rows leave the instructions free to
do; those of different halves are dropped. A tile of 64 keys then occupies eight warps, or eight
rows the smallest instruction, and a program holds half as many sums.

T keys, M rows (query tokens times heads), L latent values, R rotated values.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl

from tenantry_kernels.fp8_rows import page_bytes

LOG2_E = tl.constexpr(1.4426950408889634)
# values of the splits that a warp adds up at a time: 32 registers
_SUM_BLOCK = 1024
MULTIPROCESSORS = 132
"""Of an H200."""
_MAX_SPLITS = 128
# a split's first tile arrives before any is multiplied, so it should not be the only one
_TILES_TO_PAY = 2
_NEARLY = 0.95


@dataclass(frozen=True, slots=True)
class Tiling:
    """How a program of up to `rows` rows works; chosen so that its registers suffice."""

    rows: int
    keys: int
    """To a tile: a multiple of a page's."""
    halves: int
    num_warps: int
    num_stages: int
    resident: int
    """Programs to a multiprocessor: what registers and shared memory allow."""


BF16_TILING = Tiling(16, 64, 1, 4, 2, 1)
# by rows; the first that holds all of a sequence's, else the last
FP8_TILINGS = (
    Tiling(8, 64, 2, 4, 1, 2),
    Tiling(16, 128, 1, 8, 1, 1),
    Tiling(32, 64, 2, 8, 1, 1),
)


@triton.jit
def query_exponent(b_latent, b_rope):
    """Return the exponent field of all rows' largest value, kept where both of its uses are numbers.

    `query_factor` brings that value to just under float16's largest, so that far smaller ones keep
    their precision; `query_scale` is its inverse.
    """
    b_largest = tl.maximum(
        tl.max(tl.abs(b_latent.to(tl.float32))), tl.max(tl.abs(b_rope.to(tl.float32)))
    )
    return tl.minimum(tl.maximum(b_largest.to(tl.int32, bitcast=True) >> 23, 15), 254)


@triton.jit
def query_factor(field):
    """Return 2^14 over the power of two with this exponent field."""
    return _power_of_two(268 - field)


@triton.jit
def query_scale(field):
    """Return the inverse of `query_factor`."""
    return _power_of_two(field - 14)


@triton.jit
def _power_of_two(exponent_field):
    """Return the float32 with this exponent field."""
    return (exponent_field << 23).to(tl.float32, bitcast=True)


@triton.jit
def load_values(p_row, m_t, o_value, WIDTH: tl.constexpr, BLOCK: tl.constexpr):
    """Return [T, BLOCK] values of T rows, 0 where a row does not count or has ended."""
    m_value = m_t[:, None]
    if BLOCK != WIDTH:
        m_value = m_value & (o_value < WIDTH)[None, :]
    return tl.load(p_row[:, None] + o_value[None, :], mask=m_value, other=0)


@triton.jit
def load_fp8(p_row, m_t, o_value, WIDTH: tl.constexpr, BLOCK: tl.constexpr):
    """`load_values` of bytes, as e4m3."""
    return load_values(p_row, m_t, o_value, WIDTH, BLOCK).to(tl.float8e4nv, bitcast=True)


@triton.jit
def fold_tile(
    b_latent, b_rope, b_key_scale, m_seen, b_query_latent, b_query_rope, scale,
    b_max, b_total, b_sum,
    IS_FP8: tl.constexpr, HALVES: tl.constexpr, T: tl.constexpr, M: tl.constexpr,
):  # fmt: skip
    """Return the running maximum [M], total [M] and sum [L, M] after one more tile.

    m_seen [T, M] or [T, 1]: which key counts for which row; keys that count for none must be
    finite. scale: of the scores, times log2(e). A row that has seen no key keeps a maximum of -inf
    and sums of 0.
    """
    # [HALVES * T, HALVES * M]
    b_score = tl.dot(b_latent, tl.trans(b_query_latent))
    b_score = tl.dot(b_rope, tl.trans(b_query_rope), b_score)
    if HALVES == 2:
        # each half of a key with the same half of a query
        b_score = tl.where(_same_half(), tl.reshape(b_score, [2, T, 2, M]), 0.0)
        b_score = tl.sum(tl.sum(b_score, 2), 0)
    # [T, M]
    if IS_FP8:
        b_bits = b_key_scale.to(tl.int32, bitcast=True)
        b_log = ((b_bits >> 23) - 127).to(tl.float32)
        b_score = b_score * (b_key_scale * scale)[:, None] + b_log[:, None]
    else:
        b_score = b_score * scale
    b_score = tl.where(m_seen, b_score, float("-inf"))
    b_new_max = tl.maximum(b_max, tl.max(b_score, 0))
    # a finite reference, so that -inf - -inf cannot make a NaN
    b_reference = tl.where(b_new_max == float("-inf"), 0.0, b_new_max)
    b_factor = tl.exp2(b_score - b_reference[None, :])
    b_decay = tl.exp2(b_max - b_reference)
    b_weight = b_factor
    if IS_FP8:
        b_bits = (254 << 23) - b_key_scale.to(tl.int32, bitcast=True)
        b_weight = b_factor * b_bits.to(tl.float32, bitcast=True)[:, None]
    b_total = b_total * b_decay + tl.sum(b_weight, 0)
    if HALVES == 2:
        b_factor = tl.where(_same_half(), b_factor[None, :, None, :], 0.0)
        b_factor = tl.reshape(b_factor, [2 * T, 2 * M])
    b_decayed = b_sum * _repeated(b_decay, HALVES, M)[None, :]
    b_sum = tl.dot(tl.trans(b_latent), b_factor.to(b_latent.dtype), b_decayed)
    return b_new_max, b_total, b_sum


@triton.jit
def _same_half():
    """Return for a half of keys and a half of queries [2, 1, 2, 1] whether they are the same."""
    o_half = tl.arange(0, 2)
    return o_half[:, None, None, None] == o_half[None, None, :, None]


@triton.jit
def _repeated(b_row, HALVES: tl.constexpr, M: tl.constexpr):
    """Return the values [M] of rows once for each half [HALVES * M]."""
    if HALVES == 1:
        return b_row
    return tl.reshape(tl.broadcast_to(b_row[None, :], [HALVES, M]), [HALVES * M])


@triton.jit
def store_part(
    part, log_total, i_row, m_row, i_split, num_splits, b_max, b_total, b_sum,
    L: tl.constexpr, HALVES: tl.constexpr, M: tl.constexpr, BLOCK_L: tl.constexpr,
):  # fmt: skip
    """Write one split's normalized sum, and the log2 of its total, by which the combine weighs it.

    i_row: the program's first row, of M; m_row [M]: which there are.
    """
    i_part = i_row.to(tl.int64) * num_splits + i_split
    b_divisor = tl.where(b_total > 0, b_total, 1.0)
    b_log = tl.where(b_total > 0, b_max + tl.log2(b_divisor), float("-inf"))
    tl.store(log_total + i_part + tl.arange(0, M) * num_splits, b_log, mask=m_row)
    # a column for each row and half
    o_column = tl.arange(0, HALVES * M)
    o_l = tl.arange(0, BLOCK_L)
    b_divisor = _repeated(b_divisor, HALVES, M)
    m_column = _repeated((m_row & (b_total > 0)).to(tl.int32), HALVES, M) > 0
    p_column = part + (i_part + o_column % M * num_splits) * L + o_column // M * (L // HALVES)
    m_part = m_column[None, :] & (o_l < L // HALVES)[:, None]
    tl.store(p_column[None, :] + o_l[:, None], b_sum / b_divisor[None, :], mask=m_part)


# here and in other kernels: a count that changes from step to step must not compile anew
@triton.jit(do_not_specialize=["num_splits"])
def _combine_kernel(
    part, log_total, out, num_splits, L: tl.constexpr, SPLITS: tl.constexpr, BLOCK_L: tl.constexpr
):
    i_row = tl.program_id(0).to(tl.int64)
    i_l = tl.program_id(1)
    o_split = tl.arange(0, SPLITS)
    o_l = i_l * BLOCK_L + tl.arange(0, BLOCK_L)
    # [SPLITS]
    b_log = tl.load(
        log_total + i_row * num_splits + o_split, mask=o_split < num_splits, other=float("-inf")
    )
    largest = tl.max(b_log, 0)
    b_weight = tl.exp2(b_log - tl.where(largest == float("-inf"), 0.0, largest))
    total = tl.sum(b_weight, 0)
    # a split without keys wrote no part
    m_part = (b_log > float("-inf"))[:, None] & (o_l < L)[None, :]
    p_part = part + (i_row * num_splits + o_split)[:, None] * L + o_l[None, :]
    # [SPLITS, BLOCK_L]
    b_part = tl.load(p_part, mask=m_part, other=0.0)
    b_out = tl.sum(b_part * b_weight[:, None], 0) / tl.where(total > 0, total, 1.0)
    tl.store(out + i_row * L + o_l, b_out.to(out.dtype.element_ty), mask=o_l < L)


def combine(part: torch.Tensor, log_total: torch.Tensor, out: torch.Tensor) -> None:
    """Weigh the splits' sums [..., splits, L] by their totals [..., splits] into out [..., L]."""
    num_splits, latent_dim = part.shape[-2:]
    splits = triton.next_power_of_2(num_splits)
    num_warps = 1 if splits <= _SUM_BLOCK // 32 else 4
    block = min(triton.next_power_of_2(latent_dim), max(_SUM_BLOCK * num_warps // splits, 32))
    grid = (log_total.numel() // num_splits, triton.cdiv(latent_dim, block))
    _combine_kernel[grid](
        part, log_total, out, num_splits,
        L=latent_dim, SPLITS=splits, BLOCK_L=block, num_warps=num_warps,
    )  # fmt: skip


def split_count(num_programs: int, num_tiles: int, *, resident: int = 1) -> int:
    """Return into how many splits to cut contexts of up to `num_tiles` tiles, to fill an H200.

    resident: how many programs a multiprocessor runs at a time.

    The fewest that keep its multiprocessors nearly as busy as the best number would: each split
    starts without a tile on its way, and leaves a sum behind to be combined. Which rows share a
    launch changes the answer, and with it the order of additions: deterministic callers choose
    their own.
    """

    def busy(num_splits: int) -> float:
        total = num_programs * num_splits
        rounds: int = triton.cdiv(total, resident * MULTIPROCESSORS)
        return total / (rounds * resident * MULTIPROCESSORS)

    candidates = range(1, max(1, min(num_tiles // _TILES_TO_PAY, _MAX_SPLITS)) + 1)
    enough = _NEARLY * max(busy(num_splits) for num_splits in candidates)
    return next(num_splits for num_splits in candidates if busy(num_splits) >= enough)


def tiling_of(num_rows: int, latent_dim: int, rope_dim: int, *, is_fp8: bool) -> Tiling:
    """Return how to work on pages of a form for queries of `num_rows` rows."""
    if not is_fp8:
        return BF16_TILING
    usable = [
        tiling
        for tiling in FP8_TILINGS
        if latent_dim % tiling.halves == rope_dim % tiling.halves == 0
    ]
    return next((tiling for tiling in usable if tiling.rows >= num_rows), usable[-1])


def latent_width(pool: torch.Tensor, cache_dim: int) -> bool:
    """Check that a pool's rows have `cache_dim` values; return whether they are FP8."""
    if pool.dtype == torch.uint8:
        assert pool.shape[-1] == page_bytes(cache_dim), (
            f"a page of {cache_dim} FP8 values has {page_bytes(cache_dim)} bytes, "
            f"not {pool.shape[-1]}"
        )
        return True
    assert pool.dtype == torch.bfloat16, f"pages are BF16 or bytes, not {pool.dtype}"
    assert pool.shape[-1] == cache_dim, f"rows have {pool.shape[-1]} values, queries {cache_dim}"
    return False
