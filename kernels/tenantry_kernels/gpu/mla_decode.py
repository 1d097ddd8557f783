"""Attention of a few absorbed MLA queries per sequence over its own pages, BF16 or FP8.

| tensor | shape | dtype |
|---|---|---|
| query | [S, Q, N, C]: the last Q tokens of each sequence, C = L + R | BF16 |
| pool | [pages + 1, 64, C], or [pages + 1, 64 * (C + 4)] as in `fp8_rows` | BF16, or uint8 |
| page table | [S, P] | int64 |
| read length | [S]: tokens in the cache, the Q queries' own included | int64 |
| out | [S, Q, N, L] | the query's |

Query j of a sequence sees the keys before `read length - (Q - 1 - j)`; one that sees none gets
exactly 0. Keys past the read length are not read, so whatever a page held before stays invisible.

A program takes up to 32 rows (a query token's heads, token after token) of one sequence and one split
of its context, and reads each key once for all of them; programs of the same keys are neighbors, so
that all but the first find them in the GPU's cache. FP8 tiles travel through registers: the next
tile's bytes are on their way while this one, widened to float16 in shared memory, is multiplied.

S sequences, Q query tokens, N heads, P page-table columns, L latent values, R rotated values.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from tenantry_kernels.fp8_rows import PAGE_TOKENS

from .mla_tile import (
    LOG2_E,
    combine,
    fold_tile,
    latent_width,
    load_fp8,
    load_values,
    query_exponent,
    query_factor,
    query_scale,
    split_count,
    store_part,
    tiling_of,
)


@triton.jit
def _page_pointers(
    pool, page_table, i_table, i_tile, o_t, end, PAGE: tl.constexpr, T: tl.constexpr
):  # fmt: skip
    """Return the pages' pointers of a tile's keys o_t, and which keys are before the end."""
    i_first = i_tile * T // 64
    i_last = tl.maximum(tl.cdiv(end, 64) - 1, 0)
    b_page = tl.load(page_table + (i_table + tl.minimum(i_first, i_last)))
    for i in tl.static_range(1, T // 64):
        page = tl.load(page_table + (i_table + tl.minimum(i_first + i, i_last)))
        b_page = tl.where(o_t // 64 == i, page, b_page)
    return pool + b_page * PAGE, i_tile * T + o_t < end


@triton.jit(do_not_specialize=["num_columns", "num_splits"])
def _mla_decode_kernel(
    query, pool, page_table, read_len, part, log_total,
    scale, num_columns, num_splits,
    N: tl.constexpr, Q: tl.constexpr, L: tl.constexpr, R: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_L: tl.constexpr, BLOCK_R: tl.constexpr, BLOCK_T: tl.constexpr,
    PAGE: tl.constexpr, IS_FP8: tl.constexpr, HALVES: tl.constexpr,
):  # fmt: skip
    i_m = tl.program_id(0)
    i_split = tl.program_id(1)
    i_s = tl.program_id(2)
    C: tl.constexpr = L + R
    HALF_L: tl.constexpr = L // HALVES
    HALF_R: tl.constexpr = R // HALVES
    length = tl.load(read_len + i_s).to(tl.int32)
    num_tiles = tl.cdiv(length, BLOCK_T)
    tiles_each = tl.cdiv(num_tiles, num_splits)
    first = i_split * tiles_each
    last = tl.minimum(first + tiles_each, num_tiles)
    # the tile after the last one belongs to another split
    end = tl.minimum(last * BLOCK_T, length)

    o_m = i_m * BLOCK_M + tl.arange(0, BLOCK_M)
    # rows of queries and keys: the first halves, then the second
    o_query = i_m * BLOCK_M + tl.arange(0, HALVES * BLOCK_M) % BLOCK_M
    o_query_half = tl.arange(0, HALVES * BLOCK_M) // BLOCK_M
    o_key = tl.arange(0, HALVES * BLOCK_T) % BLOCK_T
    o_key_half = tl.arange(0, HALVES * BLOCK_T) // BLOCK_T
    o_t = tl.arange(0, BLOCK_T)
    # 8 values to a load: wider ones would write shared memory with bank conflicts
    o_l = tl.max_contiguous(tl.arange(0, BLOCK_L), 8)
    o_r = tl.max_contiguous(tl.arange(0, BLOCK_R), 8)
    o_latent = o_key % 64 * C + o_key_half * HALF_L
    o_rope = o_key % 64 * C + L + o_key_half * HALF_R
    p_query = query + (i_s.to(tl.int64) * (Q * N) + o_query) * C
    m_query = o_query < Q * N
    b_query_latent = load_values(p_query + o_query_half * HALF_L, m_query, o_l, HALF_L, BLOCK_L)
    b_query_rope = load_values(p_query + L + o_query_half * HALF_R, m_query, o_r, HALF_R, BLOCK_R)
    scale = scale * LOG2_E
    # the keys that each row may see
    b_limit = length - (Q - 1 - o_m // N)
    b_max = tl.full([BLOCK_M], float("-inf"), tl.float32)
    b_total = tl.zeros([BLOCK_M], tl.float32)
    b_sum = tl.zeros([BLOCK_L, HALVES * BLOCK_M], tl.float32)
    # 32 bits, which the loop keeps in one register
    i_table = i_s * num_columns

    if IS_FP8:
        field = query_exponent(b_query_latent, b_query_rope)
        scale = scale * query_scale(field)
        b_query_latent = (b_query_latent.to(tl.float32) * query_factor(field)).to(tl.float16)
        b_query_rope = (b_query_rope.to(tl.float32) * query_factor(field)).to(tl.float16)
        p_page, m_key = _page_pointers(
            pool, page_table, i_table, first, o_key, end, PAGE, BLOCK_T
        )  # fmt: skip
        b_latent = load_fp8(p_page + o_latent, m_key, o_l, HALF_L, BLOCK_L).to(tl.float16)
        b_rope = load_fp8(p_page + o_rope, m_key, o_r, HALF_R, BLOCK_R).to(tl.float16)
        p_page, m_t = _page_pointers(pool, page_table, i_table, first, o_t, end, PAGE, BLOCK_T)
        p_scale = (p_page + 64 * C).to(tl.pointer_type(tl.float32)) + o_t % 64
        b_key_scale = tl.load(p_scale, mask=m_t, other=1.0)
        for i_tile in range(first, last):
            p_page, m_key = _page_pointers(
                pool, page_table, i_table, i_tile + 1, o_key, end, PAGE, BLOCK_T
            )  # fmt: skip
            b_next_latent = load_fp8(p_page + o_latent, m_key, o_l, HALF_L, BLOCK_L)
            b_next_rope = load_fp8(p_page + o_rope, m_key, o_r, HALF_R, BLOCK_R)
            p_page, m_t = _page_pointers(
                pool, page_table, i_table, i_tile + 1, o_t, end, PAGE, BLOCK_T
            )  # fmt: skip
            p_scale = (p_page + 64 * C).to(tl.pointer_type(tl.float32)) + o_t % 64
            b_next_scale = tl.load(p_scale, mask=m_t, other=1.0)
            m_seen = (i_tile * BLOCK_T + o_t)[:, None] < (length if Q == 1 else b_limit[None, :])
            b_max, b_total, b_sum = fold_tile(
                b_latent, b_rope, b_key_scale, m_seen, b_query_latent, b_query_rope, scale,
                b_max, b_total, b_sum, IS_FP8, HALVES, BLOCK_T, BLOCK_M,
            )  # fmt: skip
            # widened here and not where it is used: operands that a loop carries stay in shared
            # memory, while widened ones would be kept in registers, and spill
            b_latent = b_next_latent.to(tl.float16)
            b_rope = b_next_rope.to(tl.float16)
            b_key_scale = b_next_scale
    else:
        for i_tile in range(first, last):
            p_page, m_key = _page_pointers(
                pool, page_table, i_table, i_tile, o_key, end, PAGE, BLOCK_T
            )  # fmt: skip
            b_latent = load_values(p_page + o_latent, m_key, o_l, HALF_L, BLOCK_L)
            b_rope = load_values(p_page + o_rope, m_key, o_r, HALF_R, BLOCK_R)
            m_seen = (i_tile * BLOCK_T + o_t)[:, None] < (length if Q == 1 else b_limit[None, :])
            b_max, b_total, b_sum = fold_tile(
                b_latent, b_rope, b_limit, m_seen, b_query_latent, b_query_rope, scale,
                b_max, b_total, b_sum, IS_FP8, HALVES, BLOCK_T, BLOCK_M,
            )  # fmt: skip
    store_part(
        part, log_total, i_s * (Q * N) + i_m * BLOCK_M, o_m < Q * N, i_split, num_splits,
        b_max, b_total, b_sum, L, HALVES, BLOCK_M, BLOCK_L,
    )  # fmt: skip


def mla_decode(
    query_SQNC: torch.Tensor,
    pool: torch.Tensor,
    page_table_SP: torch.Tensor,
    read_len_S: torch.Tensor,
    *,
    scale: float,
    latent_dim: int,
    num_splits: int | None = None,
) -> torch.Tensor:
    """Attend each sequence's queries over its pages; return latent sums [S, Q, N, L].

    num_splits: into how many parts contexts are cut; by default as many as fill the GPU.
    """
    num_sequences, num_queries, num_heads, cache_dim = query_SQNC.shape
    is_fp8 = latent_width(pool, cache_dim)
    assert query_SQNC.dtype == torch.bfloat16, f"queries are BF16, not {query_SQNC.dtype}"
    assert query_SQNC.is_contiguous() and pool.is_contiguous() and page_table_SP.is_contiguous()
    assert read_len_S.shape == (num_sequences,) and page_table_SP.shape[0] == num_sequences
    assert page_table_SP.shape[1] > 0, "even a table that is not read has a column"
    rope_dim = cache_dim - latent_dim
    num_rows = num_queries * num_heads
    tiling = tiling_of(num_rows, latent_dim, rope_dim, is_fp8=is_fp8)
    num_blocks = triton.cdiv(num_rows, tiling.rows)
    if num_splits is None:
        num_tiles = triton.cdiv(page_table_SP.shape[1] * PAGE_TOKENS, tiling.keys)
        num_splits = split_count(num_sequences * num_blocks, num_tiles, resident=tiling.resident)
    shape = (num_sequences, num_queries, num_heads, num_splits)
    part = query_SQNC.new_empty((*shape, latent_dim), dtype=torch.float32)
    log_total = query_SQNC.new_empty(shape, dtype=torch.float32)
    out = query_SQNC.new_empty((*shape[:3], latent_dim))
    _mla_decode_kernel[(num_blocks, num_splits, num_sequences)](
        query_SQNC, pool, page_table_SP, read_len_S, part, log_total,
        scale, page_table_SP.shape[1], num_splits,
        N=num_heads, Q=num_queries, L=latent_dim, R=rope_dim,
        BLOCK_M=tiling.rows, BLOCK_T=tiling.keys, HALVES=tiling.halves,
        BLOCK_L=max(triton.next_power_of_2(latent_dim // tiling.halves), 64),
        BLOCK_R=max(triton.next_power_of_2(rope_dim // tiling.halves), 16),
        PAGE=pool[0].numel(), IS_FP8=is_fp8,
        num_warps=tiling.num_warps, num_stages=tiling.num_stages,
    )  # fmt: skip
    combine(part, log_total, out)
    return out
