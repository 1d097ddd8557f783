"""Which keys a query should see: scores of FP8 index keys, and the best of them, the same each time.

| tensor | shape | dtype |
|---|---|---|
| query | [S, Q, J, D]: the last Q tokens of each sequence | BF16 |
| weight | [S, Q, J] | float32 |
| pool | [pages + 1, 64 * (D + 4)] as in `fp8_rows` | uint8 |
| page table, read length | [S, P]; [S], the Q queries' own tokens included | int64 |
| score | [S, Q, P * 64]: D^-0.5 * sum over heads of weight * relu(query . key); -inf unseen | float32 |
| chosen | [S, Q, K]: positions in ascending order, then -1 | int32 |

Query j of a sequence sees the keys before `read length - (Q - 1 - j)`. Of equal scores (0 and -0
are equal) the lower position is chosen; NaN loses against every number. The choice is by radix:
eight bits of the scores at a time, the count of larger ones decides which eight bits the K-th best
begins with; one more pass writes positions. No order of execution enters.

S sequences, Q query tokens, J heads, D values per head, P page-table columns, K choices.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from tenantry_kernels.fp8_rows import PAGE_TOKENS, page_bytes

from .mla_tile import load_fp8, query_exponent, query_factor, query_scale

# keys of a tile, and of a program: enough tiles for the loads of one to hide behind another
_TILE, _CHUNK, _WARPS = 128, 512, 4
_CHOICE_BLOCK, _CHOICE_WARPS = 4096, 16


@triton.jit
def _page_rows(pool, table, i_tile, o_t, end, D: tl.constexpr, T: tl.constexpr):
    """Return pointers [T] to a tile's keys and to their scales, and which are before the end."""
    b_position = i_tile * T + o_t
    m_t = b_position < end
    b_page = tl.load(table + b_position // 64, mask=m_t, other=0)
    p_page = pool + b_page * (64 * (D + 4))
    p_scale = (p_page + 64 * D).to(tl.pointer_type(tl.float32)) + b_position % 64
    return p_page + b_position % 64 * D, p_scale, m_t


@triton.jit(do_not_specialize=["num_columns"])
def _index_scores_kernel(
    query, weight, pool, page_table, read_len, score, num_columns,
    Q: tl.constexpr, J: tl.constexpr, D: tl.constexpr,
    BLOCK_J: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_T: tl.constexpr, CHUNK: tl.constexpr,
):  # fmt: skip
    i_row = tl.program_id(1).to(tl.int64)
    i_s = i_row // Q
    limit = (tl.load(read_len + i_s) - (Q - 1 - i_row % Q)).to(tl.int32)
    num_positions = num_columns * 64
    first = tl.program_id(0) * (CHUNK // BLOCK_T)
    last = tl.minimum(first + CHUNK // BLOCK_T, tl.cdiv(num_positions, BLOCK_T))
    end = tl.minimum(last * BLOCK_T, limit)
    o_j = tl.arange(0, BLOCK_J)
    o_d = tl.max_contiguous(tl.arange(0, BLOCK_D), 8)
    o_t = tl.arange(0, BLOCK_T)
    m_query = (o_j < J)[:, None] & (o_d < D)[None, :]
    p_query = query + (i_row * J + o_j[:, None]) * D + o_d[None, :]
    # [BLOCK_J, BLOCK_D], [BLOCK_J]
    b_query = tl.load(p_query, mask=m_query, other=0.0)
    b_weight = tl.load(weight + i_row * J + o_j, mask=o_j < J, other=0.0).to(tl.float32)
    field = query_exponent(b_query, b_query)
    b_query = (b_query.to(tl.float32) * query_factor(field)).to(tl.float16)
    b_weight *= query_scale(field) / tl.sqrt(D * 1.0)
    table = page_table + i_s * num_columns
    p_key, p_scale, m_t = _page_rows(pool, table, first, o_t, end, D, BLOCK_T)
    b_key = load_fp8(p_key, m_t, o_d, D, BLOCK_D).to(tl.float16)
    b_scale = tl.load(p_scale, mask=m_t, other=1.0)
    for i_tile in range(first, last):
        p_key, p_scale, m_next = _page_rows(pool, table, i_tile + 1, o_t, end, D, BLOCK_T)
        b_next_key = load_fp8(p_key, m_next, o_d, D, BLOCK_D)
        b_next_scale = tl.load(p_scale, mask=m_next, other=1.0)
        # [BLOCK_T, BLOCK_J]
        b_match = tl.maximum(tl.dot(b_key, tl.trans(b_query)), 0.0)
        b_score = tl.sum(b_match * b_weight[None, :], 1) * b_scale
        b_position = i_tile * BLOCK_T + o_t
        b_score = tl.where(b_position < limit, b_score, float("-inf"))
        p_score = score + i_row * num_positions + b_position
        tl.store(p_score, b_score, mask=b_position < num_positions)
        # widened here and not where it is used: see `mla_decode`
        b_key = b_next_key.to(tl.float16)
        b_scale = b_next_scale


@triton.jit
def _sortable(p_score, m_score):
    """Return scores as uint32 in the same order."""
    b_score = tl.load(p_score, mask=m_score, other=float("-inf"))
    b_score = tl.where(b_score == b_score, b_score, float("-inf"))
    b_score = tl.where(b_score == 0, 0.0, b_score)
    b_bits = b_score.to(tl.int32, bitcast=True)
    # negative numbers are ordered by the complement of their bits
    b_flip = (b_bits >> 31) | -2147483648
    return (b_bits ^ b_flip).to(tl.uint32, bitcast=True)


@triton.jit
def _top_positions_kernel(
    score, read_len, chosen, num_positions, Q: tl.constexpr, K: tl.constexpr, BLOCK: tl.constexpr
):
    i_row = tl.program_id(0).to(tl.int64)
    limit = (tl.load(read_len + i_row // Q) - (Q - 1 - i_row % Q)).to(tl.int32)
    num_seen = tl.maximum(tl.minimum(limit, num_positions), 0)
    p_row = score + i_row * num_positions
    o_bin = tl.arange(0, 256)
    # the K-th best, from its first bits on, and how many of the scores that share them are wanted
    best = tl.full([], 0, tl.uint32)
    wanted = tl.full([], K, tl.int32)
    if num_seen > K:
        for i_digit in tl.static_range(4):
            b_count = tl.zeros([256], tl.int32)
            for i_position in range(0, num_seen, BLOCK):
                o_position = i_position + tl.arange(0, BLOCK)
                m_position = o_position < num_seen
                b_key = _sortable(p_row + o_position, m_position)
                if i_digit > 0:
                    m_position = m_position & ((b_key >> (32 - 8 * i_digit)) == best)
                b_digit = ((b_key >> (24 - 8 * i_digit)) & 0xFF).to(tl.int32)
                b_count += tl.histogram(b_digit, 256, mask=m_position)
            # how many have this digit or a larger one: never more than for a smaller digit
            b_above = tl.cumsum(b_count, 0, reverse=True)
            digit = tl.sum((b_above >= wanted).to(tl.int32), 0) - 1
            wanted -= tl.sum(tl.where(o_bin == digit, b_above - b_count, 0), 0)
            best = (best << 8) | digit.to(tl.uint32)
    num_chosen = tl.full([], 0, tl.int32)
    num_equal = tl.full([], 0, tl.int32)
    for i_position in range(0, num_seen, BLOCK):
        o_position = i_position + tl.arange(0, BLOCK)
        m_position = o_position < num_seen
        b_key = _sortable(p_row + o_position, m_position)
        # with no more than K to choose from, `best` is 0: all are above or equal, and wanted
        b_equal = (m_position & (b_key == best)).to(tl.int32)
        b_rank = num_equal + tl.cumsum(b_equal, 0)
        m_chosen = (m_position & (b_key > best)) | ((b_equal > 0) & (b_rank <= wanted))
        b_place = num_chosen + tl.cumsum(m_chosen.to(tl.int32), 0) - 1
        tl.store(chosen + i_row * K + b_place, o_position, mask=m_chosen)
        num_chosen += tl.sum(m_chosen.to(tl.int32), 0)
        num_equal += tl.sum(b_equal, 0)
    for i_place in range(0, K, BLOCK):
        o_place = i_place + tl.arange(0, BLOCK)
        m_place = (o_place >= num_chosen) & (o_place < K)
        tl.store(chosen + i_row * K + o_place, tl.full([BLOCK], -1, tl.int32), mask=m_place)


def index_scores(
    query_SQJD: torch.Tensor,
    weight_SQJ: torch.Tensor,
    pool: torch.Tensor,
    page_table_SP: torch.Tensor,
    read_len_S: torch.Tensor,
) -> torch.Tensor:
    """Return the float32 scores [S, Q, P * 64] of every position of every query token."""
    num_sequences, num_queries, num_heads, head_dim = query_SQJD.shape
    assert pool.dtype == torch.uint8 and pool.shape[-1] == page_bytes(head_dim), (
        f"a page of {head_dim} FP8 values has {page_bytes(head_dim)} bytes, not {pool.shape[-1]}"
    )
    assert query_SQJD.dtype == torch.bfloat16, f"queries are BF16, not {query_SQJD.dtype}"
    assert query_SQJD.is_contiguous() and pool.is_contiguous() and page_table_SP.is_contiguous()
    assert weight_SQJ.shape == query_SQJD.shape[:3] and weight_SQJ.is_contiguous()
    assert read_len_S.shape == (num_sequences,) and page_table_SP.shape[0] == num_sequences
    num_positions = page_table_SP.shape[1] * PAGE_TOKENS
    score = query_SQJD.new_empty((num_sequences, num_queries, num_positions), dtype=torch.float32)
    _index_scores_kernel[(triton.cdiv(num_positions, _CHUNK), num_sequences * num_queries)](
        query_SQJD, weight_SQJ, pool, page_table_SP, read_len_S, score, page_table_SP.shape[1],
        Q=num_queries, J=num_heads, D=head_dim,
        BLOCK_J=max(triton.next_power_of_2(num_heads), 16),
        BLOCK_D=max(triton.next_power_of_2(head_dim), 16),
        BLOCK_T=_TILE, CHUNK=_CHUNK, num_warps=_WARPS, num_stages=1,
    )  # fmt: skip
    return score


def top_positions(
    score_SQT: torch.Tensor, read_len_S: torch.Tensor, num_choices: int
) -> torch.Tensor:
    """Return the int32 positions [S, Q, K] of each query's best scores, ascending, then -1."""
    num_sequences, num_queries, num_positions = score_SQT.shape
    assert score_SQT.dtype == torch.float32 and score_SQT.is_contiguous()
    assert read_len_S.shape == (num_sequences,)
    shape = (num_sequences, num_queries, num_choices)
    chosen = torch.empty(shape, dtype=torch.int32, device=score_SQT.device)
    _top_positions_kernel[(num_sequences * num_queries,)](
        score_SQT, read_len_S, chosen, num_positions,
        Q=num_queries, K=num_choices, BLOCK=_CHOICE_BLOCK, num_warps=_CHOICE_WARPS,
    )  # fmt: skip
    return chosen
