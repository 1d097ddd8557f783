"""Attention of absorbed MLA queries over a paged latent cache.

Cache layout, per layer, in the cache's dtype (BF16, or float32 in tests):

| axis | length | what |
|---|---|---|
| page | pages + 1 | the last page is a sink: rows whose slot is "none" land there, nobody reads it |
| token | page size | |
| value | C = L + rope | latent (L), then the rotated shared key |

S sequences, P page-table columns, T rows, N heads, K chosen positions, C cached values, L latent values.
Scores and sums are float32. Attention over nothing is exactly 0.
"""

from __future__ import annotations

import torch


def append_rows(pool: torch.Tensor, slot_T: torch.Tensor, row_TC: torch.Tensor) -> None:
    """Write each row at its slot (page * page size + offset); slots past the pool go to the sink page.

    pool: [pages + 1, page size, C]; slot_T: int64 [T]; row_TC: [T, C], cast to the pool's dtype.
    """
    flat = pool.view(-1, pool.shape[-1])
    sink = flat.shape[0] - pool.shape[1]
    flat.index_copy_(0, slot_T.clamp(max=sink), row_TC.to(pool.dtype))


def gather_rows(pool: torch.Tensor, page_table: torch.Tensor) -> torch.Tensor:
    """Return float32 [..., P * page size, C]: the pages of each table row, in logical order."""
    return pool[page_table].flatten(-3, -2).float()


def decode_attention(
    q_SNC: torch.Tensor,
    kv_SKC: torch.Tensor,
    is_read_SK: torch.Tensor,
    scale: float,
    latent_dim: int,
) -> torch.Tensor:
    """Attend one query per sequence over its own gathered rows; return float32 latent sums [S, N, L].

    is_read_SK: bool, which rows count.
    """
    score_SNK = torch.bmm(q_SNC.float(), kv_SKC.transpose(1, 2)).mul_(scale)
    score_SNK.masked_fill_(~is_read_SK[:, None], -torch.inf)
    weight_SNK = torch.softmax(score_SNK, -1).nan_to_num_(0.0)
    return torch.bmm(weight_SNK, kv_SKC[..., :latent_dim])


def prefill_attention(
    q_TNC: torch.Tensor,
    kv_KC: torch.Tensor,
    is_read_TK: torch.Tensor,
    scale: float,
    latent_dim: int,
) -> torch.Tensor:
    """Attend T queries of one sequence over its gathered rows; return float32 latent sums [T, N, L].

    is_read_TK: bool, which rows each query may see.
    """
    num_rows, num_heads, _ = q_TNC.shape
    score_NTK = (q_TNC.float().transpose(0, 1) @ kv_KC.T).mul_(scale)
    score_NTK.masked_fill_(~is_read_TK, -torch.inf)
    weight_NTK = torch.softmax(score_NTK, -1).nan_to_num_(0.0)
    return (weight_NTK @ kv_KC[:, :latent_dim]).transpose(0, 1).reshape(num_rows, num_heads, -1)
