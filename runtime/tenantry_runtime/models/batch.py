"""What one forward pass computes: T rows (new tokens) of S sequences, R of which want logits."""

from __future__ import annotations

from dataclasses import dataclass

import torch


@dataclass(frozen=True, slots=True, kw_only=True)
class ForwardBatch:
    """The rows of a step, sequence after sequence."""

    token_ids_T: torch.Tensor
    """int64."""
    positions_T: torch.Tensor
    """int64, from 0 in each sequence."""
    cu_len: tuple[int, ...]
    """S+1 offsets: rows `cu_len[s]:cu_len[s+1]` belong to sequence s and are its last `read_len_S` tail."""
    logit_rows_R: torch.Tensor
    """int64 rows of which the hidden state is wanted."""
