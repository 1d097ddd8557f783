"""Prefix trees of many tenants beside a model: a table from whole token prefixes to pages."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import chain

from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from tenantry_runtime.cache.allocator import PageAllocator
from tenantry_runtime.cache.owners import OwnerSlots
from tenantry_runtime.cache.pages import Lease, PageIndex, PageRef, PageState, owner_of
from tenantry_runtime.cache.prefix import PrefixTrees
from tenantry_runtime.cache.prefix_order import RecencyOrder
from tenantry_runtime.core import PAGE_TOKENS

NUM_PAGES = 24
TENANTS = st.sampled_from(["ada", "bob", "eve", "kim"])
# few prompts that begin alike, some of them the whole of others: most requests find something
PROMPTS = st.builds(
    lambda values, tail: (
        tuple(chain.from_iterable([v] * PAGE_TOKENS for v in values)) + (7,) * tail
    ),
    st.sampled_from([(0,), (0, 0), (0, 1), (0, 0, 0), (0, 0, 1), (0, 1, 0), (1, 0)]),
    st.sampled_from([0, 1]),
)
SHARES = st.sampled_from([1.0, 0.9, 0.6, 0.3])


@dataclass(eq=False)
class Page:
    """What the model knows of a page in a tree."""

    tenant: str
    prefix: tuple[int, ...]
    ref: PageRef
    readers: set[Request] = field(default_factory=set)
    last_left: int = 0
    is_dropped: bool = False


@dataclass(eq=False)
class Request:
    tenant: str
    token_ids: tuple[int, ...]
    lease: Lease


class PrefixMachine(RuleBasedStateMachine):
    """Requests start, run in steps, are completed or aborted; pages are evicted, tenants dropped."""

    requests: Bundle[Request] = Bundle("requests")

    def __init__(self) -> None:
        super().__init__()
        self.owners = OwnerSlots()
        self.pool = PageAllocator(NUM_PAGES)
        self.trees = PrefixTrees(pool=self.pool, owners=self.owners)
        self.live: list[Request] = []
        self.pages: list[Page] = []
        self.steps: dict[int, set[int]] = {}
        self.num_launched = 0
        self.num_left = 0

    def find(self, tenant: str, prefix: tuple[int, ...]) -> Page | None:
        found = [p for p in self.pages if (p.tenant, p.prefix) == (tenant, prefix)]
        current = [p for p in found if not p.is_dropped]
        assert len(current) <= 1
        return current[0] if current else None

    def known(self, tenant: str, token_ids: tuple[int, ...], max_tokens: int) -> list[Page]:
        known: list[Page] = []
        for end in range(PAGE_TOKENS, max_tokens + 1, PAGE_TOKENS):
            page = self.find(tenant, token_ids[:end])
            if page is None:
                break
            known.append(page)
        return known

    def has_children(self, page: Page) -> bool:
        # dropped pages and their successors of the same tokens are of different trees
        return any(
            p.tenant == page.tenant
            and p.is_dropped == page.is_dropped
            and p.prefix[:-PAGE_TOKENS] == page.prefix
            for p in self.pages
        )

    def leaves(self, pages: list[Page]) -> list[Page]:
        return [p for p in pages if not p.readers and not self.has_children(p)]

    def is_held(self, page: Page) -> bool:
        """Whether it, or one below it, is read."""
        return any(
            p.readers
            and (p.tenant, p.is_dropped) == (page.tenant, page.is_dropped)
            and p.prefix[: len(page.prefix)] == page.prefix
            for p in self.pages
        )

    @rule(target=requests, tenant=TENANTS, token_ids=PROMPTS)
    def start(self, tenant: str, token_ids: tuple[int, ...]) -> Request:
        owner = self.owners.acquire(tenant)
        known = self.known(tenant, token_ids, len(token_ids) - 1)
        assert self.trees.num_cached(tenant, token_ids) == len(known) * PAGE_TOKENS
        lease, num_cached = self.trees.match(tenant, owner, token_ids)
        assert num_cached == len(known) * PAGE_TOKENS
        assert lease.refs == [page.ref for page in known]
        missing = -(-len(token_ids) // PAGE_TOKENS) - len(known)
        lease.extend(min(missing, self.pool.num_free))
        fresh = {ref.index for ref in lease.refs[len(known) :]}
        assert fresh.isdisjoint(chain.from_iterable(self.steps.values()))
        request = Request(tenant, token_ids, lease)
        for page in known:
            page.readers.add(request)
        self.live.append(request)
        return request

    @rule(request=requests, share=SHARES)
    def insert(self, request: Request, share: float) -> None:
        written = min(len(request.token_ids), len(request.lease) * PAGE_TOKENS)
        num_verified = round(share * written)
        refs = request.lease.refs
        known = self.known(request.tenant, request.token_ids, num_verified)
        num_inserted = 0
        for position in range(len(known), num_verified // PAGE_TOKENS):
            # it reads this one from a tree that was dropped
            if any(page.ref == refs[position] for page in self.pages):
                break
            prefix = request.token_ids[: (position + 1) * PAGE_TOKENS]
            self.pages.append(Page(request.tenant, prefix, refs[position], {request}))
            num_inserted += 1
        insertion = self.trees.insert(
            request.tenant, request.lease, request.token_ids, num_verified=num_verified
        )
        assert insertion.num_inserted == num_inserted
        own = set(refs)
        assert insertion.duplicates == tuple(
            i for i, page in enumerate(known) if page.ref not in own
        )
        assert request.lease.refs == refs

    @rule(request=consumes(requests))
    def end(self, request: Request) -> None:
        self.live.remove(request)
        self.pool.release(request.lease, after=self.num_launched)
        self.owners.release(request.tenant)
        read = [page for page in self.pages if request in page.readers]
        for page in sorted(read, key=lambda page: -len(page.prefix)):
            page.readers.remove(request)
            if not page.readers:
                self.num_left += 1
                page.last_left = self.num_left
        self.forget_dropped()

    @rule(served=st.lists(st.tuples(TENANTS, PROMPTS, SHARES), min_size=1, max_size=6))
    def serve(self, served: list[tuple[str, tuple[int, ...], float]]) -> None:
        for tenant, token_ids, share in served:
            request = self.start(tenant, token_ids)
            self.launch_a_step()
            self.insert(request, share)
            self.end(request)

    @rule(num_pages=st.integers(1, 3))
    def evict(self, num_pages: int) -> None:
        for _ in range(num_pages):
            expected = self.victims()
            before = {p.ref for p in self.pages if not p.is_dropped}
            assert self.trees.evict(1) == bool(expected)
            gone = before - {page.ref for page in self.pool.shared_pages}
            assert len(gone) == bool(expected)
            assert gone <= {page.ref for page in expected}
            self.pages = [page for page in self.pages if page.ref not in gone]

    def victims(self) -> list[Page]:
        """Of the tenants with most evictable pages: each one's unread leaf that was left first."""
        current = [page for page in self.pages if not page.is_dropped]
        leaves = self.leaves(current)
        tenants = {page.tenant for page in leaves}
        evictable = [page.tenant for page in current if not self.is_held(page)]
        return [
            min((p for p in leaves if p.tenant == t), key=lambda page: page.last_left)
            for t in tenants
            if evictable.count(t) == max(map(evictable.count, tenants))
        ]

    @rule(tenant=TENANTS)
    def drop(self, tenant: str) -> None:
        # the model's pages of one tenant that were dropped at two times would seem one tree
        if any(page.tenant == tenant and page.is_dropped for page in self.pages):
            return
        self.trees.drop(tenant)
        for page in self.pages:
            page.is_dropped |= page.tenant == tenant
        self.forget_dropped()

    def forget_dropped(self) -> None:
        while gone := self.leaves([page for page in self.pages if page.is_dropped]):
            self.pages = [page for page in self.pages if page not in gone]

    @rule()
    def launch_a_step(self) -> None:
        self.num_launched += 1
        self.steps[self.num_launched] = {i for r in self.live for i in r.lease.indices}

    @rule(num_steps=st.integers(1, 3))
    def finish_steps(self, num_steps: int) -> None:
        for step in sorted(self.steps)[:num_steps]:
            del self.steps[step]
            self.pool.completed(step)

    @invariant()
    def an_audit_finds_nothing(self) -> None:
        assert self.pool.audit() == []
        assert self.trees.audit() == []

    @invariant()
    def the_trees_hold_what_the_table_holds(self) -> None:
        shared = {page.ref: page.num_readers for page in self.pool.shared_pages}
        assert shared == {page.ref: len(page.readers) for page in self.pages}
        held = {
            (tree.tenant, tree.is_dropped): (tree.num_shared, tree.num_read)
            for tree in self.trees.statistics().trees
        }
        assert held == {
            key: (len(pages), sum(bool(page.readers) for page in pages))
            for key in {(page.tenant, page.is_dropped) for page in self.pages}
            if (pages := [p for p in self.pages if (p.tenant, p.is_dropped) == key])
        }

    @invariant()
    def what_cannot_be_evicted_is_counted(self) -> None:
        held = [page.tenant for page in self.pages if self.is_held(page)]
        assert self.trees.num_evictable == len(self.pages) - len(held)
        for tenant in ("ada", "bob", "eve", "kim"):
            assert self.trees.num_held(tenant) == held.count(tenant)

    @invariant()
    def a_request_holds_pages_of_its_own_tenant_only(self) -> None:
        owners: dict[int, set[str]] = {}
        for request in self.live:
            for ref in request.lease.refs:
                assert owner_of(ref.tag) == request.lease.owner
                owners.setdefault(ref.index, set()).add(request.tenant)
        assert all(len(tenants) == 1 for tenants in owners.values())

    @invariant()
    def a_page_that_a_step_may_read_is_not_free(self) -> None:
        for index in chain.from_iterable(self.steps.values()):
            assert self.pool.state_of(PageIndex(index)) is not PageState.FREE

    @invariant()
    def the_slots_in_use_are_those_of_tenants_with_pages_or_requests(self) -> None:
        tenants = {page.tenant for page in self.pages} | {r.tenant for r in self.live}
        assert self.owners.num_tenants == len(tenants)

    def teardown(self) -> None:
        for request in list(self.live):
            self.end(request)
        self.trees.evict(NUM_PAGES)
        self.pool.completed(self.num_launched)
        assert self.pool.num_free == NUM_PAGES
        assert self.owners.num_tenants == 0
        assert self.trees.trees == ()


