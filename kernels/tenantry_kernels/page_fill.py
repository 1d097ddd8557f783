"""What a step's appends leave behind: how many tokens each page holds, and which page of its sequence it is.

T rows, P pages of the pool with the sink last.
"""

from __future__ import annotations

import torch

from .page_check import PAGE_TOKENS


def land_rows(
    fill_P: torch.Tensor, *, write_slot_T: torch.Tensor, position_T: torch.Tensor
) -> None:
    """Count the rows that have been written into their pages; those without a slot have not.

    All tensors are int64 and on one device; position: of each row in its sequence.
    """
    sink = fill_P.shape[0] - 1
    has_slot_T = (write_slot_T >= 0) & (write_slot_T < sink * PAGE_TOKENS)
    page_T = torch.where(has_slot_T, write_slot_T // PAGE_TOKENS, sink)
    added_P = torch.zeros_like(fill_P).index_add_(0, page_T, torch.ones_like(page_T))
    # rows of one page are of one logical page, so which of them is written last does not matter
    logical_P = torch.zeros_like(fill_P).index_copy_(0, page_T, position_T // PAGE_TOKENS)
    tokens_P = (fill_P & 0xFFFFFFFF) + added_P
    landed_P = torch.where(added_P > 0, (logical_P << 32) | tokens_P, fill_P)
    landed_P[sink] = 0
    fill_P.copy_(landed_P)
