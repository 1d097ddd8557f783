"""Attention of MLA queries over the keys that an indexer chose for each, BF16 or FP8 pages.

| tensor | shape | dtype |
|---|---|---|
| query | [S, Q, N, C]: the last Q tokens of each sequence, C = L + R | BF16 |
| pool, page table, read length | as in `mla_decode` | |
| chosen | [S, Q, K]: logical positions in any order, each at most once; -1 is nothing | int32 |
| out | [S, Q, N, L] | the query's |

Positions at or past what a query token may see (`mla_decode`) are nothing too, so a sequence whose
read length is 0 reads no page; a query with nothing chosen gets exactly 0.

Positions become slots once for all heads; then it is `mla_decode` with rows from anywhere: 576
bytes each, which is what keeps them worth gathering.

S sequences, Q query tokens, N heads, K choices, P page-table columns.
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

_SLOT_BLOCK = 512


@triton.jit(do_not_specialize=["num_columns"])
def _slots_kernel(
    chosen, page_table, read_len, slot, num_columns,
    Q: tl.constexpr, K: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    i_row = tl.program_id(0).to(tl.int64)
    i_s = i_row // Q
    limit = tl.load(read_len + i_s) - (Q - 1 - i_row % Q)
    o_k = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    m_k = o_k < K
    b_position = tl.load(chosen + i_row * K + o_k, mask=m_k, other=-1)
    m_seen = (b_position >= 0) & (b_position < limit)
    b_page = tl.load(page_table + i_s * num_columns + b_position // 64, mask=m_seen, other=0)
    b_slot = tl.where(m_seen, b_page * 64 + b_position % 64, -1)
    tl.store(slot + i_row * K + o_k, b_slot, mask=m_k)


@triton.jit
def _page_pointers(pool, b_slot, PAGE: tl.constexpr):
    """Return the pages' pointers of slots."""
    return pool + (b_slot >> 6).to(tl.int64) * PAGE


