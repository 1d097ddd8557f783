"""The pages of a step as its sequences hold them, before anybody has checked them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

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
