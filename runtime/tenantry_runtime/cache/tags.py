"""The check before each use of pages: a tracker turns a step's pages into a `CheckedBatch`.

Page ops accept nothing else, so no path can forget the check. T rows (new tokens) of S sequences,
L page-table columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch

from tenantry_runtime.core import PAGE_TOKENS

from .allocator import Lease, PageRef
from .checked import CheckedBatch
from .owners import OwnerSlot


@dataclass(frozen=True, slots=True, kw_only=True)
class PageBatch:
    """The pages that a step will read and write, as their sequences hold them."""

    leases_S: Sequence[Lease]
    """With the tags from when the pages were acquired."""
    owner_S: Sequence[OwnerSlot]
    """From the request, never from a lease or a page table."""
    start_S: Sequence[int]
    """The first position that is written."""
    read_len_S: Sequence[int]
    """Positions `start:read_len` are written, `0:read_len` read."""


class Tracker(Protocol):
    """Knows which tag each page has on the device."""

    def stamp(self, refs: Sequence[PageRef]) -> None:
        """Record fresh tags, before any step that uses the pages."""
        ...

    def check(self, pages: PageBatch) -> CheckedBatch:
        """Compare expected with actual tags and admit what agrees to the step's ops."""
        ...

    def confirm(self, checked: CheckedBatch) -> torch.Tensor:
        """Return bool ok_S after the step: whether all reads were of, and all writes are in, the right pages."""
        ...


class NoTags:
    """Checks nothing, for a deployment that turns the check off."""

    def __init__(self, device: str = "cpu") -> None:
        self._device = device

    def stamp(self, refs: Sequence[PageRef]) -> None:
        pass

    def check(self, pages: PageBatch) -> CheckedBatch:
        return CheckedBatch(
            page_table_SL=self._on_device(table_SL := _page_table(pages.leases_S)),
            read_len_S=tuple(pages.read_len_S),
            write_slot_T=self._on_device(_write_slots(table_SL, pages)),
        )

    def confirm(self, checked: CheckedBatch) -> torch.Tensor:
        return torch.ones(len(checked.read_len_S), dtype=torch.bool, device=self._device)

    def _on_device(self, host: np.ndarray) -> torch.Tensor:
        return torch.from_numpy(host).to(self._device, non_blocking=True)


def _page_table(leases_S: Sequence[Lease]) -> np.ndarray:
    width = max(len(lease) for lease in leases_S)
    table_SL = np.zeros((len(leases_S), width), dtype=np.int64)
    for row_L, lease in zip(table_SL, leases_S, strict=True):
        row_L[: len(lease)] = lease.indices
    return table_SL


def _write_slots(table_SL: np.ndarray, pages: PageBatch) -> np.ndarray:
    sequence_T, position_T = positions(pages.start_S, pages.read_len_S)
    page_T, offset_T = np.divmod(position_T, PAGE_TOKENS)
    slots_T: np.ndarray = table_SL[sequence_T, page_T] * PAGE_TOKENS + offset_T
    return slots_T


def positions(start_S: Sequence[int], end_S: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
    """Return for each row of `start:end` of all sequences its sequence and its position, int64."""
    start = np.asarray(start_S, dtype=np.int64)
    count = np.asarray(end_S, dtype=np.int64) - start
    sequence_T = np.repeat(np.arange(len(start)), count)
    first_row_S = np.cumsum(count) - count
    return sequence_T, np.arange(len(sequence_T)) + (start - first_row_S)[sequence_T]
