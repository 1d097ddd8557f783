"""One tenant's completed pages in one pool, found by the tokens in them and before them.

| a page of the tree | is evicted |
|---|---|
| has readers | never |
| has none, but children | after its children |
| has neither: a leaf that nobody reads | in the order in which their last readers left |

No torch, no device. A lookup visits the pages that it finds and one more.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from tenantry_runtime.core import PAGE_TOKENS

from .allocator import PageAllocator
from .owners import OwnerSlot
from .pages import Lease, PageRef, PageState, SharedPage, StepNumber
from .prefix_journal import PrefixJournal
from .prefix_keys import next_key, page_bytes, root_key
from .prefix_order import RecencyOrder

PAGE_KEY_BYTES = PAGE_TOKENS * array("i").itemsize


@dataclass(frozen=True, slots=True, kw_only=True)
class Insertion:
    """What became of the pages that were offered to a tree."""

    num_inserted: int
    """Pages of the lease that are shared from now on."""
    duplicates: tuple[int, ...]
    """Positions at which the tree holds another page of the same tokens: the lease's own stay private."""


class PrefixNode(SharedPage):
    """A page in its tree, below the page of the tokens before it."""

    __slots__ = ("children", "key", "last_use", "num_held_below", "parent", "tokens", "tree")

    def __init__(
        self, tree: PrefixTree, parent: PrefixNode | None, tokens: bytes, ref: PageRef
    ) -> None:
        """`tokens` as `page_keys` has them; `ref` as the lease acquired it that wrote the page."""
        super().__init__(ref)
        self.tree = tree
        self.parent = parent
        """None for the first page of a prompt."""
        self.tokens = tokens
        before = tree.root_key if parent is None else parent.key
        self.key: int = next_key(before, page_bytes(tokens))
        """What routing knows the page by."""
        self.children: dict[bytes, PrefixNode] = {}
        self.num_held_below = 0
        """Children that cannot be evicted."""
        self.last_use = 0
        """When its last reader left, by the tree's count of such events."""

    def enter(self) -> None:
        super().enter()
        self.tree.page_entered(self)

    def leave(self, after: StepNumber) -> None:
        super().leave(after)
        self.tree.page_left(self)