@triton.jit(do_not_specialize=["num_splits"])
def _sparse_decode_kernel(
    query, pool, slot, part, log_total, scale, num_splits,
    N: tl.constexpr, K: tl.constexpr, L: tl.constexpr, R: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_L: tl.constexpr, BLOCK_R: tl.constexpr, BLOCK_T: tl.constexpr,
    PAGE: tl.constexpr, IS_FP8: tl.constexpr, HALVES: tl.constexpr,
):  # fmt: skip
    i_m = tl.program_id(0)
    i_split = tl.program_id(1)
    i_row = tl.program_id(2)
    C: tl.constexpr = L + R
    HALF_L: tl.constexpr = L // HALVES
    HALF_R: tl.constexpr = R // HALVES
    num_tiles = tl.cdiv(K, BLOCK_T)
    tiles_each = tl.cdiv(num_tiles, num_splits)
    first = i_split * tiles_each
    last = tl.minimum(first + tiles_each, num_tiles)
    # the tile after the last one belongs to another split
    end = tl.minimum(last * BLOCK_T, K)

    # rows of queries and keys: the first halves, then the second
    o_query = i_m * BLOCK_M + tl.arange(0, HALVES * BLOCK_M) % BLOCK_M
    o_query_half = tl.arange(0, HALVES * BLOCK_M) // BLOCK_M
    o_key = tl.arange(0, HALVES * BLOCK_T) % BLOCK_T
    o_key_half = tl.arange(0, HALVES * BLOCK_T) // BLOCK_T
    o_t = tl.arange(0, BLOCK_T)
    # 8 values to a load: wider ones would write shared memory with bank conflicts
    o_l = tl.max_contiguous(tl.arange(0, BLOCK_L), 8)
    o_r = tl.max_contiguous(tl.arange(0, BLOCK_R), 8)
    p_query = query + (i_row.to(tl.int64) * N + o_query) * C
    m_query = o_query < N
    b_query_latent = load_values(p_query + o_query_half * HALF_L, m_query, o_l, HALF_L, BLOCK_L)
    b_query_rope = load_values(p_query + L + o_query_half * HALF_R, m_query, o_r, HALF_R, BLOCK_R)
    scale = scale * LOG2_E
    b_max = tl.full([BLOCK_M], float("-inf"), tl.float32)
    b_total = tl.zeros([BLOCK_M], tl.float32)
    b_sum = tl.zeros([BLOCK_L, HALVES * BLOCK_M], tl.float32)
    p_slot = slot + i_row.to(tl.int64) * K

    if IS_FP8:
        field = query_exponent(b_query_latent, b_query_rope)
        scale = scale * query_scale(field)
        b_query_latent = (b_query_latent.to(tl.float32) * query_factor(field)).to(tl.float16)
        b_query_rope = (b_query_rope.to(tl.float32) * query_factor(field)).to(tl.float16)
        i_key = first * BLOCK_T
        b_slot = tl.load(p_slot + i_key + o_key, mask=i_key + o_key < end, other=-1)
        p_row = _page_pointers(pool, b_slot, PAGE) + (b_slot & 63) * C
        p_half = p_row + o_key_half * HALF_L
        b_latent = load_fp8(p_half, b_slot >= 0, o_l, HALF_L, BLOCK_L).to(tl.float16)
        p_half = p_row + L + o_key_half * HALF_R
        b_rope = load_fp8(p_half, b_slot >= 0, o_r, HALF_R, BLOCK_R).to(tl.float16)
        b_slot = tl.load(p_slot + i_key + o_t, mask=i_key + o_t < end, other=-1)
        p_scale = (_page_pointers(pool, b_slot, PAGE) + 64 * C).to(tl.pointer_type(tl.float32))
        # no key has scale 0, so it marks those that are nothing
        b_key_scale = tl.load(p_scale + (b_slot & 63), mask=b_slot >= 0, other=0.0)
        for _ in range(first, last):
            i_key += BLOCK_T
            b_slot = tl.load(p_slot + i_key + o_key, mask=i_key + o_key < end, other=-1)
            p_row = _page_pointers(pool, b_slot, PAGE) + (b_slot & 63) * C
            p_half = p_row + o_key_half * HALF_L
            b_next_latent = load_fp8(p_half, b_slot >= 0, o_l, HALF_L, BLOCK_L)
            p_half = p_row + L + o_key_half * HALF_R
            b_next_rope = load_fp8(p_half, b_slot >= 0, o_r, HALF_R, BLOCK_R)
            b_slot = tl.load(p_slot + i_key + o_t, mask=i_key + o_t < end, other=-1)
            p_scale = (_page_pointers(pool, b_slot, PAGE) + 64 * C).to(tl.pointer_type(tl.float32))
            b_next_scale = tl.load(p_scale + (b_slot & 63), mask=b_slot >= 0, other=0.0)
            b_max, b_total, b_sum = fold_tile(
                b_latent, b_rope, b_key_scale, (b_key_scale > 0)[:, None],
                b_query_latent, b_query_rope, scale, b_max, b_total, b_sum,
                IS_FP8, HALVES, BLOCK_T, BLOCK_M,
            )  # fmt: skip
            # widened here and not where it is used: see `mla_decode`
            b_latent = b_next_latent.to(tl.float16)
            b_rope = b_next_rope.to(tl.float16)
            b_key_scale = b_next_scale
    else:
        for i_tile in range(first, last):
            i_key = i_tile * BLOCK_T
            b_slot = tl.load(p_slot + i_key + o_key, mask=i_key + o_key < end, other=-1)
            p_row = pool + b_slot.to(tl.int64) * C
            p_half = p_row + o_key_half * HALF_L
            b_latent = load_values(p_half, b_slot >= 0, o_l, HALF_L, BLOCK_L)
            p_half = p_row + L + o_key_half * HALF_R
            b_rope = load_values(p_half, b_slot >= 0, o_r, HALF_R, BLOCK_R)
            b_slot = tl.load(p_slot + i_key + o_t, mask=i_key + o_t < end, other=-1)
            b_max, b_total, b_sum = fold_tile(
                b_latent, b_rope, b_slot, (b_slot >= 0)[:, None],
                b_query_latent, b_query_rope, scale, b_max, b_total, b_sum,
                IS_FP8, HALVES, BLOCK_T, BLOCK_M,
            )  # fmt: skip
    store_part(
        part, log_total, i_row * N + i_m * BLOCK_M, i_m * BLOCK_M + tl.arange(0, BLOCK_M) < N,
        i_split, num_splits, b_max, b_total, b_sum, L, HALVES, BLOCK_M, BLOCK_L,
    )  # fmt: skip


