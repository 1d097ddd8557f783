"""The check before each use of pages: a tracker turns a step's pages into a `CheckedBatch`.

Page ops accept nothing else, so no path can forget the check. What is compared is said in
`tenantry_kernels.page_check`. T rows (new tokens) of S sequences, L page-table columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import torch

from tenantry_kernels.choice import HAS_COMPILER
from tenantry_runtime.core import PAGE_TOKENS

from .checked import CheckedBatch
from .device_pages import DevicePages, send_pages
from .device_passage import DevicePassage, unchecked
from .page_batch import PageBatch
from .pages import Lease, PageIndex, PageRef, Tag
from .passage import CompiledPassage, MakePassage, Passage, TagArrays
from .positions import positions


class Tracker(Protocol):
    """Knows which tag each page has on the device."""

    def stamp(self, refs: Sequence[PageRef]) -> None:
        """Record fresh tags, before any step that uses the pages, and the nobody tag of freed ones."""
        ...

    def check(self, pages: PageBatch) -> CheckedBatch:
        """Compare expected with actual tags and admit what agrees to the step's ops."""
        ...

    def confirm(self, checked: CheckedBatch) -> torch.Tensor:
        """Return bool ok_S after the step: whether all reads were of, and all writes are in, the right pages."""
        ...

    def faults(self, checked: CheckedBatch) -> tuple[int, ...]:
        """Return the fault word of each sequence (`tenantry_kernels.page_check`); 0 for none."""
        ...

    def differing(self, tags: Sequence[Tag]) -> list[PageIndex]:
        """Return the pages whose tag on the device is not the one given here. Waits for the device."""
        ...


class DeviceTracker(Tracker, Protocol):
    """Checks pages that are on the device already; nothing here waits for it."""

    def admit(self, pages: DevicePages, read_len_S: tuple[int, ...]) -> CheckedBatch:
        """As `check`. `read_len_S`: bounds of what sequences read, as the host knows them."""
        ...

    def settle(self, checked: CheckedBatch) -> torch.Tensor:
        """`confirm`; return the fault word of each sequence [S], 0 where all is well."""
        ...


class NoTags:
    """Checks nothing, for a deployment that turns the check off."""

    def __init__(self, device: str = "cpu", *, has_device_lengths: bool = False) -> None:
        self._device = device
        self._has_device_lengths = has_device_lengths

    def stamp(self, refs: Sequence[PageRef]) -> None:
        pass

    def check(self, pages: PageBatch) -> CheckedBatch:
        if self._has_device_lengths:
            return self.admit(
                send_pages(pages, torch.device(self._device)), tuple(pages.read_len_S)
            )
        return CheckedBatch(
            page_table_SL=self._on_device(table_SL := _page_table(pages.leases_S)),
            read_len_S=tuple(pages.read_len_S),
            write_slot_T=self._on_device(_write_slots(table_SL, pages)),
        )

    def confirm(self, checked: CheckedBatch) -> torch.Tensor:
        return torch.ones(len(checked.read_len_S), dtype=torch.bool, device=self._device)

    def faults(self, checked: CheckedBatch) -> tuple[int, ...]:
        return (0,) * len(checked.read_len_S)

    def admit(self, pages: DevicePages, read_len_S: tuple[int, ...]) -> CheckedBatch:
        return unchecked(pages, read_len_S)

    def settle(self, checked: CheckedBatch) -> torch.Tensor:
        assert checked.device_len_S is not None, "the batch was not admitted on the device"
        return torch.zeros_like(checked.device_len_S)

    def differing(self, tags: Sequence[Tag]) -> list[PageIndex]:
        return []

    def _on_device(self, host: np.ndarray) -> torch.Tensor:
        return torch.from_numpy(host).to(self._device, non_blocking=True)


class PageTags:
    """Compares every page that a step touches with its tag, its owner and its fill, on the device."""

    def __init__(
        self,
        num_pages: int,
        *,
        num_appends: int,
        device: str = "cpu",
        has_device_lengths: bool = False,
    ) -> None:
        """`num_appends`: append ops of one step, all of which must have written a row.

        `has_device_lengths`: the ops read `device_len_S` and count what they append, so that nothing
        waits for the device.
        """
        self.arrays = TagArrays.allocate(num_pages, device=device)
        self.num_appends = num_appends
        self._has_device_lengths = has_device_lengths
        self._passage: MakePassage = DevicePassage.of
        if HAS_COMPILER and torch.device(device).type == "cpu" and not has_device_lengths:
            self._passage = CompiledPassage
            # compiled or loaded now, not in the first request
            checked = self.check(PageBatch(leases_S=(), owner_S=(), start_S=(), read_len_S=()))
            checked.landing.landed(checked.write_slot_T, num_appends)
            self.confirm(checked)

    def stamp(self, refs: Sequence[PageRef]) -> None:
        self.arrays.stamp([ref.index for ref in refs], [ref.tag for ref in refs])

    def check(self, pages: PageBatch) -> CheckedBatch:
        if self._has_device_lengths:
            device_pages = send_pages(pages, self.arrays.tag_P.device)
            return self.admit(device_pages, tuple(pages.read_len_S))
        passage = self._passage(self.arrays, pages, self.num_appends)
        # the ops cannot read lengths on a device, so the host asks it
        return _checked(passage, tuple(passage.len_S.tolist()))

    def admit(self, pages: DevicePages, read_len_S: tuple[int, ...]) -> CheckedBatch:
        return _checked(DevicePassage(self.arrays, pages, self.num_appends), read_len_S)

    def settle(self, checked: CheckedBatch) -> torch.Tensor:
        passage = _passage_of(checked)
        passage.confirm()
        assert isinstance(passage.fault_S, torch.Tensor)
        return passage.fault_S

    def confirm(self, checked: CheckedBatch) -> torch.Tensor:
        return _passage_of(checked).confirm()

    def faults(self, checked: CheckedBatch) -> tuple[int, ...]:
        return tuple(_passage_of(checked).fault_S.tolist())

    def differing(self, tags: Sequence[Tag]) -> list[PageIndex]:
        actual = self.arrays.tag_P[:-1].cpu().numpy()
        return [PageIndex(index) for index in np.flatnonzero(actual != np.array(tags)).tolist()]


def _checked(passage: Passage, read_len_S: tuple[int, ...]) -> CheckedBatch:
    return CheckedBatch(
        page_table_SL=passage.table_SL,
        read_len_S=read_len_S,
        write_slot_T=passage.slot_T,
        device_len_S=passage.device_len_S,
        landing=passage,
    )


def _passage_of(checked: CheckedBatch) -> Passage:
    passage = checked.landing
    assert isinstance(passage, Passage), "the batch is another tracker's"
    return passage


def _page_table(leases_S: Sequence[Lease]) -> np.ndarray:
    width = max((len(lease) for lease in leases_S), default=0)
    table_SL = np.zeros((len(leases_S), width), dtype=np.int64)
    for row_L, lease in zip(table_SL, leases_S, strict=True):
        row_L[: len(lease)] = lease.indices
    return table_SL


def _write_slots(table_SL: np.ndarray, pages: PageBatch) -> np.ndarray:
    sequence_T, position_T = positions(pages.start_S, pages.read_len_S)
    page_T, offset_T = np.divmod(position_T, PAGE_TOKENS)
    slots_T: np.ndarray = table_SL[sequence_T, page_T] * PAGE_TOKENS + offset_T
    return slots_T
