"""One step's way through the check: what was expected, what was found, what has been written.

S sequences, N pages of all of them one after another, T rows, L page-table columns, P pages of the
pool with the sink last, F flags.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch

from tenantry_kernels.choice import HAS_COMPILER
from tenantry_kernels.page_check import check_pages, mask_batch
from tenantry_kernels.page_fill import land_rows
from tenantry_runtime.core import PAGE_TOKENS

from .page_batch import PageBatch
from .pages import NOBODY_TAG
from .positions import positions
from .words import to_device

if HAS_COMPILER:
    from tenantry_kernels.cpu import page_check as compiled

NUM_FLAGS = 1 << 16
"""Of sequences that failed; two that fail in one step would have to be as many sequences apart to meet."""

_NO_PAGE = -1
"""What the check finds where a sequence has fewer pages than it touches."""


@dataclass(frozen=True, kw_only=True)
class TagArrays:
    """What the device knows of the pages and of sequences that failed."""

    tag_P: torch.Tensor
    fill_P: torch.Tensor
    holder_F: torch.Tensor
    """The serial of the sequence that a flag is of."""
    fault_F: torch.Tensor

    @classmethod
    def allocate(cls, num_pages: int, *, device: str) -> TagArrays:
        """Return arrays of pages that are nobody's; the sink stays so."""

        def words(length: int, value: int) -> torch.Tensor:
            return torch.full((length,), value, dtype=torch.int64, device=device)

        return cls(
            tag_P=words(num_pages + 1, NOBODY_TAG),
            fill_P=words(num_pages + 1, 0),
            holder_F=words(NUM_FLAGS, 0),
            fault_F=words(NUM_FLAGS, 0),
        )

    @cached_property
    def host(self) -> tuple[np.ndarray, ...]:
        """The same memory, of arrays on a CPU."""
        words = (self.tag_P, self.fill_P, self.holder_F, self.fault_F)
        return tuple(array.numpy() for array in words)

    def stamp(self, indices: Sequence[int], tags: Sequence[int]) -> None:
        """Give pages new tags and nothing written, after all that was launched before."""
        index_N, tag_N = to_device(np.array([indices, tags], np.int64), self.tag_P.device)
        self.tag_P[index_N] = tag_N
        self.fill_P[index_N] = 0


class Passage(ABC):
    """A checked step, from the check before it to `confirm`. It is also the step's `Landing`."""

    table_SL: torch.Tensor
    slot_T: torch.Tensor
    len_S: torch.Tensor | np.ndarray
    fault_S: torch.Tensor | np.ndarray

    def __init__(self, arrays: TagArrays, pages: PageBatch, num_appends: int) -> None:
        """Check all pages and keep the sequences that fail off them."""
        self._arrays = arrays
        self._num_missing = num_appends

    def landed(self, slot_T: torch.Tensor, num_appends: int = 1) -> None:
        """As `Landing` says; the last of the step's appends counts the rows into their pages."""
        self._num_missing -= num_appends
        if self._num_missing == 0:
            self._land(slot_T)

    @property
    def device_len_S(self) -> torch.Tensor | None:
        """As `CheckedBatch` has it."""
        return None

    @abstractmethod
    def confirm(self) -> torch.Tensor:
        """Check what the step has written; return bool [S], whether a sequence has no fault."""
        ...

    @abstractmethod
    def _land(self, slot_T: torch.Tensor) -> None: ...


class CompiledPassage(Passage):
    """On a CPU, in compiled loops."""

    def __init__(self, arrays: TagArrays, pages: PageBatch, num_appends: int) -> None:
        super().__init__(arrays, pages, num_appends)
        leases = pages.leases_S
        lengths = list(map(len, leases))
        num_sequences = len(leases)
        first_S = pages.first_page_S or (0,) * num_sequences
        serial_S = [lease.serial for lease in leases]
        plan_FS = (lengths, pages.owner_S, pages.start_S, pages.read_len_S, first_S, serial_S)
        self._plan_FS = np.array(plan_FS, np.int64)
        # one copy for all leases
        self._index_N = np.frombuffer(b"".join([lease.indices for lease in leases]), np.int64)
        self._tag_N = np.frombuffer(b"".join([lease.tags for lease in leases]), np.int64)
        table_SL = np.empty((num_sequences, max(lengths, default=0)), np.int64)
        self.len_S, self.fault_S = np.empty((2, num_sequences), np.int64)
        slot_T = np.empty(sum(pages.read_len_S) - sum(pages.start_S), np.int64)
        compiled.admit(
            *self._arrays.host,
            self._index_N,
            self._tag_N,
            self._plan_FS,
            table_SL,
            self.len_S,
            slot_T,
            self.fault_S,
        )
        self._landed_T = slot_T[:0]
        self.table_SL, self.slot_T = torch.from_numpy(table_SL), torch.from_numpy(slot_T)

    def _land(self, slot_T: torch.Tensor) -> None:
        # counted in `confirm`: nobody else looks in between, and a call less is a third less to pay
        self._landed_T = slot_T.numpy()

    def confirm(self) -> torch.Tensor:
        compiled.confirm(
            *self._arrays.host,
            self._index_N,
            self._tag_N,
            self._plan_FS,
            self._landed_T,
            self.fault_S,
        )
        self._landed_T = self._landed_T[:0]
        return torch.from_numpy(self.fault_S == 0)


