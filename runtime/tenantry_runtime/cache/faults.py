"""Faults on purpose: what the check of pages must find, for tests and an operator's drill.

| kind | what goes wrong | where it is injected |
|---|---|---|
| stale entry | a page table names a page that the sequence does not hold | `inject` |
| reallocated | a page is freed and given to another tenant while it is in use | `inject` |
| swapped within | two entries of one sequence change places | `inject` |
| swapped between | two sequences' entries change places | `inject` |
| double free | pages are given back a second time, while somebody holds them | `inject` |
| tag bit flip | one bit of a tag on the device changes | `inject` |
| foreign prefix | a prompt is found in another tenant's tree | `FaultyPrefixes` |
| lost append | a step's rows are not written | `FaultyTracker` |
| wrong push | a hand-off writes another page than it was given | `FaultyTracker` |

It reaches into the allocator as a bug would: nothing of it is part of serving.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum

import torch

from tenantry_kernels.page_check import NO_SLOT
from tenantry_runtime.core import PAGE_TOKENS

from .allocator import PageAllocator
from .checked import CheckedBatch
from .owners import OwnerSlot
from .page_batch import PageBatch
from .pages import Lease, PageIndex, PageState
from .passage import TagArrays
from .prefix import PrefixMatch, PrefixTrees
from .tags import PageTags


class FaultKind(StrEnum):
    """Kinds of the table above."""

    STALE_ENTRY = "stale entry"
    REALLOCATED = "reallocated"
    SWAPPED_WITHIN = "swapped within"
    SWAPPED_BETWEEN = "swapped between"
    DOUBLE_FREE = "double free"
    TAG_BIT_FLIP = "tag bit flip"
    FOREIGN_PREFIX = "foreign prefix"
    LOST_APPEND = "lost append"
    WRONG_PUSH = "wrong push"


@dataclass(frozen=True, slots=True, eq=False)
class Holder:
    """A sequence that holds pages, as a fault sees it."""

    lease: Lease
    num_written: int
    """Tokens in its pages; the next step reads them and writes the next."""

    @property
    def touched(self) -> range:
        """The logical pages that the next step uses at least, of those it has."""
        return range(min(self.num_written // PAGE_TOKENS + 1, len(self.lease)))

    @property
    def filled(self) -> range:
        """Those with tokens in them."""
        return range(min(-(-self.num_written // PAGE_TOKENS), len(self.lease)))


@dataclass(slots=True, eq=False)
class FaultInjector:
    """Damages one pool, its leases and its tags."""

    pool: PageAllocator
    arrays: TagArrays
    rng: random.Random
    usurpers: list[Lease] = field(default_factory=list)
    """Leases of others that hold what was taken; whoever injects releases them in the end."""

    def inject(
        self, kind: FaultKind, victim: Holder, others: Sequence[Holder], usurper: OwnerSlot
    ) -> list[Holder]:
        """Do it if the victim's pages allow it; return those whose next step must not pass.

        `usurper`: another tenant's slot.
        """
        match kind:
            case FaultKind.STALE_ENTRY:
                return self._stale_entry(victim)
            case FaultKind.REALLOCATED:
                return self._reallocated(victim, usurper)
            case FaultKind.SWAPPED_WITHIN:
                return self._swapped_within(victim)
            case FaultKind.SWAPPED_BETWEEN:
                return self._swapped_between(victim, others)
            case FaultKind.DOUBLE_FREE:
                return self._double_free(victim)
            case FaultKind.TAG_BIT_FLIP:
                return self._tag_bit_flip(victim, others)
            case _:
                raise ValueError(f"{kind} is not injected between steps")

    def _stale_entry(self, victim: Holder) -> list[Holder]:
        foreign = sorted(set(range(len(self.pool.tags))) - set(victim.lease.indices))
        if not foreign or not victim.touched:
            return []
        victim.lease.indices[self.rng.choice(victim.touched)] = self.rng.choice(foreign)
        return [victim]

    def _reallocated(self, victim: Holder, usurper: OwnerSlot) -> list[Holder]:
        # a page that is suspected of something would not be given to anybody
        private = [index for index in self._private(victim) if index not in self.pool._suspects]
        if not private:
            return []
        index = self.rng.choice(private)
        self.pool._free_all([index])
        # the last page that was freed is the first that is given
        self.usurpers.append(self.pool.reserve(usurper, 1))
        return [victim]

    def _swapped_within(self, victim: Holder) -> list[Holder]:
        if not victim.filled or len(victim.touched) < 2:
            return []
        first = self.rng.choice(victim.filled)
        second = self.rng.choice([place for place in victim.touched if place != first])
        for words in (victim.lease.indices, victim.lease.tags):
            words[first], words[second] = words[second], words[first]
        return [victim]

    def _swapped_between(self, victim: Holder, others: Sequence[Holder]) -> list[Holder]:
        places = [
            (other, place, there)
            for other in others
            for place in victim.touched
            for there in other.touched
            if victim.lease.indices[place] != other.lease.indices[there]
        ]
        if not places:
            return []
        other, place, there = self.rng.choice(places)
        ours, theirs = victim.lease.indices, other.lease.indices
        ours[place], theirs[there] = theirs[there], ours[place]
        return [victim, other]

    def _double_free(self, victim: Holder) -> list[Holder]:
        private = self._private(victim)
        if not private:
            return []
        lease = victim.lease
        twin = Lease(self.pool, lease.owner, lease.serial)
        for index, tag in zip(lease.indices, lease.tags, strict=True):
            if self.pool.state_of(PageIndex(index)) is PageState.PRIVATE:
                twin.indices.append(index)
                twin.tags.append(tag)
        self.pool._leases.add(twin)
        self.pool.release(twin, after=0)
        return [victim]

    def _tag_bit_flip(self, victim: Holder, others: Sequence[Holder]) -> list[Holder]:
        if not victim.touched:
            return []
        index = victim.lease.indices[self.rng.choice(victim.touched)]
        bit = self.rng.randrange(64)
        self.arrays.tag_P[index] ^= (1 << bit) - (1 << 64 if bit == 63 else 0)
        readers = [other for other in others if index in _touched_pages(other)]
        return [victim, *readers]

    def _private(self, holder: Holder) -> list[PageIndex]:
        return [
            index
            for index in _touched_pages(holder)
            if self.pool.state_of(index) is PageState.PRIVATE
        ]


class FaultyTracker(PageTags):
    """Loses the rows of chosen sequences between the check and the append, or writes them elsewhere."""

    def __init__(
        self,
        num_pages: int,
        *,
        num_appends: int,
        device: str = "cpu",
        has_device_lengths: bool = False,
    ) -> None:
        self._losing: set[int] = set()
        self._diverting: dict[int, PageIndex] = {}
        super().__init__(
            num_pages,
            num_appends=num_appends,
            device=device,
            has_device_lengths=has_device_lengths,
        )

    def lose(self, lease: Lease) -> None:
        """Let none of the lease's next rows be written."""
        self._losing.add(lease.serial)

    def divert(self, lease: Lease, page: PageIndex) -> None:
        """Let the lease's next rows be written to another page."""
        self._diverting[lease.serial] = page

    def check(self, pages: PageBatch) -> CheckedBatch:
        checked = super().check(pages)
        row = 0
        for lease, start, end in zip(pages.leases_S, pages.start_S, pages.read_len_S, strict=True):
            rows = slice(row, row + end - start)
            row += end - start
            if lease.serial in self._losing:
                self._losing.remove(lease.serial)
                checked.write_slot_T[rows] = NO_SLOT
            elif lease.serial in self._diverting:
                page = self._diverting.pop(lease.serial)
                offsets = torch.arange(start, end) % PAGE_TOKENS
                checked.write_slot_T[rows] = page * PAGE_TOKENS + offsets.to(checked.write_slot_T)
        return checked


class FaultyPrefixes(PrefixTrees):
    """Searches the tree of another tenant once, when told to."""

    stray: str | None = None
    """The tenant in whose tree the next lookup goes; None: in the right one."""

    def match(self, tenant: str, owner: OwnerSlot, token_ids: Sequence[int]) -> PrefixMatch:
        tree = self._trees.get(self.stray) if self.stray is not None else None
        if tree is None:
            return super().match(tenant, owner, token_ids)
        self.stray = None
        lease = tree.match(token_ids)
        return PrefixMatch(lease, len(lease) * PAGE_TOKENS)


def _touched_pages(holder: Holder) -> list[PageIndex]:
    return [PageIndex(holder.lease.indices[place]) for place in holder.touched]
