"""One step's way through the check: what was expected, what was found, what has been written.

S sequences, N pages of all of them one after another, T rows, L page-table columns, P pages of the
pool with the sink last, F flags.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import numpy as np
import torch

from tenantry_kernels.choice import HAS_COMPILER

from .page_batch import PageBatch
from .pages import NOBODY_TAG
from .words import to_device

if HAS_COMPILER:
    from tenantry_kernels.cpu import page_check as compiled

NUM_FLAGS = 1 << 16
"""Of sequences that failed; two that fail in one step would have to be as many sequences apart to meet."""


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

    def __init__(self, arrays: TagArrays, num_appends: int) -> None:
        """Those that derive from it check all pages here, and keep the sequences that fail off them."""
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


MakePassage: TypeAlias = Callable[[TagArrays, PageBatch, int], Passage]
"""Of pages on the host, and so many appends."""


class CompiledPassage(Passage):
    """On a CPU, in compiled loops."""

    def __init__(self, arrays: TagArrays, pages: PageBatch, num_appends: int) -> None:
        super().__init__(arrays, num_appends)
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