class TorchPassage(Passage):
    """On any device, without waiting for it."""

    len_S: torch.Tensor
    fault_S: torch.Tensor

    @property
    def device_len_S(self) -> torch.Tensor:
        return self.len_S

    def __init__(self, arrays: TagArrays, pages: PageBatch, num_appends: int) -> None:
        super().__init__(arrays, pages, num_appends)
        table_SL, self._expected_SL = self._tables(pages)
        self._load(pages)
        held_S = arrays.holder_F[self._flag_S] == self._serial_S
        self.fault_S = torch.where(held_S, arrays.fault_F[self._flag_S], 0)
        self.table_SL = table_SL
        first_S = self._words(pages.first_page_S) if pages.first_page_S else None
        self._check(self._start_S, first_S)
        sequence_T = self._sequences(pages)
        page_T = self._position_T // PAGE_TOKENS
        slot_T = table_SL[sequence_T, page_T] * PAGE_TOKENS + self._position_T % PAGE_TOKENS
        sink = arrays.tag_P.shape[0] - 1
        self.table_SL, self.len_S, self.slot_T = mask_batch(
            self.fault_S,
            # a page that is not there was found above
            page_table_SL=table_SL.clamp(min=0),
            read_len_S=self._end_S,
            write_slot_T=slot_T,
            sequence_T=sequence_T,
            sink_page=sink,
        )

    def _land(self, slot_T: torch.Tensor) -> None:
        land_rows(self._arrays.fill_P, write_slot_T=slot_T, position_T=self._position_T)

    def confirm(self) -> torch.Tensor:
        self._check(self._end_S, self._written_S)
        return self.fault_S == 0

    def _check(self, filled_S: torch.Tensor, first_S: torch.Tensor | None) -> None:
        arrays = self._arrays
        if self.table_SL.shape[1]:
            check_pages(
                self.fault_S,
                tag_P=arrays.tag_P,
                fill_P=arrays.fill_P,
                page_table_SL=self.table_SL,
                expected_tag_SL=self._expected_SL,
                owner_S=self._owner_S,
                filled_S=filled_S,
                end_S=self._end_S,
                first_page_S=first_S,
            )
        # of two sequences that fail in one step and share a flag, one is remembered
        failed_S = self.fault_S != 0
        flag_S = self._flag_S
        arrays.holder_F[flag_S] = torch.where(failed_S, self._serial_S, arrays.holder_F[flag_S])
        arrays.fault_F[flag_S] = torch.where(failed_S, self.fault_S, arrays.fault_F[flag_S])

    def _load(self, pages: PageBatch) -> None:
        self._owner_S, self._start_S, self._end_S, self._serial_S = self._words(
            (
                pages.owner_S,
                pages.start_S,
                pages.read_len_S,
                [lease.serial for lease in pages.leases_S],
            )
        )
        self._flag_S = self._serial_S % NUM_FLAGS
        first_S = self._start_S // PAGE_TOKENS
        if pages.first_page_S:
            first_S = first_S.maximum(self._words(pages.first_page_S))
        self._written_S = first_S

    def _sequences(self, pages: PageBatch) -> torch.Tensor:
        sequence_T, position_T = positions(pages.start_S, pages.read_len_S)
        self._position_T = self._words(position_T)
        return self._words(sequence_T)

    def _tables(self, pages: PageBatch) -> tuple[torch.Tensor, torch.Tensor]:
        """Return page table and expected tags; a page that a sequence touches and lacks is `_NO_PAGE`."""
        touched = [-(-end // PAGE_TOKENS) for end in pages.read_len_S]
        width = max((*touched, *map(len, pages.leases_S)), default=0)
        table_2SL = np.zeros((2, len(pages.leases_S), width), np.int64)
        for s, lease in enumerate(pages.leases_S):
            table_2SL[0, s, len(lease) : touched[s]] = _NO_PAGE
            table_2SL[0, s, : len(lease)] = lease.indices
            table_2SL[1, s, : len(lease)] = lease.tags
        table_SL, expected_SL = self._words(table_2SL)
        return table_SL, expected_SL

    def _words(self, host: object) -> torch.Tensor:
        return to_device(np.asarray(host, np.int64), self._arrays.tag_P.device)
