"""The prefix trees of one pool, one for each tenant with completed pages in it.

A lookup starts in the tree of the tenant that asks, so no tokens of one tenant, equal or not, ever
meet another's. A tree is a user of its tenant's owner slot: while pages of a tenant can be found,
nobody else is given the slot.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from typing import NamedTuple

from tenantry_runtime.core import PAGE_TOKENS

from .allocator import PageAllocator
from .owners import OwnerSlot, OwnerSlots
from .pages import Lease
from .prefix_audit import findings_of
from .prefix_journal import PrefixJournal
from .prefix_tree import Insertion, PrefixTree

MAX_TREES = 1 << 12
"""Of one pool: each takes one of a node's 65,534 owner slots."""


class PrefixMatch(NamedTuple):
    """The start of a prompt that need not be computed."""

    lease: Lease
    """Its pages, read until the lease is released; to be extended by the pages of the rest."""
    num_cached: int
    """Tokens in them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeStatistics:
    """The pages of one tree."""

    tenant: str
    is_dropped: bool
    """Found by nobody, and gone with its last reader."""
    num_shared: int
    num_read: int
    """Those with at least one reader."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PrefixStatistics:
    """What the trees of one pool hold, and what came and went since the start."""

    trees: tuple[TreeStatistics, ...]
    num_inserted: int
    num_evicted: int


class PrefixTrees:
    """Finds, takes and evicts completed pages, tenant by tenant."""

    def __init__(self, *, pool: PageAllocator, owners: OwnerSlots) -> None:
        self._pool = pool
        self._owners = owners
        self.journal = PrefixJournal()
        """What has come and gone, for routing."""
        self._trees: dict[str, PrefixTree] = {}
        self._dropped: set[PrefixTree] = set()
        self._num_inserted = 0
        self._num_evicted = 0

    @property
    def trees(self) -> tuple[PrefixTree, ...]:
        """Those that can be searched and those that wait for their last readers."""
        return (*self._trees.values(), *self._dropped)

    @property
    def num_evictable(self) -> int:
        """Pages that are neither read nor stand above one that is: all of them can be evicted."""
        return sum(tree.num_evictable for tree in self.trees)

    def num_held(self, tenant: str) -> int:
        """Return how many pages of the tenant cannot be evicted."""
        tree = self._trees.get(tenant)
        dropped = sum(t.num_held for t in self._dropped if t.tenant == tenant)
        return dropped + (0 if tree is None else tree.num_held)

    def match(self, tenant: str, owner: OwnerSlot, token_ids: Sequence[int]) -> PrefixMatch:
        """Lease the longest known run of pages; the last token is never in it.

        The slot is the request's own. The lease is the caller's to release, whatever its length.
        """
        tree = self._trees.get(tenant)
        if tree is None:
            return PrefixMatch(self._pool.read(owner, ()), 0)
        assert tree.owner == owner, f"owner {owner} in the tree of {tree.owner}"
        lease = tree.match(token_ids)
        return PrefixMatch(lease, len(lease) * PAGE_TOKENS)

    def num_cached(self, tenant: str, token_ids: Sequence[int]) -> int:
        """Return how many tokens a match would find, without reading them."""
        tree = self._trees.get(tenant)
        return 0 if tree is None else tree.num_cached(token_ids)

    def insert(
        self, tenant: str, lease: Lease, token_ids: Sequence[int], *, num_verified: int
    ) -> Insertion:
        """Share full pages of a live request: all that are new to the tree, or none.

        `token_ids[:num_verified]` is what the pages hold and what the check has confirmed. A tenant
        that comes when `MAX_TREES` others have trees takes the place of the oldest that nobody reads.
        """
        tree = self._trees.get(tenant)
        if tree is None:
            if not self._has_room_for_a_tree():
                return Insertion(num_inserted=0, duplicates=())
            tree = self._planted(tenant)
        try:
            insertion = tree.insert(lease, token_ids, num_verified)
        finally:
            if not tree.num_pages:
                self._forget(tree)
        self._num_inserted += insertion.num_inserted
        return insertion

    def keys(self) -> list[int]:
        """Return the key of every page that can be found (`prefix_keys.py`). O(pages)."""
        return [node.key for tree in self._trees.values() for node in tree.nodes()]

    def evict(self, num_pages: int, *, spared: Callable[[str], int] = lambda tenant: 0) -> int:
        """Retire up to `num_pages` pages that nobody reads; return how many were retired.

        Each comes from the tenant that has the most of them beyond the number `spared`, so that a
        flood of one tenant's prompts costs the others nothing, and those last whose plan keeps room
        for them. They are free once the steps that read them are finished.
        """
        kept = [spared(tree.tenant) for tree in self._trees.values()]
        order = [(kept[i] - t.num_evictable, i, t) for i, t in enumerate(self._trees.values())]
        heapify(order)
        num_evicted = 0
        while order and num_evicted < num_pages:
            first, i, tree = heappop(order)
            # as many as leave it the first: then it is another's turn
            num_first = order[0][0] - first + (i < order[0][1]) if order else num_pages
            num_wanted = min(max(num_first, 1), num_pages - num_evicted)
            num_found = tree.evict(num_wanted)
            num_evicted += num_found
            if num_found == num_wanted:
                heappush(order, (first + num_found, i, tree))
        self._num_evicted += num_evicted
        return num_evicted

    def drop(self, tenant: str) -> None:
        """Let none of the tenant's pages be found again; those being read stay until they are not."""
        tree = self._trees.pop(tenant, None)
        if tree is not None:
            self._dropped.add(tree)
            tree.drop()

    def statistics(self) -> PrefixStatistics:
        return PrefixStatistics(
            trees=tuple(
                TreeStatistics(
                    tenant=tree.tenant,
                    is_dropped=tree.is_dropped,
                    num_shared=tree.num_pages,
                    num_read=tree.num_read,
                )
                for tree in self.trees
            ),
            num_inserted=self._num_inserted,
            num_evicted=self._num_evicted,
        )

    def audit(self) -> list[str]:
        """Walk every tree; return what does not add up, beyond what the allocator's audit sees."""
        return findings_of(self.trees, self._pool)

    def _has_room_for_a_tree(self) -> bool:
        if len(self.trees) < MAX_TREES:
            return True
        oldest = next((tree for tree in self._trees.values() if not tree.num_read), None)
        if oldest is None:
            return False
        self._num_evicted += oldest.evict(oldest.num_pages)
        return True

    def _planted(self, tenant: str) -> PrefixTree:
        tree = PrefixTree(
            tenant=tenant,
            owner=self._owners.acquire(tenant),
            pool=self._pool,
            emptied=self._forget,
            journal=self.journal,
        )
        self._trees[tenant] = tree
        return tree

    def _forget(self, tree: PrefixTree) -> None:
        if tree.is_dropped:
            self._dropped.remove(tree)
        else:
            del self._trees[tree.tenant]
        self._owners.release(tree.tenant)
