"""The check of every page that a step touches, and the masking of failed sequences, on the device.

The layouts of tags, fills and faults, and what is compared, are in `tenantry_kernels.page_check`,
whose functions are the reference of these. Neither op waits for the device: a fault is seen by the
host when it next copies the faults, and until then its sequence touches no page.

S sequences, L page-table columns, P pages, T rows.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from tenantry_kernels.page_check import (
    BAD_FILL,
    BAD_INDEX,
    BAD_OWNER,
    BAD_TAG,
    NO_SLOT,
    PAGE_TOKENS,
    PUBLIC,
)

# 1024 columns are 65,536 tokens: most sequences need one turn
_CHECK_BLOCK, _CHECK_WARPS = 1024, 8
_MASK_BLOCK = 512


@triton.jit(do_not_specialize=["num_pages", "num_columns"])
def _check_kernel(
    fault, tag, fill, page_table, expected_tag, owner, filled, end, first_page,
    num_pages, num_columns,
    NONE: tl.constexpr, BAD_INDEX: tl.constexpr, BAD_TAG: tl.constexpr, BAD_OWNER: tl.constexpr,
    BAD_FILL: tl.constexpr, PUBLIC: tl.constexpr, PAGE: tl.constexpr,
    HAS_FIRST: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    i_s = tl.program_id(0).to(tl.int64)
    own = tl.load(owner + i_s)
    num_filled = tl.load(filled + i_s)
    # a table too narrow for its sequence is the caller's fault, not a page's
    num_touched = tl.minimum(tl.cdiv(tl.load(end + i_s), PAGE), num_columns)
    column = tl.full([], 0, tl.int64)
    if HAS_FIRST:
        column += tl.load(first_page + i_s)
    found = tl.full([], NONE, tl.int64)
    while column < num_touched:
        # [BLOCK]
        o_column = column + tl.arange(0, BLOCK)
        m_column = o_column < num_touched
        b_page = tl.load(page_table + i_s * num_columns + o_column, mask=m_column, other=0)
        m_inside = (b_page >= 0) & (b_page < num_pages)
        m_page = m_column & m_inside
        b_tag = tl.load(tag + b_page, mask=m_page, other=0)
        b_fill = tl.load(fill + b_page, mask=m_page, other=0)
        b_expected = tl.load(expected_tag + i_s * num_columns + o_column, mask=m_column, other=0)
        b_owner = (b_tag >> 48) & 0xFFFF
        b_tokens = tl.minimum(tl.maximum(num_filled - o_column * PAGE, 0), PAGE)
        b_expected_fill = tl.where(b_tokens > 0, (o_column << 32) | b_tokens, 0)
        b_bits = tl.where(m_inside, 0, BAD_INDEX)
        b_bits += tl.where(m_inside & (b_tag != b_expected), BAD_TAG, 0)
        b_bits += tl.where(m_inside & (b_owner != own) & (b_owner != PUBLIC), BAD_OWNER, 0)
        b_bits += tl.where(m_inside & (b_fill != b_expected_fill), BAD_FILL, 0)
        b_code = ((o_column + 1) << 8) | b_bits
        # the least code is that of the first page
        found = tl.minimum(found, tl.min(tl.where(m_column & (b_bits != 0), b_code, NONE), 0))
        column += BLOCK
    tl.store(fault + i_s, found, mask=(found != NONE) & (tl.load(fault + i_s) == 0))


@triton.jit(do_not_specialize=["num_sequences", "num_columns", "num_rows", "sink_page"])
def _mask_kernel(
    fault, page_table, read_len, write_slot, sequence,
    masked_table, masked_len, masked_slot,
    num_sequences, num_columns, num_rows, sink_page,
    NO_SLOT: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    i_block = tl.program_id(0)
    if i_block < num_sequences:
        i_s = i_block.to(tl.int64)
        is_failed = tl.load(fault + i_s) != 0
        tl.store(masked_len + i_s, tl.where(is_failed, 0, tl.load(read_len + i_s)))
        for i_column in range(0, num_columns, BLOCK):
            o_column = i_column + tl.arange(0, BLOCK)
            m_column = o_column < num_columns
            b_page = tl.load(page_table + i_s * num_columns + o_column, mask=m_column, other=0)
            b_page = tl.where(is_failed, sink_page, b_page)
            tl.store(masked_table + i_s * num_columns + o_column, b_page, mask=m_column)
    else:
        o_row = (i_block - num_sequences) * BLOCK + tl.arange(0, BLOCK)
        m_row = o_row < num_rows
        b_sequence = tl.load(sequence + o_row, mask=m_row, other=0)
        b_slot = tl.load(write_slot + o_row, mask=m_row, other=0)
        m_failed = tl.load(fault + b_sequence, mask=m_row, other=0) != 0
        tl.store(masked_slot + o_row, tl.where(m_failed, NO_SLOT, b_slot), mask=m_row)


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
    """Set the fault of each sequence whose pages do not pass. All tensors are contiguous int64.

    Before a step, `filled` is what the cache holds; after it, `filled = end` and `first_page` is
    the first page written, so that every row's append is seen to have landed.
    """
    num_sequences, num_columns = page_table_SL.shape
    per_sequence = [fault_S, owner_S, filled_S, end_S]
    if first_page_S is not None:
        per_sequence.append(first_page_S)
    assert all(vector.shape == (num_sequences,) for vector in per_sequence)
    assert expected_tag_SL.shape == page_table_SL.shape and tag_P.shape == fill_P.shape
    assert _are_int64(tag_P, fill_P, page_table_SL, expected_tag_SL, *per_sequence)
    _check_kernel[(num_sequences,)](
        fault_S, tag_P, fill_P, page_table_SL, expected_tag_SL, owner_S, filled_S, end_S,
        first_page_S, tag_P.shape[0] - 1, num_columns,
        NONE=NO_SLOT, BAD_INDEX=BAD_INDEX, BAD_TAG=BAD_TAG, BAD_OWNER=BAD_OWNER, BAD_FILL=BAD_FILL,
        PUBLIC=PUBLIC, PAGE=PAGE_TOKENS, HAS_FIRST=first_page_S is not None,
        BLOCK=_CHECK_BLOCK, num_warps=_CHECK_WARPS,
    )  # fmt: skip


def mask_batch(
    fault_S: torch.Tensor,
    *,
    page_table_SL: torch.Tensor,
    read_len_S: torch.Tensor,
    write_slot_T: torch.Tensor,
    sequence_T: torch.Tensor,
    sink_page: int,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return page table, read lengths and write slots that keep failed sequences off every page."""
    num_sequences, num_columns = page_table_SL.shape
    num_rows = write_slot_T.shape[0]
    assert fault_S.shape == read_len_S.shape == (num_sequences,)
    assert sequence_T.shape == write_slot_T.shape
    assert _are_int64(fault_S, page_table_SL, read_len_S, write_slot_T, sequence_T)
    table, length, slot = (
        torch.empty_like(tensor) for tensor in (page_table_SL, read_len_S, write_slot_T)
    )
    _mask_kernel[(num_sequences + triton.cdiv(num_rows, _MASK_BLOCK),)](
        fault_S, page_table_SL, read_len_S, write_slot_T, sequence_T, table, length, slot,
        num_sequences, num_columns, num_rows, sink_page,
        NO_SLOT=NO_SLOT, BLOCK=_MASK_BLOCK, num_warps=4,
    )  # fmt: skip
    return table, length, slot


def _are_int64(*tensors: torch.Tensor) -> bool:
    return all(tensor.dtype == torch.int64 and tensor.is_contiguous() for tensor in tensors)
