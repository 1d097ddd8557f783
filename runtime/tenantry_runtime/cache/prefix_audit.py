"""What is wrong with the prefix trees of a pool, page by page. O(pages)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from .allocator import PageAllocator
from .pages import PageState, owner_of
from .prefix_tree import PAGE_KEY_BYTES, PrefixNode, PrefixTree


def findings_of(trees: Iterable[PrefixTree], pool: PageAllocator) -> list[str]:
    """Return every violation; what concerns pages and leases alone is the allocator's to find."""
    findings: list[str] = []
    times_held: Counter[int] = Counter()
    for tree in trees:
        nodes = list(_nodes(tree))
        times_held.update(node.ref.index for node in nodes)
        findings.extend(f"tree of {tree.tenant!r}: {f}" for f in _tree_findings(tree, nodes))
        findings.extend(
            f"tree of {tree.tenant!r}: page {node.ref.index} is {state.name}"
            for node in nodes
            if (state := pool.state_of(node.ref.index)) is not PageState.SHARED
        )
    findings.extend(
        f"page {index} is held {times} times by the trees"
        for index, times in times_held.items()
        if times > 1
    )
    findings.extend(
        f"page {page.ref.index} is shared but cannot be reached from a tree"
        for page in pool.shared_pages
        if not times_held[page.ref.index]
    )
    return findings


def _nodes(tree: PrefixTree) -> Iterator[PrefixNode]:
    """Yield each node as often as a parent names it, its descendants once."""
    seen: set[PrefixNode] = set()
    pending = list(tree.children.values())
    while pending:
        node = pending.pop()
        yield node
        if node not in seen:
            seen.add(node)
            pending.extend(node.children.values())


def _tree_findings(tree: PrefixTree, nodes: list[PrefixNode]) -> Iterator[str]:
    for node in nodes:
        yield from _page_findings(tree, node)
    num_read = sum(node.num_readers != 0 for node in nodes)
    if (len(nodes), num_read) != (tree.num_pages, tree.num_read):
        yield (
            f"has {len(nodes)} pages, {num_read} of them read, "
            f"but counted {tree.num_pages} and {tree.num_read}"
        )
    num_held = len(_held(nodes))
    if num_held != tree.num_held:
        yield f"has {num_held} pages that cannot be evicted, counted {tree.num_held}"
    if not nodes:
        yield "is empty"
    num_leaves = sum(not node.num_readers and not node.children for node in nodes)
    if num_leaves != len(tree.evictable):
        yield f"has {num_leaves} leaves that nobody reads, counted {len(tree.evictable)}"


def _held(nodes: Iterable[PrefixNode]) -> set[PrefixNode]:
    """Return those that are read, and all above them."""
    held: set[PrefixNode] = set()
    for node in nodes:
        above: PrefixNode | None = node if node.num_readers else None
        while above is not None and above not in held:
            held.add(above)
            above = above.parent
    return held


def _page_findings(tree: PrefixTree, node: PrefixNode) -> Iterator[str]:
    page = f"page {node.ref.index}"
    siblings = tree.children if node.parent is None else node.parent.children
    if siblings.get(node.tokens) is not node:
        yield f"{page} is not a child of its parent"
    if len(node.tokens) != PAGE_KEY_BYTES:
        yield f"{page} has {len(node.tokens)} bytes of tokens, not {PAGE_KEY_BYTES}"
    if node.tree is not tree:
        yield f"{page} belongs to the tree of {node.tree.tenant!r}"
    if owner_of(node.ref.tag) != tree.owner:
        yield f"{page} is owned by {owner_of(node.ref.tag)}, not by {tree.owner}"
    if node.num_readers < 0:
        yield f"{page} has {node.num_readers} readers"
    if (node in tree.evictable) != (not node.num_readers and not node.children):
        yield f"{page} is out of the order of eviction, or wrongly in it"
