"""Prefix trees: what a request finds of its own tenant's pages, and when they go."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import pytest

from tenantry_runtime.cache import prefix_tree
from tenantry_runtime.cache.allocator import PageAllocator
from tenantry_runtime.cache.owners import OwnerSlot, OwnerSlots
from tenantry_runtime.cache.pages import Lease, PageState, make_tag, owner_of
from tenantry_runtime.cache.prefix import MAX_TREES, PrefixTrees
from tenantry_runtime.cache.prefix_tree import Insertion, PrefixNode, PrefixTree
from tenantry_runtime.core import PAGE_TOKENS


@dataclass
class Request:
    tenant: str
    token_ids: list[int]
    lease: Lease
    num_cached: int


@dataclass
class Desk:
    """A pool with trees, and a node's handling of requests around them."""

    num_pages: int = 32
    owners: OwnerSlots = field(default_factory=OwnerSlots)

    def __post_init__(self) -> None:
        self.pool = PageAllocator(self.num_pages)
        self.trees = PrefixTrees(pool=self.pool, owners=self.owners)

    def start(self, token_ids: list[int], tenant: str = "ada") -> Request:
        owner = self.owners.acquire(tenant)
        lease, num_cached = self.trees.match(tenant, owner, token_ids)
        lease.extend(-(-len(token_ids) // PAGE_TOKENS) - len(lease))
        return Request(tenant, token_ids, lease, num_cached)

    def insert(self, request: Request, num_verified: int | None = None) -> Insertion:
        if num_verified is None:
            num_verified = len(request.token_ids)
        return self.trees.insert(
            request.tenant, request.lease, request.token_ids, num_verified=num_verified
        )

    def end(self, request: Request, after: int = 0) -> None:
        self.pool.release(request.lease, after)
        self.owners.release(request.tenant)

    def serve(self, token_ids: list[int], tenant: str = "ada") -> Request:
        request = self.start(token_ids, tenant)
        self.insert(request)
        self.end(request)
        return request

    def cached(self, token_ids: list[int], tenant: str = "ada") -> int:
        return self.trees.num_cached(tenant, token_ids)

    def audit(self) -> list[str]:
        return [*self.pool.audit(), *self.trees.audit()]

    def tree(self, tenant: str = "ada") -> PrefixTree:
        (tree,) = (tree for tree in self.trees.trees if tree.tenant == tenant)
        return tree


def pages(*values: int, tail: int = 0) -> list[int]:
    """One full page for each value, then `tail` tokens."""
    return [value for value in values for _ in range(PAGE_TOKENS)] + [0] * tail


def test_a_prompt_finds_the_full_pages_that_another_of_its_tenant_computed() -> None:
    desk = Desk()
    first = desk.start(pages(1, 2, tail=5))
    desk.insert(first)
    second = desk.start(pages(1, 2, 3))
    assert second.num_cached == 2 * PAGE_TOKENS
    assert second.lease.refs[:2] == first.lease.refs[:2]
    assert second.lease.ref(2) not in first.lease.refs
    assert desk.audit() == []


@pytest.mark.parametrize(
    ("num_tokens", "num_cached"), [(0, 0), (1, 0), (64, 0), (65, 64), (128, 64), (129, 128)]
)
def test_the_last_token_of_a_prompt_is_always_computed(num_tokens: int, num_cached: int) -> None:
    desk = Desk()
    desk.serve(pages(1, 1, 1, 1))
    prompt = [1] * num_tokens
    assert desk.cached(prompt) == num_cached
    assert desk.start(prompt).num_cached == num_cached


@pytest.mark.parametrize("position", [0, 63, 64, 127])
def test_one_other_token_ends_the_match_before_its_page(position: int) -> None:
    desk = Desk()
    desk.serve(pages(1, 2, 3))
    prompt = pages(1, 2, 3, tail=1)
    prompt[position] = 9
    assert desk.cached(prompt) == position // PAGE_TOKENS * PAGE_TOKENS


def test_a_page_is_found_behind_its_own_prefix_only() -> None:
    desk = Desk()
    desk.serve(pages(1, 2))
    assert desk.cached(pages(2, tail=1)) == 0
    assert desk.cached(pages(3, 2, tail=1)) == 0


def test_equal_hashes_of_other_tokens_are_no_match(monkeypatch: pytest.MonkeyPatch) -> None:
    class Colliding(bytes):
        def __hash__(self) -> int:
            return 1

    honest = prefix_tree.page_keys

    def colliding_keys(token_ids: Sequence[int], num_pages: int) -> Iterator[bytes]:
        return map(Colliding, honest(token_ids, num_pages))

    monkeypatch.setattr(prefix_tree, "page_keys", colliding_keys)
    desk = Desk()
    first, second = desk.serve(pages(1)), desk.serve(pages(2))
    assert (first.num_cached, second.num_cached) == (0, 0)
    assert desk.cached(pages(1, tail=1)) == desk.cached(pages(2, tail=1)) == PAGE_TOKENS
    assert desk.cached(pages(3, tail=1)) == 0


def test_only_full_pages_of_verified_tokens_are_inserted() -> None:
    desk = Desk()
    request = desk.start(pages(1, 2, 3, tail=9))
    assert desk.insert(request, num_verified=2 * PAGE_TOKENS - 1).num_inserted == 1
    assert desk.cached(pages(1, 2, 3, 4)) == PAGE_TOKENS
    assert desk.insert(request).num_inserted == 2
    assert desk.cached(pages(1, 2, 3, 4)) == 3 * PAGE_TOKENS
    assert desk.insert(request) == Insertion(num_inserted=0, duplicates=())
    assert desk.audit() == []


def test_no_page_of_a_request_that_has_ended_is_inserted() -> None:
    desk = Desk()
    request = desk.start(pages(1, 2))
    desk.end(request)
    with pytest.raises(AssertionError):
        desk.insert(request)
    assert desk.trees.trees == ()
    assert desk.owners.num_tenants == 0
    assert desk.audit() == []


def test_who_comes_second_with_the_same_pages_is_told_and_keeps_his_own() -> None:
    desk = Desk()
    first, second = desk.start(pages(1, 2)), desk.start(pages(1, 2, 3))
    desk.insert(first)
    assert desk.insert(second) == Insertion(num_inserted=1, duplicates=(0, 1))
    held = [desk.pool.state_of(ref.index) for ref in second.lease.refs]
    assert held == [PageState.PRIVATE, PageState.PRIVATE, PageState.SHARED]
    third = desk.start(pages(1, 2, 3, 4))
    assert third.lease.refs[:3] == [*first.lease.refs, second.lease.ref(2)]
    desk.end(second)
    assert desk.pool.statistics().num_free == desk.num_pages - 4
    assert desk.audit() == []


def test_a_run_is_inserted_whole_or_not_at_all() -> None:
    desk = Desk()
    desk.serve(pages(1))
    request = desk.start(pages(1, 2, 3))
    request.lease.tags[2] += 1
    with pytest.raises(AssertionError):
        desk.insert(request)
    request.lease.tags[2] -= 1
    assert desk.cached(pages(1, 2, 3, 4)) == PAGE_TOKENS
    assert desk.audit() == []


def test_tenants_with_equal_prompts_never_share_a_page() -> None:
    desk = Desk()
    tenants = ("ada", "bob", "eve")
    first = [desk.start(pages(1, 2), tenant) for tenant in tenants]
    for request in first:
        assert desk.insert(request) == Insertion(num_inserted=2, duplicates=())
    second = [desk.start(pages(1, 2, 3), tenant) for tenant in tenants]
    assert [request.num_cached for request in second] == [2 * PAGE_TOKENS] * 3
    for before, after in zip(first, second, strict=True):
        assert after.lease.refs[:2] == before.lease.refs
        assert {owner_of(ref.tag) for ref in after.lease.refs} == {before.lease.owner}
    assert len({ref.index for request in second for ref in request.lease.refs}) == 9
    assert desk.audit() == []


def test_a_lease_of_another_owner_gets_neither_in_nor_out() -> None:
    desk = Desk()
    desk.serve(pages(1))
    foreign = desk.start(pages(1), "eve")
    with pytest.raises(AssertionError, match="in the tree of"):
        desk.trees.insert("ada", foreign.lease, foreign.token_ids, num_verified=PAGE_TOKENS)
    with pytest.raises(AssertionError, match="in the tree of"):
        desk.trees.match("ada", foreign.lease.owner, pages(1, 2))
    with pytest.raises(AssertionError, match="in the tree of"):
        desk.trees.insert("new", foreign.lease, foreign.token_ids, num_verified=PAGE_TOKENS)
    assert [tree.tenant for tree in desk.trees.trees] == ["ada"]
    assert desk.audit() == []


def test_a_lookup_visits_the_same_pages_whatever_other_tenants_hold() -> None:
    visits: list[bytes] = []

    class Counted(dict[bytes, PrefixNode]):
        def get(self, key: bytes, default: object = None) -> PrefixNode | None:  # type: ignore[override] # the tree gives no default
            visits.append(key)
            return super().get(key)

    def num_visits(num_others: int, prompt: list[int]) -> int:
        desk = Desk(num_pages=512)
        desk.serve(pages(1, 2, 3, 4))
        for other in range(num_others):
            for last in range(5):
                desk.serve(pages(1, 2, 3, last), f"other {other}")
        for tree in desk.trees.trees:
            tree.children = Counted(tree.children)
            pending = list(tree.children.values())
            while pending:
                node = pending.pop()
                pending.extend(node.children.values())
                node.children = Counted(node.children)
        visits.clear()
        desk.start(prompt)
        return len(visits)

    for prompt, expected in ((pages(1, 2, 3, 4, 5, 6), 5), (pages(1, 2, 9, 4, 5), 3)):
        assert num_visits(0, prompt) == num_visits(50, prompt) == expected


def test_a_page_that_is_read_is_not_evicted() -> None:
    desk = Desk()
    desk.serve(pages(1, 2))
    reader = desk.start(pages(1, 2, 3))
    assert desk.trees.evict(9) == 0
    desk.end(reader)
    assert desk.trees.evict(9) == 2
    assert desk.audit() == []


def test_the_leaf_whose_last_reader_left_first_is_evicted_first() -> None:
    desk = Desk()
    for last in (2, 3, 4):
        desk.serve(pages(1, last))
    desk.end(desk.start(pages(1, 2, tail=1)))
    for expected in (3, 4, 2):
        assert desk.cached(pages(1, expected, tail=1)) == 2 * PAGE_TOKENS
        assert desk.trees.evict(1) == 1
        assert desk.cached(pages(1, expected, tail=1)) == PAGE_TOKENS
    assert desk.trees.evict(1) == 1
    assert desk.cached(pages(1, tail=1)) == 0


@pytest.mark.parametrize("num_pages", range(1, 14))
def test_many_pages_are_evicted_like_one_after_the_other(num_pages: int) -> None:
    """Three tenants with 6, 5 and 2 pages, two of them as good as equal on the way."""

    def found(desk: Desk) -> list[int]:
        return sorted(desk.trees.keys())

    def filled() -> Desk:
        desk = Desk()
        for tenant, count in (("ada", 6), ("bob", 5), ("eve", 2)):
            for value in range(count):
                desk.serve(pages(value), tenant)
        return desk

    at_once, in_turn = filled(), filled()
    assert at_once.trees.evict(num_pages) == num_pages
    for _ in range(num_pages):
        assert in_turn.trees.evict(1) == 1
    assert found(at_once) == found(in_turn)
    assert at_once.pool.num_free == in_turn.pool.num_free == 32 - 13 + num_pages
    assert at_once.audit() == []


def test_a_look_without_reading_does_not_change_what_is_evicted() -> None:
    desk = Desk()
    desk.serve(pages(1))
    desk.serve(pages(2))
    desk.cached(pages(1, tail=1))
    desk.trees.evict(1)
    assert desk.cached(pages(1, tail=1)) == 0


def test_a_page_outlives_its_children_though_its_readers_left_before_theirs() -> None:
    desk = Desk()
    first, second = desk.start(pages(1)), desk.start(pages(1, 2))
    desk.insert(first)
    desk.insert(second)
    desk.end(first)
    assert desk.trees.evict(9) == 0
    desk.end(second)
    desk.trees.evict(1)
    assert desk.cached(pages(1, 2, tail=1)) == PAGE_TOKENS
    desk.trees.evict(1)
    assert desk.cached(pages(1, 2, tail=1)) == 0
    assert desk.audit() == []


def test_an_evicted_page_quiesces_until_the_steps_that_read_it_are_finished() -> None:
    desk = Desk(num_pages=1)
    request = desk.start(pages(1))
    desk.insert(request)
    desk.end(request, after=4)
    assert desk.trees.evict(1) == 1
    assert desk.pool.statistics().num_quiescing == 1
    desk.pool.completed(3)
    assert desk.pool.num_free == 0
    desk.pool.completed(4)
    assert desk.pool.num_free == 1


def test_a_flood_of_one_tenants_prompts_evicts_no_page_of_another() -> None:
    desk = Desk()
    desk.serve(pages(1, 2))
    for value in range(10):
        desk.serve(pages(value), "eve")
    assert desk.trees.evict(8) == 8
    assert desk.cached(pages(1, 2, tail=1)) == 2 * PAGE_TOKENS
    assert desk.tree("eve").num_pages == 2


def test_a_tree_keeps_its_tenants_slot_until_its_last_page_is_evicted() -> None:
    desk = Desk()
    desk.serve(pages(1), "ada")
    assert desk.start(pages(1, 2), "bob").num_cached == 0
    assert desk.owners.num_tenants == 2
    desk.trees.evict(1)
    assert desk.owners.num_tenants == 1
    newcomer = desk.start(pages(1, 2), "eve")
    assert newcomer.num_cached == 0
    assert desk.audit() == []


def test_a_dropped_tenants_pages_are_found_by_nobody_and_go_with_their_last_reader() -> None:
    desk = Desk(num_pages=8)
    desk.serve(pages(1, 2))
    reader = desk.start(pages(1, 3))
    desk.serve(pages(1), "bob")
    desk.trees.drop("ada")
    assert desk.start(pages(1, 2), "ada").num_cached == 0
    assert (desk.tree().num_pages, desk.cached(pages(1, tail=1), "bob")) == (1, PAGE_TOKENS)
    assert desk.audit() == []
    desk.end(reader, after=2)
    assert desk.pool.statistics().num_quiescing == 2
    assert [tree.tenant for tree in desk.trees.trees] == ["bob"]
    assert desk.audit() == []
    desk.trees.drop("nobody")


def test_pages_that_were_read_from_a_dropped_tree_do_not_come_back() -> None:
    desk = Desk()
    desk.serve(pages(1))
    request = desk.start(pages(1, 2))
    desk.trees.drop("ada")
    assert desk.insert(request) == Insertion(num_inserted=0, duplicates=())
    assert desk.cached(pages(1, 2, 3)) == 0
    desk.end(request)
    assert desk.trees.trees == ()
    assert desk.owners.num_tenants == 0
    assert desk.audit() == []


def test_statistics_say_who_has_how_many_pages_shared_and_read() -> None:
    desk = Desk()
    desk.serve(pages(1, 2, 3))
    desk.serve(pages(1), "bob")
    desk.start(pages(1, 2, 9))
    statistics = desk.trees.statistics()
    assert [(t.tenant, t.num_shared, t.num_read, t.is_dropped) for t in statistics.trees] == [
        ("ada", 3, 2, False),
        ("bob", 1, 0, False),
    ]
    assert (statistics.num_inserted, statistics.num_evicted) == (4, 0)


def a_desk_with_a_branch() -> tuple[Desk, PrefixNode, PrefixNode]:
    desk = Desk()
    desk.serve(pages(1, 2))
    (parent,) = desk.tree().children.values()
    (child,) = parent.children.values()
    assert desk.audit() == []
    return desk, parent, child


def test_an_audit_sees_a_page_of_a_tree_that_is_also_free() -> None:
    desk, _, child = a_desk_with_a_branch()
    desk.pool.retire(child)
    assert f"tree of 'ada': page {child.ref.index} is FREE" in desk.audit()


def test_an_audit_sees_negative_readers() -> None:
    desk, _, child = a_desk_with_a_branch()
    child.num_readers = -1
    assert f"tree of 'ada': page {child.ref.index} has -1 readers" in desk.audit()


def test_an_audit_sees_a_child_whose_parent_is_gone() -> None:
    desk, parent, child = a_desk_with_a_branch()
    parent.children.clear()
    assert f"page {child.ref.index} is shared but cannot be reached from a tree" in desk.audit()


def test_an_audit_sees_a_child_of_another_parent() -> None:
    desk, _, child = a_desk_with_a_branch()
    child.parent = None
    assert f"tree of 'ada': page {child.ref.index} is not a child of its parent" in desk.audit()


def test_an_audit_sees_tokens_of_the_wrong_length() -> None:
    desk, parent, child = a_desk_with_a_branch()
    child.tokens = child.tokens[:-4]
    parent.children = {child.tokens: child}
    assert desk.audit() == [
        f"tree of 'ada': page {child.ref.index} has 252 bytes of tokens, not 256"
    ]


def test_an_audit_sees_a_page_that_is_held_twice() -> None:
    desk, parent, child = a_desk_with_a_branch()
    twin = PrefixNode(desk.tree(), parent, child.tokens[::-1], child.ref)
    parent.children[twin.tokens] = twin
    assert f"page {child.ref.index} is held 2 times by the trees" in desk.audit()


def test_an_audit_sees_a_page_of_another_tenant() -> None:
    desk, _, child = a_desk_with_a_branch()
    desk.tree().owner = OwnerSlot(5)
    assert f"tree of 'ada': page {child.ref.index} is owned by 1, not by 5" in desk.audit()
    assert owner_of(make_tag(OwnerSlot(5), 1)) == 5


def test_an_audit_sees_a_leaf_that_would_never_be_evicted() -> None:
    desk, _, child = a_desk_with_a_branch()
    desk.tree().evictable.discard(child)
    assert desk.audit() == [
        f"tree of 'ada': page {child.ref.index} is out of the order of eviction, or wrongly in it",
        "tree of 'ada': has 1 leaves that nobody reads, counted 0",
    ]


def test_an_audit_sees_a_miscount_of_what_cannot_be_evicted() -> None:
    desk, *_ = a_desk_with_a_branch()
    num_held = desk.tree().num_held
    desk.tree().num_held += 1
    assert desk.audit() == [
        f"tree of 'ada': has {num_held} pages that cannot be evicted, counted {num_held + 1}"
    ]


def test_an_audit_sees_a_miscount() -> None:
    desk, _, _ = a_desk_with_a_branch()
    desk.tree().num_pages = 3
    assert desk.audit() == [
        "tree of 'ada': has 2 pages, 0 of them read, but counted 3 and 0",
    ]


def test_trees_leave_owner_slots_for_running_requests() -> None:
    desk = Desk(num_pages=2 * MAX_TREES)
    desk.serve(pages(1), "read")
    desk.start(pages(1, 2), "read")
    for n in range(MAX_TREES):
        desk.serve(pages(1), f"tenant {n}")

    assert len(desk.trees.trees) == MAX_TREES
    assert desk.cached(pages(1, 2), "read") == PAGE_TOKENS
    assert desk.cached(pages(1, 2), "tenant 0") == 0, "the oldest that nobody reads gave way"
    assert desk.cached(pages(1, 2), "tenant 1") == PAGE_TOKENS
    assert desk.cached(pages(1, 2), f"tenant {MAX_TREES - 1}") == PAGE_TOKENS
    assert desk.audit() == []