class PrefixTree:
    """Pages of one owner. Whoever reads them holds a lease; the tree itself holds none."""

    def __init__(
        self,
        *,
        tenant: str,
        owner: OwnerSlot,
        pool: PageAllocator,
        emptied: Callable[[PrefixTree], None],
        journal: PrefixJournal | None = None,
    ) -> None:
        """`emptied` is called whenever the last page has left the tree."""
        self.root_key = root_key(tenant)
        self.tenant = tenant
        self.owner = owner
        self.children: dict[bytes, PrefixNode] = {}
        """The first pages of prompts."""
        self.evictable: RecencyOrder[PrefixNode] = RecencyOrder()
        self.num_pages = 0
        self.num_read = 0
        """Pages with at least one reader."""
        self.num_held = 0
        """Pages that cannot be evicted: they are read, or stand above one that is.

        Who reads a page reads those above it, but for one who has computed the same beside another.
        """
        self.is_dropped = False
        self._pool = pool
        self._emptied = emptied
        self._journal = PrefixJournal() if journal is None else journal
        self._num_uses = 0

    @property
    def num_evictable(self) -> int:
        return self.num_pages - self.num_held

    def match(self, token_ids: Sequence[int]) -> Lease:
        """Return a lease of the longest known run of pages that leaves a token to compute."""
        return self._pool.read(self.owner, self._reusable(token_ids))

    def num_cached(self, token_ids: Sequence[int]) -> int:
        """Return how many tokens `match` would find; nothing is read, no recency changes."""
        return len(self._reusable(token_ids)) * PAGE_TOKENS

    def insert(self, lease: Lease, token_ids: Sequence[int], num_verified: int) -> Insertion:
        """Share the lease's full pages among the first `num_verified` tokens: all that are new, or none.

        Pages that the lease read from a tree that has been dropped, and all after them, stay out.
        """
        assert not self.is_dropped, "the tenant has been dropped"
        assert lease.owner == self.owner, f"owner {lease.owner} in the tree of {self.owner}"
        num_pages = num_verified // PAGE_TOKENS
        assert num_verified <= len(token_ids) and num_pages <= len(lease)
        keys = list(page_keys(token_ids, num_pages))
        known = self._path(keys)
        fresh = self._branch(known, keys, lease)
        self._pool.share(lease, len(known), fresh)
        for node in fresh:
            self._siblings(node)[node.tokens] = node
            self._journal.add(node.key)
        self.num_pages += len(fresh)
        if fresh and known:
            self.evictable.discard(known[-1])
        return Insertion(
            num_inserted=len(fresh),
            duplicates=tuple(
                i for i, node in enumerate(known) if node.ref.index != lease.indices[i]
            ),
        )

    def nodes(self) -> Iterator[PrefixNode]:
        """Yield every page, parents before their children."""
        pending = list(self.children.values())
        while pending:
            node = pending.pop()
            yield node
            pending.extend(node.children.values())

    def evict(self, num_pages: int) -> int:
        """Retire up to `num_pages` leaves that nobody reads; return how many there were."""
        evicted: list[PrefixNode] = []
        while len(evicted) < num_pages and self.evictable:
            node = self.evictable.pop()
            self._remove(node)
            evicted.append(node)
        self._pool.retire(*evicted)
        if evicted and not self.num_pages:
            self._emptied(self)
        return len(evicted)

    def drop(self) -> None:
        """Take no more insertions; retire what nobody reads now, and the rest as readers leave."""
        for node in self.nodes():
            self._journal.remove(node.key)
        self.is_dropped = True
        self.evict(self.num_pages)

    def page_entered(self, node: PrefixNode) -> None:
        """Learn that a page got a reader."""
        if node.num_readers == 1:
            self.num_read += 1
            self.evictable.discard(node)
            if not node.num_held_below:
                self._hold(node)

    def page_left(self, node: PrefixNode) -> None:
        """Learn that a page lost a reader."""
        if node.num_readers:
            return
        self.num_read -= 1
        if not node.num_held_below:
            self._let_go(node)
        self._num_uses += 1
        node.last_use = self._num_uses
        self._offer(node)
        if self.is_dropped:
            self.evict(self.num_pages)

    def _hold(self, node: PrefixNode) -> None:
        """Count a page that is read from now on, and those above it that were not held before."""
        self.num_held += 1
        while (parent := node.parent) is not None:
            parent.num_held_below += 1
            if parent.num_held_below > 1 or parent.num_readers:
                return
            self.num_held += 1
            node = parent

    def _let_go(self, node: PrefixNode) -> None:
        """Undo `_hold`: of those above a page, nothing else may hold some either."""
        self.num_held -= 1
        while (parent := node.parent) is not None:
            parent.num_held_below -= 1
            if parent.num_held_below or parent.num_readers:
                return
            self.num_held -= 1
            node = parent

    def _reusable(self, token_ids: Sequence[int]) -> list[PrefixNode]:
        # the last token is always computed: what follows it is what the request asks for
        return self._path(page_keys(token_ids, (len(token_ids) - 1) // PAGE_TOKENS))

    def _path(self, keys: Iterable[bytes]) -> list[PrefixNode]:
        path: list[PrefixNode] = []
        children = self.children
        for key in keys:
            # the key is the tokens themselves, so equal hashes alone are no match
            node = children.get(key)
            if node is None:
                break
            path.append(node)
            children = node.children
        return path

    def _branch(
        self, known: Sequence[PrefixNode], keys: Sequence[bytes], lease: Lease
    ) -> list[PrefixNode]:
        branch: list[PrefixNode] = []
        parent = known[-1] if known else None
        for position in range(len(known), len(keys)):
            ref = lease.ref(position)
            if self._pool.state_of(ref.index) is PageState.SHARED:
                break
            parent = PrefixNode(self, parent, keys[position], ref)
            branch.append(parent)
        return branch

    def _siblings(self, node: PrefixNode) -> dict[bytes, PrefixNode]:
        return self.children if node.parent is None else node.parent.children

    def _offer(self, node: PrefixNode) -> None:
        if not node.num_readers and not node.children:
            self.evictable.add(node, node.last_use)

    def _remove(self, node: PrefixNode) -> None:
        del self._siblings(node)[node.tokens]
        if not self.is_dropped:
            self._journal.remove(node.key)
        self.num_pages -= 1
        if node.parent is not None:
            self._offer(node.parent)


def page_keys(token_ids: Sequence[int], num_pages: int) -> Iterator[bytes]:
    """Yield the tokens of each page as one comparable value."""
    for start in range(0, num_pages * PAGE_TOKENS, PAGE_TOKENS):
        # bytes: a fifth of a tuple's memory, and a hash that no tenant can foresee
        yield array("i", token_ids[start : start + PAGE_TOKENS]).tobytes()
