"""Pages that one hand-off may write, until it is closed.

The receiver writes, so closing is the fence: what is pushed later, to other pages or under other
tags is refused before any page is touched; what passes is checked on the device like a step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tenantry_runtime.core import PAGE_TOKENS
from tenantry_runtime.errors import CacheIntegrityError

from .allocator import PageAllocator
from .owners import OwnerSlot
from .page_batch import PageBatch
from .pages import HandoffId, Lease, PageRef


@dataclass(frozen=True, slots=True, kw_only=True)
class PushedPage:
    """What a hand-off says of a page that it brings."""

    handoff: HandoffId
    logical_page: int
    ref: PageRef
    """As the reservation named it."""
    num_tokens: int


class Reservation:
    """Fresh pages of one sequence; its lease is the sequence's, whatever becomes of the hand-off."""

    def __init__(self, lease: Lease, owner: OwnerSlot, *, first_page: int = 0) -> None:
        """Let a hand-off write the lease's pages from `first_page` on; those before are shared."""
        self.owner = owner
        """The request's."""
        self.lease = lease
        self.first_page = first_page
        self.handoff = lease.pool.open_handoff(lease)

    @classmethod
    def fresh(cls, pool: PageAllocator, owner: OwnerSlot, num_pages: int) -> Reservation:
        return cls(pool.reserve(owner, num_pages), owner)

    @property
    def is_open(self) -> bool:
        return self.lease.pool.is_handed_off(self.lease, self.handoff)

    def close(self) -> None:
        """Accept no more; pages of a lease that has been released meanwhile are free from here on."""
        self.lease.pool.close_handoff(self.handoff)

    def refused(self, pushed: Sequence[PushedPage]) -> int | None:
        """Return the place of the first page that may not be written, None if all may."""
        is_open, lease = self.is_open, self.lease
        indices, tags, pages = lease.indices, lease.tags, range(self.first_page, len(lease))
        for place, page in enumerate(pushed):
            at, ref = page.logical_page, page.ref
            if not (
                is_open
                and page.handoff == self.handoff
                and at in pages
                and (indices[at], tags[at]) == (ref.index, ref.tag)
                and 0 < page.num_tokens <= PAGE_TOKENS
            ):
                return place
        return None

    def accept(self, pushed: Sequence[PushedPage]) -> PageBatch:
        """Return the writes of these pages, still to be checked: one for each run of pages.

        Pages that follow each other in the sequence are a run, and are written together or not at
        all. Raises `CacheIntegrityError` for a page that is late or not as it was reserved.
        """
        refused = self.refused(pushed)
        if refused is not None:
            raise CacheIntegrityError(self._why(pushed[refused]))
        first_S: list[int] = []
        end_S: list[int] = []
        for page in pushed:
            start = page.logical_page * PAGE_TOKENS
            if not end_S or end_S[-1] != start:
                first_S.append(page.logical_page)
                end_S.append(start)
            end_S[-1] = start + page.num_tokens
        return PageBatch(
            leases_S=(self.lease,) * len(first_S),
            owner_S=(self.owner,) * len(first_S),
            start_S=[page * PAGE_TOKENS for page in first_S],
            read_len_S=end_S,
            first_page_S=first_S,
        )

    def _why(self, page: PushedPage) -> str:
        """Say what is wrong with a page that may not be written."""
        if page.handoff != self.handoff or not self.is_open:
            return f"page {page.logical_page} came after its hand-off ended"
        if not self.first_page <= page.logical_page < len(self.lease):
            return f"page {page.logical_page} is not reserved"
        if page.ref != self.lease.ref(page.logical_page):
            return f"page {page.logical_page} is not the reserved one"
        return f"page {page.logical_page} has {page.num_tokens} tokens"
