"""The check of every page that a step reads or writes, and the masking of sequences that fail it.

| int64 per page | upper bits | lower bits |
|---|---|---|
| tag | owner slot (16) | generation (48) |
| fill | logical page index (32) | tokens written (32); 0 as a whole while nothing is written |

A sequence of which `filled` tokens are in the cache and `end` will be after the step touches the
logical pages 0 .. ceil(end / 64) - 1. For each of them, and from the first one wanted:

| what is compared | with | fault bit |
|---|---|---|
| the page's index | the pool: 0 <= index < pages (the sink is not in the pool) | 1 |
| the page's tag | the tag that the sequence holds since it acquired the page | 2 |
| the tag's owner | the owner slot that the request came with, or 0 (public) | 4 |
| the page's fill | (logical index, min(64, filled - 64 * index)), or 0 where that is not positive | 8 |

A sequence's fault is 0, or (logical page + 1) << 8 | bits of the first page that failed. It is
sticky: a check never clears or replaces one that is set. The check after the step is the same
with `filled = end`, from the first page written.

S sequences, L page-table columns, P pages, T rows.
"""

from __future__ import annotations

import torch

PAGE_TOKENS = 64
NO_SLOT = torch.iinfo(torch.int64).max
"""A slot that no pool has: its row is not written."""

PUBLIC = 0
BAD_INDEX = 1
BAD_TAG = 2
BAD_OWNER = 4
BAD_FILL = 8

_OWNER_SHIFT = 48
_OWNER_MASK = 0xFFFF


def check_pages(
    fault_S: torch.Tensor,
    *,
    tag_P: torch.Tensor,
    fill_P: torch.Tensor,
    page_table_SL: torch.Tensor,
    expected_tag_SL: torch.Tensor,
    owner_S: torch.Tensor,
    filled_S: torch.Tensor,
    end_S: torch.Tensor,
    first_page_S: torch.Tensor | None = None,
) -> None:
    """Set the fault of each sequence whose pages do not pass. All tensors are int64.

    tag, fill: [pages + 1], the sink last; first_page: the logical page to start from, 0 if none.
    """
    num_pages = tag_P.shape[0] - 1
    column_L = torch.arange(page_table_SL.shape[1], device=fault_S.device)
    touched_SL = column_L < -(-end_S // PAGE_TOKENS)[:, None]
    if first_page_S is not None:
        touched_SL &= column_L >= first_page_S[:, None]
    outside_SL = (page_table_SL < 0) | (page_table_SL >= num_pages)
    index_SL = page_table_SL.masked_fill(outside_SL, num_pages)
    tag_SL = tag_P[index_SL]
    owner_SL = (tag_SL >> _OWNER_SHIFT) & _OWNER_MASK
    tokens_SL = (filled_S[:, None] - column_L * PAGE_TOKENS).clamp(0, PAGE_TOKENS)
    fill_SL = torch.where(tokens_SL > 0, (column_L << 32) | tokens_SL, 0)
    bits_SL = BAD_TAG * (tag_SL != expected_tag_SL).long()
    bits_SL += BAD_OWNER * ((owner_SL != owner_S[:, None]) & (owner_SL != PUBLIC))
    bits_SL += BAD_FILL * (fill_P[index_SL] != fill_SL)
    # where there is no page, nothing else is compared
    bits_SL.masked_fill_(outside_SL, BAD_INDEX)
    code_SL = ((column_L + 1) << 8) | bits_SL
    # the least code is that of the first page
    failed_SL = touched_SL & (bits_SL != 0)
    first_S = code_SL.masked_fill(~failed_SL, NO_SLOT).amin(-1)
    found_S = torch.where(first_S == NO_SLOT, 0, first_S)
    fault_S.copy_(torch.where(fault_S == 0, found_S, fault_S))


def mask_batch(
    fault_S: torch.Tensor,
    *,
    page_table_SL: torch.Tensor,
    read_len_S: torch.Tensor,
    write_slot_T: torch.Tensor,
    sequence_T: torch.Tensor,
    sink_page: int,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return page table, read lengths and write slots that keep failed sequences off every page.

    A failed sequence's table names the sink alone, it reads 0 tokens and writes none. sequence_T:
    int64, the sequence that each row belongs to.
    """
    failed_S = fault_S != 0
    return (
        page_table_SL.masked_fill(failed_S[:, None], sink_page),
        read_len_S.masked_fill(failed_S, 0),
        write_slot_T.masked_fill(failed_S[sequence_T], NO_SLOT),
    )
