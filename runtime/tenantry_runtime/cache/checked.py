"""The only form in which pages reach an op: a batch that a tracker has checked.

T rows (new tokens) of S sequences, L page-table columns.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedBatch:
    """Where a step reads and writes. Made by a tracker (`PageTags`, `NoTags`) alone."""

    page_table_SL: torch.Tensor
    """int64 page indices in logical order; columns past a sequence's last page are 0 and never read."""
    read_len_S: tuple[int, ...]
    """Tokens readable per sequence, those written in this step included; 0 reads nothing."""
    write_slot_T: torch.Tensor
    """int64 `page * PAGE_TOKENS + offset` for each row; `NO_SLOT` rows are not written."""


NO_SLOT = torch.iinfo(torch.int64).max
"""A slot that no pool has."""
