"""Attention of absorbed MLA queries over a paged latent cache.

Cache layout, per layer, in the cache's dtype (BF16, or float32 in tests; FP8 has one of its own,
`fp8_rows`, whose rows are float32 too once they are gathered):

| axis | length | what |
|---|---|---|
| page | pages + 1 | the last page is a sink: rows whose slot is "none" land there, nobody reads it |
| token | page size | |
| value | C = L + rope | latent (L), then the rotated shared key |

A slot is page * page size + token. S sequences, P page-table columns, T rows, N heads, K gathered
rows, C cached values, L latent values, M heads that have keys and values of their own, D values of a
key, V of a value. Scores and sums are float32.
"""

from __future__ import annotations

import torch
from torch.nn.functional import pad, scaled_dot_product_attention

TILE_ROWS = 64
"""Of queries whose scores are in memory at one time."""

TILE_VALUES = 2**19
"""Of such scores, but one head's at least: 2 MB, a core's cache."""


def append_rows(pool: torch.Tensor, slot_T: torch.Tensor, row_TC: torch.Tensor) -> None:
    """Write each row at its slot; slots past the pool go to the sink page.

    pool: [pages + 1, page size, C]; slot_T: int64 [T]; row_TC: [T, C], cast to the pool's dtype.
    """
    flat = pool.view(-1, pool.shape[-1])
    sink = flat.shape[0] - pool.shape[1]
    flat.index_copy_(0, slot_T.clamp(max=sink), row_TC.to(pool.dtype))


def slots_of(page_table: torch.Tensor, position: torch.Tensor, page_tokens: int) -> torch.Tensor:
    """Return the slots of logical positions, both int64 [..., K], through page tables [..., P]."""
    page = page_table.gather(-1, position // page_tokens)
    return page * page_tokens + position % page_tokens


def gather_rows(pool: torch.Tensor, slot: torch.Tensor) -> torch.Tensor:
    """Return the rows at int64 slots [...] as float32 [..., C]."""
    flat = pool.view(-1, pool.shape[-1])
    # index_select copies whole rows; indexing with a tensor walks them value by value
    return flat.index_select(0, slot.flatten()).view(*slot.shape, pool.shape[-1]).float()


def decode_attention(
    q_SNC: torch.Tensor,
    kv_SKC: torch.Tensor,
    bias_SK: torch.Tensor,
    scale: float,
    latent_dim: int,
) -> torch.Tensor:
    """Attend one query per sequence over its own gathered rows; return float32 latent sums [S, N, L].

    bias_SK: 0 where a row counts, -inf where not; rows that do not count must be finite.
    """
    score_SNK = torch.baddbmm(bias_SK[:, None], q_SNC.float(), kv_SKC.mT, alpha=scale)
    return torch.bmm(torch.softmax(score_SNK, -1), kv_SKC[..., :latent_dim])


def prefill_attention(
    q_TNC: torch.Tensor,
    kv_KC: torch.Tensor,
    bias_TK: torch.Tensor,
    scale: float,
    latent_dim: int,
) -> torch.Tensor:
    """Attend T queries of one sequence over its gathered rows; return float32 latent sums [T, N, L].

    bias_TK: 0 where a query may see a row, -inf where not; all rows must be finite.
    """
    num_rows, num_heads, _ = q_TNC.shape
    score_NTK = (q_TNC.float().transpose(0, 1) @ kv_KC.T).mul_(scale).add_(bias_TK)
    sum_NTL = torch.softmax(score_NTK, -1) @ kv_KC[:, :latent_dim]
    return sum_NTL.transpose(0, 1).reshape(num_rows, num_heads, latent_dim)


def fused_attention(
    q_TND: torch.Tensor,
    key_MKD: torch.Tensor,
    value_MKV: torch.Tensor,
    bias_TK: torch.Tensor | None,
    scale: float,
    value_dim: int,
) -> torch.Tensor:
    """Return attention's sums [T, N, value_dim] of the last T of K tokens, each seeing all up to it.

    M is N, or 1 where all heads share keys and values, of which the first `value_dim` are summed.
    bias_TK: 0 where a query may see a row, -inf where not. q, key and value are of one dtype, so is
    the result.
    """
    num_rows, num_heads, width = q_TND.shape
    num_keys = key_MKD.shape[1]
    # 0 up to each row's own token
    mask_TK = q_TND.new_full((num_rows, num_keys), -torch.inf).triu_(num_keys - num_rows + 1)
    if bias_TK is not None:
        mask_TK += bias_TK
    # torch's fused form wants values as wide as keys
    value = pad(value_MKV[..., :value_dim], (0, width - value_dim))
    shape = 1, num_heads, num_keys, width
    sum_NTD = scaled_dot_product_attention(
        q_TND.transpose(0, 1)[None],
        key_MKD.expand(shape),
        value.expand(shape),
        attn_mask=mask_TK,
        scale=scale,
    )[0]
    return sum_NTD[..., :value_dim].transpose(0, 1)


def tiled_attention(
    q_TND: torch.Tensor,
    key_MKD: torch.Tensor,
    value_MKV: torch.Tensor,
    bias_TK: torch.Tensor | None,
    scale: float,
    value_dim: int,
) -> torch.Tensor:
    """`fused_attention` in float32, by a tile of rows and some heads at a time: faster there on a CPU."""
    num_rows, num_heads, _ = q_TND.shape
    num_keys = key_MKD.shape[1]
    q_NTD = q_TND.transpose(0, 1) * scale
    key_NKD = key_MKD.expand(num_heads, -1, -1)
    value_NKV = value_MKV[..., :value_dim].expand(num_heads, -1, -1)
    is_later = torch.ones(TILE_ROWS, TILE_ROWS, dtype=torch.bool).triu_(1)
    sum_TNV = q_TND.new_empty(num_rows, num_heads, value_dim)
    step = max(TILE_VALUES // (TILE_ROWS * num_keys), 1)
    for first in range(0, num_heads, step):
        heads = slice(first, first + step)
        for start in range(0, num_rows, TILE_ROWS):
            rows = slice(start, min(start + TILE_ROWS, num_rows))
            length = rows.stop - start
            seen = num_keys - num_rows + rows.stop
            score_NTK = torch.bmm(q_NTD[heads, rows], key_NKD[heads, :seen].mT)
            # of what the tile's last row sees, its first row does not see so much
            own = score_NTK[..., seen - length :]
            own.masked_fill_(is_later[:length, :length], -torch.inf)
            if bias_TK is not None:
                score_NTK += bias_TK[rows, :seen]
            sums = torch.bmm(torch.softmax(score_NTK, -1), value_NKV[heads, :seen])
            sum_TNV[rows, heads] = sums.transpose(0, 1)
    return sum_TNV
