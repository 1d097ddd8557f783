"""The least bytes that ops must move, and the floating-point operations that they do.

A byte counts once per op, however often a kernel reads it; a multiplication and its addition are
two operations. Figures made from these say how far an op is from what memory allows.

T rows, S sequences, N heads, C values in a cache row of which L are the latent.
"""

from __future__ import annotations

from typing import NamedTuple

BF16_BYTES = 2
INT4_BYTES = 0.5 + BF16_BYTES / 32
"""Per weight: half a byte, and one BF16 scale per 32."""
SCALE_BYTES = 4
FP8_BYTES = 1 + SCALE_BYTES / 128**2
"""Per weight: a byte, and one float32 scale per block."""
PAGE_TOKENS = 64


class Work(NamedTuple):
    """What one run of an op takes."""

    num_bytes: float
    flops: float


def int4_experts(num_rows: int, num_slots: int, num_distinct: int, hidden: int, inner: int) -> Work:
    """Weights of the distinct experts that were chosen; rows in and out."""
    return _experts(INT4_BYTES, num_rows, num_slots, num_distinct, hidden, inner)


def dense_experts(
    num_rows: int, num_slots: int, num_distinct: int, hidden: int, inner: int
) -> Work:
    """The same with weights in BF16."""
    return _experts(BF16_BYTES, num_rows, num_slots, num_distinct, hidden, inner)


def fp8_experts(num_rows: int, num_slots: int, num_distinct: int, hidden: int, inner: int) -> Work:
    """The same with weights in FP8 blocks."""
    return _experts(FP8_BYTES, num_rows, num_slots, num_distinct, hidden, inner)


def _experts(
    weight_bytes: float,
    num_rows: int,
    num_slots: int,
    num_distinct: int,
    hidden: int,
    inner: int,
) -> Work:
    weights_per_expert = 3 * hidden * inner
    rows = 2 * num_rows * hidden * BF16_BYTES
    return Work(
        num_distinct * weights_per_expert * weight_bytes + rows,
        2.0 * num_slots * weights_per_expert,
    )


def fp8_product(num_rows: int, num_outputs: int, num_columns: int) -> Work:
    """The matrix and its scales; rows in and out."""
    blocks = -(-num_outputs // 128) * -(-num_columns // 128)
    rows = num_rows * (num_outputs + num_columns) * BF16_BYTES
    return Work(
        num_outputs * num_columns + blocks * SCALE_BYTES + rows,
        2.0 * num_rows * num_outputs * num_columns,
    )


def router(num_rows: int, num_experts: int, hidden: int, num_choices: int) -> Work:
    """Weights in BF16 and the bias; rows in, a number and a weight per choice out."""
    num_bytes = (
        (num_experts + num_rows) * hidden * BF16_BYTES
        + num_experts * SCALE_BYTES
        + num_rows * num_choices * 8
    )
    return Work(num_bytes, 2.0 * num_rows * num_experts * hidden)


def mla_decode(
    num_keys: int, num_sequences: int, num_heads: int, latent: int, rope: int, *, is_fp8: bool
) -> Work:
    """Each key once for all heads; queries in, latent sums out. `num_keys`: of all sequences."""
    width = latent + rope
    queries = num_sequences * num_heads * (width + latent) * BF16_BYTES
    return Work(
        num_keys * row_bytes(width, is_fp8=is_fp8) + queries,
        2.0 * num_keys * num_heads * (width + latent),
    )


def index_scores(num_keys: int, num_sequences: int, num_heads: int, width: int) -> Work:
    """Each FP8 index key once for all heads; queries and weights in, a float32 score per key out."""
    queries = num_sequences * num_heads * (width * BF16_BYTES + SCALE_BYTES)
    return Work(
        num_keys * (row_bytes(width, is_fp8=True) + SCALE_BYTES) + queries,
        2.0 * num_keys * num_heads * width,
    )


def top_positions(num_scores: int, num_choices: int) -> Work:
    """Float32 scores in, int32 positions out."""
    return Work(4.0 * (num_scores + num_choices), 0)


def page_check(num_sequences: int, num_pages: int) -> Work:
    """Four int64 per page touched: table entry, expected tag, tag, fill; four per sequence."""
    return Work(8.0 * 4 * (num_pages + num_sequences), 0)


def append(num_rows: int, width: int, *, is_fp8: bool) -> Work:
    return Work(num_rows * (width * BF16_BYTES + row_bytes(width, is_fp8=is_fp8) + 8), 0)


def page_quantise(num_pages: int, width: int) -> Work:
    return Work(num_pages * PAGE_TOKENS * (width * BF16_BYTES + row_bytes(width, is_fp8=True)), 0)


def page_digest(num_pages: int, width: int) -> Work:
    """FP8 pages in, a digest each out."""
    return Work(num_pages * (PAGE_TOKENS * row_bytes(width, is_fp8=True) + 8), 0)


def row_bytes(width: int, *, is_fp8: bool) -> float:
    """Return the bytes of one cache row."""
    return width + SCALE_BYTES if is_fp8 else width * BF16_BYTES
