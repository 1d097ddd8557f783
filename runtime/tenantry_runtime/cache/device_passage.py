"""A step's way through the check on any device, without waiting for it: `passage.Passage` in kernels.

Where lengths stay on the device, appends count what they write (`checked.AppendCount`). All its
tensors have shapes that the host knows, so a captured step may contain it.

S sequences, L page-table columns, T rows.
"""

from __future__ import annotations

import torch

from tenantry_kernels.page_check import NO_SLOT
from tenantry_kernels.page_fill import land_rows
from tenantry_runtime.core import PAGE_TOKENS

from .checked import AppendCount, CheckedBatch, CountsOnDevice
from .device_pages import DevicePages, send_pages
from .ops import check_ops
from .page_batch import PageBatch
from .passage import NUM_FLAGS, Passage, TagArrays


class DevicePassage(Passage, CountsOnDevice):
    """Of pages that are on the device already."""

    len_S: torch.Tensor
    fault_S: torch.Tensor

    def __init__(self, arrays: TagArrays, pages: DevicePages, num_appends: int) -> None:
        super().__init__(arrays, num_appends)
        self._pages = pages
        self._num_appends = num_appends
        self._ops = check_ops(arrays.tag_P.device)
        self._flag_S = pages.serial % NUM_FLAGS
        held_S = arrays.holder_F[self._flag_S] == pages.serial
        self.fault_S = torch.where(held_S, arrays.fault_F[self._flag_S], 0)
        self._check(pages.start, pages.first_page)
        self.table_SL, self.len_S, self.slot_T = self._ops.mask(
            self.fault_S,
            # a page that is not there was found above
            page_table_SL=pages.page_table.clamp(min=0),
            read_len_S=pages.end,
            write_slot_T=write_slots(pages),
            sequence_T=pages.sequence.clamp(max=len(pages.end) - 1),
            sink_page=arrays.tag_P.shape[0] - 1,
        )
        self._landed_T = torch.zeros_like(pages.position, dtype=torch.int32)

    @classmethod
    def of(cls, arrays: TagArrays, pages: PageBatch, num_appends: int) -> DevicePassage:
        """Of pages that are still on the host."""
        return cls(arrays, send_pages(pages, arrays.tag_P.device), num_appends)

    @property
    def device_len_S(self) -> torch.Tensor:
        return self.len_S

    def next_append(self) -> AppendCount:
        self._num_missing -= 1
        return AppendCount(
            landed_T=self._landed_T,
            is_last=self._num_missing == 0,
            fill_P=self._arrays.fill_P,
            position_T=self._pages.position,
            num_appends=self._num_appends,
        )

    def confirm(self) -> torch.Tensor:
        pages = self._pages
        self._check(pages.end, (pages.start // PAGE_TOKENS).maximum(pages.first_page))
        return self.fault_S == 0

    def _land(self, slot_T: torch.Tensor) -> None:
        # for those who write pages by other means than a step's appends
        land_rows(self._arrays.fill_P, write_slot_T=slot_T, position_T=self._pages.position)

    def _check(self, filled_S: torch.Tensor, first_S: torch.Tensor) -> None:
        arrays, pages, flag_S = self._arrays, self._pages, self._flag_S
        self._ops.check(
            self.fault_S,
            tag_P=arrays.tag_P,
            fill_P=arrays.fill_P,
            page_table_SL=pages.page_table,
            expected_tag_SL=pages.expected_tag,
            owner_S=pages.owner,
            filled_S=filled_S,
            end_S=pages.end,
            first_page_S=first_S,
        )
        # of two sequences that fail in one step and share a flag, one is remembered
        failed_S = self.fault_S != 0
        arrays.holder_F[flag_S] = torch.where(failed_S, pages.serial, arrays.holder_F[flag_S])
        arrays.fault_F[flag_S] = torch.where(failed_S, self.fault_S, arrays.fault_F[flag_S])


def write_slots(pages: DevicePages) -> torch.Tensor:
    """Return the slot [T] of each row, `NO_SLOT` of those that are padding."""
    num_sequences = len(pages.end)
    is_padding_T = pages.sequence >= num_sequences
    sequence_T = pages.sequence.clamp(max=num_sequences - 1)
    # a page that is not there makes no slot, and its sequence fails
    page_T = pages.page_table[sequence_T, pages.position // PAGE_TOKENS]
    slot_T = page_T * PAGE_TOKENS + pages.position % PAGE_TOKENS
    return slot_T.masked_fill(is_padding_T | (pages.end[sequence_T] == 0), NO_SLOT)


def unchecked(pages: DevicePages, read_len_S: tuple[int, ...]) -> CheckedBatch:
    """Return pages as they are, for a tracker that checks nothing."""
    return CheckedBatch(
        page_table_SL=pages.page_table.clamp(min=0),
        read_len_S=read_len_S,
        write_slot_T=write_slots(pages),
        device_len_S=pages.end,
    )
