"""Requests of many tenants on real pages, tags and trees, with a memory in place of a model.

Each op writes or reads words of (token, position). An oracle knows which requests have been damaged
on purpose: no op may touch a page for one of those, no word of theirs may be told, and nobody else
may be refused. An op in `unchecked` takes its pages from the leases instead of the checked batch.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field
from typing import TypeAlias

import torch

from support.page_words import Request, a_prompt, raw_slots, words_of
from tenantry_runtime.cache.allocator import PageAllocator
from tenantry_runtime.cache.checked import CheckedBatch
from tenantry_runtime.cache.fault_word import logical_page
from tenantry_runtime.cache.faults import (
    FaultInjector,
    FaultKind,
    FaultyPrefixes,
    FaultyTracker,
)
from tenantry_runtime.cache.owners import OwnerSlots
from tenantry_runtime.cache.page_batch import PageBatch
from tenantry_runtime.cache.pages import Lease, PageIndex, PageRef
from tenantry_runtime.cache.passage import MakePassage
from tenantry_runtime.cache.prefix import TreeStatistics
from tenantry_runtime.cache.reservation import PushedPage, Reservation
from tenantry_runtime.core import PAGE_TOKENS
from tenantry_runtime.errors import CacheIntegrityError

TENANTS = ("ada", "bob", "eve")
NUM_PAGES = 32
MAX_LIVE = 6
MIN_BEGUN = PAGE_TOKENS + 1
"""Tokens of a request whose pages can be swapped while its prompt is still being written."""
MEMORIES = ("index", "latent")
STEP_OPS = (
    *(f"{phase} {op}" for phase in ("prefill", "decode") for op in ("index append", "index read")),
    *(
        f"{phase} {op}"
        for phase in ("prefill", "decode")
        for op in ("latent append", "latent read")
    ),
)
OPS = (*STEP_OPS, "hand-off read", "hand-off write", "confirm")
"""What a check can be taken from."""

Found: TypeAlias = tuple[FaultKind, str]


@dataclass(eq=False)
class World:
    seed: int = 0
    unchecked: frozenset[str] = frozenset()
    passage: MakePassage | None = None
    """None: the tracker's own choice."""
    requests: list[Request] = field(default_factory=list)
    caught: Counter[Found] = field(default_factory=Counter)
    """By kind, and by phase in which it was."""
    num_told: int = 0

    def __post_init__(self) -> None:
        self.rng = random.Random(self.seed)
        self.owners = OwnerSlots()
        self.tracker = FaultyTracker(NUM_PAGES, num_appends=len(MEMORIES))
        if self.passage is not None:
            self.tracker._passage = self.passage
        self.pool = PageAllocator(NUM_PAGES, stamp=self.tracker.stamp)
        self.trees = FaultyPrefixes(pool=self.pool, owners=self.owners)
        self.injector = FaultInjector(self.pool, self.tracker.arrays, self.rng)
        self.usurper = self.owners.acquire("usurper")
        poison = torch.full(((NUM_PAGES + 1) * PAGE_TOKENS,), -1)
        self.memory = {name: poison.clone() for name in MEMORIES}
        self.num_launched = 0

    # what happens without faults

    def start(self, tenant: str, prompt: tuple[int, ...], *, stray: str | None = None) -> None:
        num_pages = -(-len(prompt) // PAGE_TOKENS)
        if len(self.requests) >= MAX_LIVE or not self._finds(num_pages):
            return
        owner = self.owners.acquire(tenant)
        self.trees.stray = stray
        lease, num_cached = self.trees.match(tenant, owner, prompt)
        is_foreign = lease.owner != owner
        if num_pages - len(lease) > self.pool.num_free:
            self.pool.release(lease, self.num_launched)
            self.owners.release(tenant)
            return
        lease.extend(num_pages - len(lease))
        request = Request(tenant, owner, list(prompt), len(prompt), lease, num_cached)
        if is_foreign:
            request.damage = FaultKind.FOREIGN_PREFIX
        elif self._has_flipped_page(lease):
            request.damage = FaultKind.TAG_BIT_FLIP
        request.is_exposed = self._has_overwritten_page(lease, num_cached)
        self.requests.append(request)

    def step(self, requests: list[Request]) -> bool:
        """One step of some requests: a chunk of those in prefill, a token of the others.

        Return whether there was room for any.
        """
        batch = [(r, self._end_of_step(r)) for r in requests]
        batch = [(r, end) for r, end in batch if self._grow(r, end)]
        if not batch:
            return False
        self.num_launched += 1
        pages = PageBatch(
            leases_S=[r.lease for r, _ in batch],
            owner_S=[r.owner for r, _ in batch],
            start_S=[r.num_written for r, _ in batch],
            read_len_S=[end for _, end in batch],
        )
        checked = self.tracker.check(pages)
        for name in MEMORIES:
            self._append(name, batch, pages, checked)
        told = {name: self._read(name, batch, checked) for name in MEMORIES}
        ok_S = self.tracker.confirm(checked).tolist()
        fault_S = self.tracker.faults(checked)
        for s, (request, end) in enumerate(batch):
            ok = ok_S[s] or "confirm" in self.unchecked
            self._take(request, end, ok, fault_S[s], [told[name][s] for name in MEMORIES])
        return True

    def end(self, request: Request) -> None:
        self.requests.remove(request)
        self.pool.release(request.lease, self.num_launched)
        self.owners.release(request.tenant)

    def finish_steps(self, lag: int) -> None:
        self.pool.completed(self.num_launched - lag)

    def hand_off(self, source: Request, *, fault: bool = False, is_aborted: bool = False) -> None:
        """Move a request's pages to fresh ones of the same pool, page by page, in no order."""
        num_pages = -(-source.num_written // PAGE_TOKENS)
        if source.damage is not None and source.num_written % PAGE_TOKENS == 0:
            return  # the damage may be on the next page, which is not read
        if not source.num_written or not self._finds(num_pages):
            return
        if not self._passes_as_source(source):
            return
        reservation = Reservation.fresh(self.pool, source.owner, num_pages)
        order = self.rng.sample(range(num_pages), num_pages)
        diverted = self.rng.choice(order) if fault else None
        heir = Request(
            source.tenant,
            source.owner,
            source.tokens,
            source.num_prompt,
            reservation.lease,
            source.num_written,
        )
        has_arrived = True
        for place in order:
            if is_aborted and place == order[-1]:
                self.pool.release(reservation.lease, reservation.handoff)
                reservation.close()
                self._is_refused(reservation, self._page_of(reservation, place, source))
                return
            has_arrived &= self._push(reservation, place, source, place == diverted)
        reservation.close()
        if not has_arrived:
            self.caught[FaultKind.WRONG_PUSH, "hand-off write"] += 1
            self.pool.release(reservation.lease, self.num_launched)
            return
        assert not fault or "confirm" in self.unchecked, "a page was pushed elsewhere, unnoticed"
        self.owners.acquire(source.tenant)
        self.end(source)
        self.requests.append(heir)

    # faults

    def inject(self, kind: FaultKind) -> bool:
        """Damage some request, if there is one that can be; return whether there was."""
        if kind is FaultKind.FOREIGN_PREFIX:
            return self._start_astray()
        if self.rng.random() < 0.3:
            # most are decoding, by chance: damage somebody who is not
            self._plant(MIN_BEGUN)
        if self._damage_one(kind):
            return True
        self._plant()
        return self._damage_one(kind)

    def _damage_one(self, kind: FaultKind) -> bool:
        intact = [r for r in self.requests if r.damage is None and not r.is_exposed]
        self.rng.shuffle(intact)
        begun = [r for r in intact if r.phase == "prefill" and r.num_written >= MIN_BEGUN]
        intact = [*begun, *(r for r in intact if r not in begun)]
        return any(self._damage(kind, victim, intact) for victim in intact)

    def _damage(self, kind: FaultKind, victim: Request, intact: list[Request]) -> bool:
        match kind:
            case FaultKind.LOST_APPEND:
                if not self._grow(victim, self._end_of_step(victim)):
                    return False
                self.tracker.lose(victim.lease)
                victim.damage = kind
                return self.step([victim])
            case FaultKind.WRONG_PUSH:
                before = self.caught.total()
                self.hand_off(victim, fault=True)
                return self.caught.total() > before
            case _:
                others = [r for r in intact if r is not victim]
                damaged = self.injector.inject(
                    kind, victim.holder, [r.holder for r in others], self.usurper
                )
                for holder in damaged:
                    next(r for r in intact if r.lease is holder.lease).damage = kind
                return bool(damaged)

    def release_usurpers(self) -> None:
        while self.injector.usurpers:
            self.pool.release(self.injector.usurpers.pop(), self.num_launched)

    # what must hold

    @property
    def is_damaged(self) -> bool:
        return bool(self.injector.usurpers) or any(
            r.damage is not None or r.is_exposed for r in self.requests
        )

    def audit(self) -> None:
        if not self.is_damaged:
            assert self.pool.audit() == []
            assert self.trees.audit() == []

    def rest(self) -> None:
        """Let every request take its last step and the node become idle: no page stays in quarantine."""
        for request in list(self.requests):
            has_run = self.step([request])
            assert not has_run or request.damage is None or request not in self.requests
        for request in list(self.requests):
            self.end(request)
        self.release_usurpers()
        self.finish_steps(0)
        assert self.trees.audit() == []
        assert self.pool.readmit() == []
        statistics = self.pool.statistics()
        assert statistics.num_free + statistics.num_shared == NUM_PAGES

    def close(self) -> None:
        """Rest; nothing may be held, and all pages be well again."""
        self.rest()
        for tenant in TENANTS:
            self.trees.drop(tenant)
        self.finish_steps(0)
        assert self.pool.audit() == []
        assert self.trees.audit() == []
        assert self.tracker.differing(self.pool.tags) == []
        assert self.pool.readmit() == []
        assert self.pool.num_free == NUM_PAGES
        self.owners.release("usurper")
        assert self.owners.num_tenants == 0

    # the rest

    def _finds(self, num_pages: int) -> bool:
        self.trees.evict(max(num_pages - self.pool.num_free, 0))
        return self.pool.num_free >= num_pages

    def _end_of_step(self, request: Request) -> int:
        if request.num_written < request.num_prompt:
            return min(request.num_written + self.rng.randint(1, 100), request.num_prompt)
        if len(request.tokens) <= request.num_written:
            request.tokens.append(self.rng.randrange(1000))
        return request.num_written + 1

    def _grow(self, request: Request, end: int) -> bool:
        missing = -(-end // PAGE_TOKENS) - len(request.lease)
        if missing > 0:
            if not self._finds(missing):
                return False
            request.lease.extend(missing)
        return True

    def _append(
        self,
        name: str,
        batch: list[tuple[Request, int]],
        pages: PageBatch,
        checked: CheckedBatch,
    ) -> None:
        slot_T = checked.write_slot_T.clone()
        row = 0
        for request, end in batch:
            rows = slice(row, row + end - request.num_written)
            row = rows.stop
            op = f"{request.phase} {name} append"
            if op in self.unchecked:
                slot_T[rows] = raw_slots(request.lease, range(request.num_written, end))
            words = words_of(request.tokens, request.num_written, end)
            self._write(op, name, slot_T[rows], words, request)
        checked.landing.landed(slot_T)

    def _write(
        self, op: str, name: str, slot_T: torch.Tensor, words: torch.Tensor, request: Request | None
    ) -> None:
        sink = NUM_PAGES * PAGE_TOKENS
        is_written_T = (slot_T >= 0) & (slot_T < sink)
        if request is not None and bool(is_written_T.any()):
            # rows that get lost are in the right place before
            is_damaged = request.damage not in (None, FaultKind.LOST_APPEND)
            assert not is_damaged, f"{op} wrote for a request with a {request.damage}"
        self.memory[name][slot_T[is_written_T]] = words[is_written_T]

    def _read(
        self, name: str, batch: list[tuple[Request, int]], checked: CheckedBatch
    ) -> list[torch.Tensor]:
        read = []
        for s, (request, end) in enumerate(batch):
            op = f"{request.phase} {name} read"
            num_read = checked.read_len_S[s]
            position = torch.arange(num_read)
            slots = checked.page_table_SL[s][position // PAGE_TOKENS] * PAGE_TOKENS
            slots += position % PAGE_TOKENS
            if op in self.unchecked:
                slots = raw_slots(request.lease, range(end))
            is_caught_after = request.damage is FaultKind.LOST_APPEND
            if len(slots) and not is_caught_after:
                assert request.damage is None, f"{op} read for a request with a {request.damage}"
            read.append(self.memory[name][slots])
        return read

    def _take(
        self, request: Request, end: int, ok: bool, fault: int, told: list[torch.Tensor]
    ) -> None:
        if not ok:
            assert request.damage is not None or request.is_exposed, "a false alarm"
            assert fault
            if request.damage is not None:
                self.caught[request.damage, request.phase] += 1
            self._distrust(request, fault)
            return
        expected = words_of(request.tokens, 0, end)
        for words in told:
            assert torch.equal(words, expected), f"wrong words were told: {request.damage}"
        assert request.damage is None, f"a {request.damage} was not found"
        self.num_told += 1
        was_prefilling = request.num_written < request.num_prompt
        request.num_written = end
        if was_prefilling and end == request.num_prompt:
            self.trees.insert(
                request.tenant, request.lease, request.tokens, num_verified=request.num_prompt
            )

    def _distrust(self, request: Request, fault: int) -> None:
        """As the scheduler does."""
        place = logical_page(fault)
        assert place is not None
        if place < len(request.lease):
            self.pool.quarantine(PageIndex(request.lease.indices[place]))
        self.trees.drop(request.tenant)
        self.end(request)

    def _passes_as_source(self, source: Request) -> bool:
        """Check the pages that a hand-off reads."""
        self.num_launched += 1
        pages = PageBatch(
            leases_S=[source.lease],
            owner_S=[source.owner],
            start_S=[source.num_written],
            read_len_S=[source.num_written],
        )
        checked = self.tracker.check(pages)
        num_read = checked.read_len_S[0]
        if "hand-off read" in self.unchecked:
            num_read = source.num_written
        if num_read:
            assert source.damage is None, f"a hand-off read for a {source.damage}"
            return True
        assert source.damage is not None or source.is_exposed, "a false alarm"
        if source.damage is not None:
            self.caught[source.damage, "hand-off read"] += 1
        self._distrust(source, self.tracker.faults(checked)[0])
        return False

    def _page_of(self, reservation: Reservation, place: int, source: Request) -> PushedPage:
        return PushedPage(
            handoff=reservation.handoff,
            logical_page=place,
            ref=reservation.lease.ref(place),
            num_tokens=min(source.num_written - place * PAGE_TOKENS, PAGE_TOKENS),
        )

    def _push(
        self, reservation: Reservation, place: int, source: Request, is_diverted: bool
    ) -> bool:
        """Write one page of a hand-off; return whether it is there."""
        self.num_launched += 1
        pushed = self._page_of(reservation, place, source)
        if is_diverted:
            page = self.rng.choice([i for i in range(NUM_PAGES) if i != pushed.ref.index])
            wrong = PushedPage(
                handoff=pushed.handoff,
                logical_page=place,
                ref=PageRef(PageIndex(page), pushed.ref.tag),
                num_tokens=pushed.num_tokens,
            )
            self._is_refused(reservation, wrong)
            self.tracker.divert(reservation.lease, PageIndex(page))
            for request in self.requests:
                # its words may be overwritten there
                request.is_exposed |= page in request.lease.indices
        checked = self.tracker.check(reservation.accept([pushed]))
        first = place * PAGE_TOKENS
        for name in MEMORIES:
            words = words_of(source.tokens, first, first + pushed.num_tokens)
            self._write("hand-off write", name, checked.write_slot_T, words, None)
        checked.landing.landed(checked.write_slot_T, len(MEMORIES))
        ok = bool(self.tracker.confirm(checked)[0])
        return ok or "hand-off write" in self.unchecked

    def _is_refused(self, reservation: Reservation, pushed: PushedPage) -> None:
        try:
            reservation.accept([pushed])
        except CacheIntegrityError:
            return
        raise AssertionError("a page was accepted that was not reserved")

    def _has_flipped_page(self, lease: Lease) -> bool:
        tags = self.tracker.arrays.tag_P
        return any(int(tags[ref.index]) != ref.tag for ref in lease.refs)

    def _has_overwritten_page(self, lease: Lease, num_cached: int) -> bool:
        fill = self.tracker.arrays.fill_P
        return any(
            int(fill[lease.indices[place]]) != place << 32 | PAGE_TOKENS
            for place in range(num_cached // PAGE_TOKENS)
        )

    def _live_trees(self) -> list[TreeStatistics]:
        return [tree for tree in self.trees.statistics().trees if not tree.is_dropped]

    def _plant(self, num_tokens: int | None = None) -> None:
        """Let somebody's prompt be written, up to so many tokens or a chunk more."""
        num_before = len(self.requests)
        self.start(self.rng.choice(TENANTS), a_prompt(self.rng))
        for request in self.requests[num_before:]:
            least = request.num_prompt if num_tokens is None else num_tokens
            has_run = True
            while has_run and request in self.requests and request.num_written < least:
                has_run = self.step([request])

    def _start_astray(self) -> bool:
        if not self._live_trees():
            self._plant()
        trees = self._live_trees()
        if not trees:
            return False
        foreign = self.rng.choice(trees).tenant
        tenant = self.rng.choice([name for name in TENANTS if name != foreign])
        num_before = len(self.requests)
        self.start(tenant, a_prompt(self.rng), stray=foreign)
        self.trees.stray = None
        return len(self.requests) > num_before


def act(world: World, kinds: tuple[FaultKind, ...] = tuple(FaultKind)) -> None:
    """Let something happen, by chance."""
    rng = world.rng
    some = rng.sample(world.requests, rng.randint(0, len(world.requests)))
    match rng.randrange(10):
        case 0 | 1:
            world.start(rng.choice(TENANTS), a_prompt(rng))
        case 2 | 3 | 4:
            world.step(some)
        case 5 if some:
            world.hand_off(some[0], is_aborted=rng.random() < 0.3)
        case 6 if some:
            world.end(some[0])
        case 7:
            world.finish_steps(rng.randint(0, 2))
        case 8:
            if rng.random() < 0.2:
                world.rest()
        case _:
            world.inject(rng.choice(kinds))
    world.audit()
