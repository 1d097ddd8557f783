"""The pages of a step as its sequences hold them, before anybody has checked them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain

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

    @classmethod
    def joined(cls, batches: Iterable[PageBatch]) -> PageBatch:
        """Return the sequences of several batches, one batch after the other."""
        parts = tuple(batches)
        if len(parts) == 1:
            return parts[0]
        return cls(
            leases_S=[*chain.from_iterable(part.leases_S for part in parts)],
            owner_S=[*chain.from_iterable(part.owner_S for part in parts)],
            start_S=[*chain.from_iterable(part.start_S for part in parts)],
            read_len_S=[*chain.from_iterable(part.read_len_S for part in parts)],
            first_page_S=[
                *chain.from_iterable(
                    part.first_page_S or (0,) * len(part.leases_S) for part in parts
                )
            ],
        )
