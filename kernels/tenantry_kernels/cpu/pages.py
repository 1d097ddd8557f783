"""The loops over pages by the dtype of what pages hold: float32, BF16 as uint16, or FP8 as uint8.

Pages are given by their address, their number of slots and an empty array of that dtype.
"""

# what numba compiles has the types of its first call
# mypy: allow-untyped-defs, allow-untyped-calls, allow-untyped-decorators

from __future__ import annotations

from numba import types
from numba.extending import overload

from . import fp8_pages, index_choice, kernels
from .compiler import compiled
from .kernels import copy_row
from .shares import matrix_at

SCALES = 4
"""Bytes of a row's scale."""


@compiled
def fp8_pool(address, num_slots, like, width, page_tokens):
    """Return FP8 pages as bytes [pages, B]."""
    return matrix_at(address, num_slots // page_tokens, page_tokens * (width + SCALES), like)


def write_pages(address, num_slots, like, rows, slot, page_tokens):
    """Write rows [T, W] into their slots, if there are such."""


def attend_pages(
    address, num_slots, like, q, row, page_table, read_len, chosen, page_tokens, scale, out
):
    """`kernels.decode_attention`."""


def score_pages(
    address, num_slots, like, q, head_weight, row, page_table, read_len, page_tokens, out
):
    """`index_choice.index_scores`."""


@overload(write_pages)
def _write_pages(address, num_slots, like, rows, slot, page_tokens):
    def fp8(address, num_slots, like, rows, slot, page_tokens):
        pool = fp8_pool(address, num_slots, like, rows.shape[1], page_tokens)
        fp8_pages.write_rows(rows, slot, pool)

    def plain(address, num_slots, like, rows, slot, page_tokens):
        pool = matrix_at(address, num_slots, rows.shape[1], like)
        for t in range(rows.shape[0]):
            if 0 <= slot[t] < num_slots:
                copy_row(rows[t], pool[slot[t]])

    return fp8 if like.dtype == types.uint8 else plain


@overload(attend_pages)
def _attend_pages(
    address, num_slots, like, q, row, page_table, read_len, chosen, page_tokens, scale, out
):
    def fp8(
        address, num_slots, like, q, row, page_table, read_len, chosen, page_tokens, scale, out
    ):
        pool = fp8_pool(address, num_slots, like, q.shape[2], page_tokens)
        return fp8_pages.decode_attention(q, pool, row, page_table, read_len, chosen, scale, out)

    def plain(
        address, num_slots, like, q, row, page_table, read_len, chosen, page_tokens, scale, out
    ):
        pool = matrix_at(address, num_slots, q.shape[2], like)
        return kernels.decode_attention(
            q, pool, row, page_table, read_len, chosen, page_tokens, scale, out
        )

    return fp8 if like.dtype == types.uint8 else plain


@overload(score_pages)
def _score_pages(
    address, num_slots, like, q, head_weight, row, page_table, read_len, page_tokens, out
):
    def fp8(address, num_slots, like, q, head_weight, row, page_table, read_len, page_tokens, out):
        pool = fp8_pool(address, num_slots, like, q.shape[2], page_tokens)
        return fp8_pages.index_scores(q, head_weight, pool, row, page_table, read_len, out)

    def plain(
        address, num_slots, like, q, head_weight, row, page_table, read_len, page_tokens, out
    ):
        pool = matrix_at(address, num_slots, q.shape[2], like)
        return index_choice.index_scores(
            q, head_weight, pool, row, page_table, read_len, page_tokens, out
        )

    return fp8 if like.dtype == types.uint8 else plain