TestPrefixTrees = PrefixMachine.TestCase


class OrderMachine(RuleBasedStateMachine):
    """Drives an order of recency beside a plain table of times."""

    def __init__(self) -> None:
        super().__init__()
        self.order: RecencyOrder[str] = RecencyOrder()
        self.used: dict[str, int] = {}
        self.now = 0

    @rule(member=st.sampled_from("abcdef"))
    def use(self, member: str) -> None:
        self.now += 1
        self.order.discard(member)
        self.order.add(member, self.now)
        self.used[member] = self.now

    @rule(member=st.sampled_from("abcdef"))
    def come_back_as_if_never_gone(self, member: str) -> None:
        if member in self.used:
            self.order.discard(member)
            self.order.add(member, self.used[member])

    @rule(member=st.sampled_from("abcdef"))
    def discard(self, member: str) -> None:
        self.order.discard(member)
        self.used.pop(member, None)

    @rule()
    def pop(self) -> None:
        if self.used:
            oldest = min(self.used, key=self.used.__getitem__)
            assert self.order.pop() == oldest
            del self.used[oldest]

    @invariant()
    def the_members_are_those_that_came_and_stayed(self) -> None:
        assert len(self.order) == len(self.used)
        assert {member for member in "abcdef" if member in self.order} == set(self.used)


TestRecencyOrder = OrderMachine.TestCase
