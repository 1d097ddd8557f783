"""Scores of DeepSeek sparse attention's indexer: which keys a query should see.

score[t, k] = head_dim^-0.5 * sum_j weight[t, j] * relu(q[t, j] . key[k]), in float32
(DeepSeek-V3.2 report, equation 1). S sequences, T rows, J index heads, D values per head, K keys.
"""

from __future__ import annotations

import torch


def index_scores(
    q_TJD: torch.Tensor, weight_TJ: torch.Tensor, key_KD: torch.Tensor
) -> torch.Tensor:
    """Return float32 [T, K] for T queries of one sequence over its K keys."""
    match_JTK = torch.relu_(q_TJD.float().transpose(0, 1) @ key_KD.T)
    weighted = match_JTK * weight_TJ.float().T[..., None]
    return weighted.sum(0).mul_(q_TJD.shape[-1] ** -0.5)


def index_scores_batch(
    q_SJD: torch.Tensor, weight_SJ: torch.Tensor, key_SKD: torch.Tensor
) -> torch.Tensor:
    """Return float32 [S, K] for one query per sequence over its own keys."""
    match_SJK = torch.relu_(torch.bmm(q_SJD.float(), key_SKD.transpose(1, 2)))
    weight = weight_SJ.float()[:, None] * q_SJD.shape[-1] ** -0.5
    return torch.bmm(weight, match_SJK).squeeze(1)
