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

    def refusal(self, page: PushedPage) -> str | None:
        """Return why a page may not be written, None if it may."""
        if page.handoff != self.handoff or not self.is_open:
            return f"page {page.logical_page} came after its hand-off ended"
        if not self.first_page <= page.logical_page < len(self.lease):
            return f"page {page.logical_page} is not reserved"
        if page.ref != self.lease.ref(page.logical_page):
            return f"page {page.logical_page} is not the reserved one"
        if not 0 < page.num_tokens <= PAGE_TOKENS:
            return f"page {page.logical_page} has {page.num_tokens} tokens"
        return None

    def accept(self, pushed: Sequence[PushedPage]) -> PageBatch:
        """Return the writes of these pages, still to be checked.

        Raises `CacheIntegrityError` for a page that is late or not as it was reserved.
        """
        for page in pushed:
            if refusal := self.refusal(page):
                raise CacheIntegrityError(refusal)
        start_S = [page.logical_page * PAGE_TOKENS for page in pushed]
        return PageBatch(
            leases_S=(self.lease,) * len(pushed),
            owner_S=(self.owner,) * len(pushed),
            start_S=start_S,
            read_len_S=[
                start + page.num_tokens for start, page in zip(start_S, pushed, strict=True)
            ],
            first_page_S=[page.logical_page for page in pushed],
        )
