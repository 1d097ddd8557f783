"""An operator's drill: faults of every kind in a node of this process, and what becomes of them.

Requests of several tenants run once without faults. Then they run again and again; each time one
fault is put in while they decode. What was told must be what was told without it, the damaged
sequences must end with `cache_integrity`, and nobody else may.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from msgspec.structs import replace

from tenantry_runtime.cache.faults import (
    FaultInjector,
    FaultKind,
    FaultyPrefixes,
    FaultyTracker,
    Holder,
)
from tenantry_runtime.cache.owners import OwnerSlot
from tenantry_runtime.cache.pages import Lease, PageIndex, PageState
from tenantry_runtime.cache.reservation import PushedPage, Reservation
from tenantry_runtime.core import PAGE_TOKENS, Sampling
from tenantry_runtime.errors import CacheIntegrityError, ConfigurationError
from tenantry_runtime.pool.messages import Failed, NodeMessage, Step, Submit

from .build import PageParts, build_loop
from .config import NodeConfig
from .lane import Lane
from .loop import EngineLoop
from .sequence import Delivering, Prefilling, Running, Sequence as Request

TENANTS = ("drill-a", "drill-b", "drill-c")
NUM_REQUESTS = 6
MAX_TOKENS = 12
NUM_PAGES = 64
CHUNK_TOKENS = 32

_USURPER = OwnerSlot(0x7FFF)
"""A slot that no tenant of the drill has."""


@dataclass(slots=True, kw_only=True)
class DrillRow:
    """What became of one kind of fault in one model."""

    model: str
    kind: str
    num_injected: int = 0
    num_caught: int = 0
    num_wrong_tokens: int = 0
    """Told, of all requests."""
    num_false_alarms: int = 0
    """Requests that failed without a fault of theirs."""
    num_findings: int = 0
    """Of the audits when the node was idle again."""

    @property
    def is_passed(self) -> bool:
        wrong = self.num_wrong_tokens + self.num_false_alarms + self.num_findings
        return 0 < self.num_injected == self.num_caught and not wrong


def run_drill(config: NodeConfig, *, rounds: int, seed: int = 0) -> list[DrillRow]:
    """Drill every model of a configuration that allows it; raise `ConfigurationError` for others.

    The node is one of its own, in this process: deterministic, so that tokens can be compared, and
    with few pages.
    """
    if not config.drills:
        raise ConfigurationError(
            "this configuration does not allow drills; set its `drills` to true to allow them"
        )
    loop = build_loop(drill_config(config), parts=DRILL_PARTS)
    try:
        return [
            row
            for lane in loop.lanes
            for row in Drill(loop, lane, random.Random(seed)).rows(rounds)
        ]
    finally:
        loop.close()


def drill_config(config: NodeConfig) -> NodeConfig:
    """Return what a drill makes of a configuration."""
    return replace(
        config,
        deterministic=True,
        threads=config.threads if config.is_on_gpu else 1,
        num_pages=NUM_PAGES,
        cache_bytes=None,
        memory_fraction=None,
        max_incidents=1 << 30,
        # prompts have to wait for one another, so that there are some to be damaged
        chunk_tokens=min(config.chunk_tokens, CHUNK_TOKENS),
    )


DRILL_PARTS = PageParts(tracker=FaultyTracker, prefixes=FaultyPrefixes)


@dataclass(slots=True, eq=False)
class Drill:
    """Of one model. The lane's parts must be faulty ones (`DRILL_PARTS`)."""

    loop: EngineLoop
    lane: Lane
    rng: random.Random
    tenants: Sequence[str] = TENANTS
    expected: dict[str, list[int]] = field(default_factory=dict)

    def rows(self, rounds: int, kinds: Iterable[FaultKind] = FaultKind) -> list[DrillRow]:
        told, failed = self._run(self._submits())
        if failed:
            raise ConfigurationError(f"requests fail without faults: {sorted(failed)}")
        self.expected = told
        return [self._row(kind, rounds) for kind in kinds]

    def _row(self, kind: FaultKind, rounds: int) -> DrillRow:
        row = DrillRow(model=self.lane.name, kind=kind)
        for _ in range(rounds):
            self._round(kind, row)
        return row

    def _round(self, kind: FaultKind, row: DrillRow) -> None:
        submits = self._submits()
        damaged: set[str] = set()
        if "decode" not in self.lane.members:
            # nothing may be there already: sequences are damaged while they are computed
            for tenant in self.tenants:
                self.lane.prefixes.drop(tenant)
        if kind is FaultKind.FOREIGN_PREFIX:
            told, failed, damaged = self._run_astray(submits)
        else:
            told, failed = self._run(submits, kind, damaged)
        pushed = kind is FaultKind.WRONG_PUSH
        row.num_injected += int(pushed) or len(damaged)
        row.num_caught += self._push_astray() if pushed else len(damaged & failed)
        row.num_false_alarms += len(failed - damaged)
        for name, tokens in told.items():
            expected = self.expected[name]
            # what was told is the beginning of it, and all of it where nothing failed
            is_whole = name in failed or len(tokens) == len(expected)
            wrong = sum(a != b for a, b in zip(tokens, expected, strict=False))
            row.num_wrong_tokens += wrong + (not is_whole)
        # idle: the audit runs, and quarantine ends
        self.loop.turn()
        row.num_findings += len(self.loop.statistics().audit_findings)

    def _run(
        self,
        submits: Mapping[str, Submit],
        kind: FaultKind | None = None,
        damaged: set[str] | None = None,
    ) -> tuple[dict[str, list[int]], set[str]]:
        told: dict[str, list[int]] = defaultdict(list)
        failed: set[str] = set()
        usurpers: list[Lease] = []
        for submit in submits.values():
            self.loop.submit(submit)
        wait = self.rng.randint(1, NUM_REQUESTS + MAX_TOKENS // 2)
        while not self.loop.is_idle:
            _read(self.loop.turn(), told, failed)
            wait -= 1
            if kind is not None and damaged is not None and wait <= 0 and not damaged:
                hit, taken = self._inject(kind)
                damaged.update(hit)
                usurpers += taken
        for lease in usurpers:
            lease.pool.release(lease, after=0)
        return told, failed

    def _inject(self, kind: FaultKind) -> tuple[list[str], list[Lease]]:
        """Damage somebody; return the requests that must not go on, and what others got of theirs."""
        # what sequences hold is known, and whether they go on
        self.loop.settle()
        steps_on = kind is FaultKind.LOST_APPEND
        holders = {
            _holder(s): s.request_id
            for s in self.lane.scheduler.admitted
            if _is_used_next(s, steps_on=steps_on)
        }
        if not holders or kind is FaultKind.WRONG_PUSH:
            return [], []
        victim = self.rng.choice(list(holders))
        if kind is FaultKind.LOST_APPEND:
            self._tracker.lose(victim.lease)
            return [holders[victim]], []
        injector = FaultInjector(self.lane.pool, self._tracker.arrays, self.rng)
        others = [holder for holder in holders if holder is not victim]
        hit = injector.inject(kind, victim, others, _USURPER)
        return [holders[holder] for holder in hit], injector.usurpers

    def _run_astray(
        self, submits: Mapping[str, Submit]
    ) -> tuple[dict[str, list[int]], set[str], set[str]]:
        """Let one tenant's prompt be found in another's tree."""
        names = list(submits)
        first = submits[names[0]]
        told, failed = self._run({names[0]: first})
        stray = submits[names[1]]
        self._prefixes.stray = first.tenant
        # the same prompt, so that there is something to find
        copied = replace(stray, token_ids=list(first.token_ids), tenant=TENANTS[-1])
        more, failed_too = self._run({names[1]: copied})
        assert not more.pop(names[1], []), "a foreign prefix was told"
        return told, failed | failed_too, {names[1]}

    def _push_astray(self) -> int:
        """Let a hand-off bring pages that are not what it was given; return whether all is refused."""
        pool, tracker = self.lane.pool, self._tracker
        reservation = Reservation.fresh(pool, _USURPER, 2)
        pushed = PushedPage(
            handoff=reservation.handoff,
            logical_page=0,
            ref=reservation.lease.ref(0),
            num_tokens=PAGE_TOKENS,
        )
        swapped = PushedPage(
            handoff=pushed.handoff,
            logical_page=0,
            ref=reservation.lease.ref(1),
            num_tokens=PAGE_TOKENS,
        )
        is_refused = _is_refused(reservation, swapped)
        free = [i for i in range(NUM_PAGES) if pool.state_of(PageIndex(i)) is PageState.FREE]
        tracker.divert(reservation.lease, PageIndex(self.rng.choice(free)))
        checked = tracker.check(reservation.accept([pushed]))
        checked.landing.landed(checked.write_slot_T, tracker.num_appends)
        is_refused &= not bool(tracker.confirm(checked)[0])
        reservation.close()
        is_refused &= _is_refused(reservation, pushed)
        pool.release(reservation.lease, after=0)
        return int(is_refused)

    def _submits(self) -> dict[str, Submit]:
        rng = random.Random(0)
        return {
            f"drill-{n}": Submit(
                request_id=f"drill-{n}",
                tenant=self.tenants[n % len(self.tenants)],
                model=self.lane.model,
                token_ids=[rng.randrange(self.lane.vocab_size) for _ in range(70 + 30 * n)],
                sampling=Sampling(seed=n, temperature=float(n % 2)),
                stop_token_ids=(),
                max_tokens=MAX_TOKENS,
            )
            for n in range(NUM_REQUESTS)
        }

    @property
    def _tracker(self) -> FaultyTracker:
        assert isinstance(self.lane.tracker, FaultyTracker), "the node's pages are not checked"
        return self.lane.tracker

    @property
    def _prefixes(self) -> FaultyPrefixes:
        assert isinstance(self.lane.prefixes, FaultyPrefixes)
        return self.lane.prefixes


def _holder(sequence: Request) -> Holder:
    is_prefilling = isinstance(sequence.state, Prefilling)
    num_written = sequence.num_written if is_prefilling else len(sequence.tokens) - 1
    return Holder(sequence.held.lease, num_written)


def _is_used_next(sequence: Request, *, steps_on: bool) -> bool:
    """Whether all pages of a sequence are about to be used: by a step, or to be sent."""
    match sequence.state:
        case Prefilling() | Running():
            return True
        case Delivering(delivery=delivery):
            # what the decode member has already is not sent
            return not steps_on and delivery is not None and delivery.next_page == 0
        case _:
            return False


def _is_refused(reservation: Reservation, pushed: PushedPage) -> bool:
    try:
        reservation.accept([pushed])
    except CacheIntegrityError:
        return True
    return False


def _read(messages: Iterable[NodeMessage], told: dict[str, list[int]], failed: set[str]) -> None:
    for message in messages:
        match message:
            case Step(sequences=sequences):
                for tokens in sequences:
                    told[tokens.request_id] += tokens.token_ids
            case Failed(request_id=name):
                failed.add(name)