def sparse_decode(
    query_SQNC: torch.Tensor,
    pool: torch.Tensor,
    page_table_SP: torch.Tensor,
    read_len_S: torch.Tensor,
    chosen_SQK: torch.Tensor,
    *,
    scale: float,
    latent_dim: int,
    num_splits: int | None = None,
) -> torch.Tensor:
    """Attend each query token over its chosen positions; return latent sums [S, Q, N, L].

    num_splits: into how many parts the choices are cut; by default as many as fill the GPU.
    """
    num_sequences, num_queries, num_heads, cache_dim = query_SQNC.shape
    is_fp8 = latent_width(pool, cache_dim)
    assert query_SQNC.dtype == torch.bfloat16, f"queries are BF16, not {query_SQNC.dtype}"
    assert query_SQNC.is_contiguous() and pool.is_contiguous() and page_table_SP.is_contiguous()
    assert read_len_S.shape == (num_sequences,) and page_table_SP.shape[0] == num_sequences
    assert page_table_SP.shape[1] > 0, "even a table that is not read has a column"
    assert chosen_SQK.shape[:2] == (num_sequences, num_queries) and chosen_SQK.is_contiguous()
    num_rows, num_choices = num_sequences * num_queries, chosen_SQK.shape[2]
    rope_dim = cache_dim - latent_dim
    tiling = tiling_of(num_heads, latent_dim, rope_dim, is_fp8=is_fp8)
    num_blocks = triton.cdiv(num_heads, tiling.rows)
    if num_splits is None:
        num_splits = split_count(
            num_rows * num_blocks,
            triton.cdiv(num_choices, tiling.keys),
            resident=tiling.resident,
        )
    assert pool.shape[0] * PAGE_TOKENS < 1 << 31, "slots are int32 here"
    slot = torch.empty_like(chosen_SQK, dtype=torch.int32)
    _slots_kernel[(num_rows, triton.cdiv(num_choices, _SLOT_BLOCK))](
        chosen_SQK, page_table_SP, read_len_S, slot, page_table_SP.shape[1],
        Q=num_queries, K=num_choices, BLOCK=_SLOT_BLOCK, num_warps=4,
    )  # fmt: skip
    shape = (num_sequences, num_queries, num_heads, num_splits)
    part = query_SQNC.new_empty((*shape, latent_dim), dtype=torch.float32)
    log_total = query_SQNC.new_empty(shape, dtype=torch.float32)
    out = query_SQNC.new_empty((*shape[:3], latent_dim))
    _sparse_decode_kernel[(num_blocks, num_splits, num_rows)](
        query_SQNC, pool, slot, part, log_total, scale, num_splits,
        N=num_heads, K=num_choices, L=latent_dim, R=rope_dim,
        BLOCK_M=tiling.rows, BLOCK_T=tiling.keys, HALVES=tiling.halves,
        BLOCK_L=max(triton.next_power_of_2(latent_dim // tiling.halves), 64),
        BLOCK_R=max(triton.next_power_of_2(rope_dim // tiling.halves), 16),
        PAGE=pool[0].numel(), IS_FP8=is_fp8,
        num_warps=tiling.num_warps, num_stages=tiling.num_stages,
    )  # fmt: skip
    combine(part, log_total, out)
    return out
