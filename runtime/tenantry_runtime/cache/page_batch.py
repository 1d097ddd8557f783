"""The pages of a step as its sequences hold them, before anybody has checked them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from .owners import OwnerSlot
from .pages import Lease


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
    first_page_S: Sequence[int] | None = None
    """Logical pages before it are neither read nor written; None: all are read."""


def positions(start_S: Sequence[int], end_S: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
    """Return for each row of `start:end` of all sequences its sequence and its position, int64."""
    start = np.asarray(start_S, dtype=np.int64)
    count = np.asarray(end_S, dtype=np.int64) - start
    sequence_T = np.repeat(np.arange(len(start)), count)
    first_row_S = np.cumsum(count) - count
    return sequence_T, np.arange(len(sequence_T)) + (start - first_row_S)[sequence_T]
