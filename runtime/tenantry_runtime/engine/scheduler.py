"""What the members of one page pool do next. Pure: no torch, no clock, no I/O.

A turn of the node is `plan` for every member, the steps, then `commit` (or `fail`) of each plan in
the order of the plans.

- Decode: every running sequence is in every batch, so `max_batch` bounds admission.
- Prefill: one chunk of at most `chunk_tokens`. A prompt is cut at multiples of `chunk_tokens`,
  whatever else is going on; what the last piece of a prompt leaves of the chunk, others fill. The
  pages that a prompt begins with and that the tenant's prefix tree has are not computed again.
- Pages are reserved as sequences grow. When none is free, pages of prefix trees that nobody reads
  are; after them the youngest sequence gives its own back, waits at the head of its tenant's line,
  and is prefilled again with what it had said. The oldest is never preempted by another, so it
  always gets on.
"""

from __future__ import annotations

from collections.abc import Sequence as ListLike
from dataclasses import dataclass

from tenantry_runtime.cache.allocator import PageAllocator
from tenantry_runtime.cache.pages import PageIndex, StepNumber
from tenantry_runtime.cache.prefix import PrefixTrees
from tenantry_runtime.core import Phase
from tenantry_runtime.errors import CapacityExceeded
from tenantry_runtime.pool.handoff import Handoff
from tenantry_runtime.pool.messages import Failed, SequenceTokens

from .backlog import Backlog
from .incidents import IncidentLog, incident_of
from .plan import Entry, StepPlan, StepResult
from .policy import Policy
from .sequence import Finished, Prefilling, Running, Sequence, Waiting


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerLimits:
    """Bounds of one model on one node."""

    max_batch: int
    """Sequences that hold pages at one time."""
    max_waiting: int
    """Sequences in the queue; preempted ones come on top."""
    chunk_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerStatistics:
    """How many sequences are where."""

    num_running: int
    """Holding pages: prefilling or decoding."""
    num_waiting: int
    num_preemptions: int
    """Since the start, like all below."""
    num_prompt_tokens: int
    """Of the sequences admitted."""
    num_cached_tokens: int
    """Those of them that needed no computing."""


class Scheduler:
    """The queue, the admitted and the running sequences of one model."""

    def __init__(
        self,
        *,
        pool: PageAllocator,
        prefixes: PrefixTrees,
        policy: Policy,
        handoff: Handoff,
        limits: SchedulerLimits,
        incidents: IncidentLog | None = None,
    ) -> None:
        self._pool = pool
        self._prefixes = prefixes
        self._policy = policy
        self._handoff = handoff
        self._limits = limits
        self.incidents = incidents or IncidentLog()
        self._live: dict[str, Sequence] = {}
        self._admitted: dict[str, Sequence] = {}
        self._running: dict[str, Sequence] = {}
        self._backlog = Backlog()
        self._last_planned: StepNumber = 0
        self._num_preemptions = 0
        self._num_prompt_tokens = 0
        self._num_cached_tokens = 0

    def __contains__(self, request_id: str) -> bool:
        return request_id in self._live

    @property
    def admitted(self) -> tuple[Sequence, ...]:
        """The sequences that hold pages."""
        return tuple(self._admitted.values())

    @property
    def is_idle(self) -> bool:
        return not self._live

    def add(self, sequence: Sequence) -> None:
        """Queue a sequence that fits the pool when alone; raises `CapacityExceeded`."""
        assert sequence.request_id not in self._live
        if len(self._live) - len(self._admitted) >= self._limits.max_waiting:
            raise CapacityExceeded
        self._live[sequence.request_id] = sequence
        self._backlog.append(sequence)
        self._policy.enter(sequence.tenant)

    def cancel(self, request_id: str) -> bool:
        """Forget a sequence, whatever its state; False if there is none of that id."""
        sequence = self._live.get(request_id)
        if sequence is None:
            return False
        self._end(sequence)
        return True

    def cancel_all(self) -> None:
        for request_id in list(self._live):
            self.cancel(request_id)

    def plan(self, phase: Phase, now_s: float) -> StepPlan | None:
        """Return the next step of the phase's member, None when it has nothing to do."""
        entries = self._decode_batch() if phase == "decode" else self._prefill_chunk(now_s)
        if not entries:
            return None
        self._last_planned += 1
        return StepPlan(step=self._last_planned, phase=phase, entries=tuple(entries))

    def commit(
        self, plan: StepPlan, result: StepResult, now_s: float
    ) -> list[SequenceTokens | Failed]:
        """Apply a step's outcome; return what there is to tell."""
        self._pool.completed(plan.step)
        live = (
            (entry, s)
            for s, entry in enumerate(plan.entries)
            if not isinstance(entry.sequence.state, Finished)  # canceled while the step ran
        )
        reports = (
            self._apply(entry, result.tokens_S[s], now_s)
            if result.ok_S[s]
            else self._distrust(plan, entry, result.fault_S[s] if result.fault_S else 0, now_s)
            for entry, s in live
        )
        return [report for report in reports if report is not None]

    def fail(self, plan: StepPlan, problem: str) -> list[Failed]:
        """End all sequences of a step that could not be computed."""
        self._pool.completed(plan.step)
        return [
            self._fail(entry.sequence, "internal", problem)
            for entry in plan.entries
            if not isinstance(entry.sequence.state, Finished)
        ]

    def statistics(self) -> SchedulerStatistics:
        return SchedulerStatistics(
            num_running=len(self._admitted),
            num_waiting=len(self._live) - len(self._admitted),
            num_preemptions=self._num_preemptions,
            num_prompt_tokens=self._num_prompt_tokens,
            num_cached_tokens=self._num_cached_tokens,
        )

    def _decode_batch(self) -> list[Entry]:
        for sequence in [s for s in self._running.values() if s.num_missing_pages]:
            self._grow(sequence)
        return [
            Entry(sequence, sequence.tokens[-1:], len(sequence.tokens) - 1, True)
            for sequence in self._running.values()
        ]

    def _grow(self, sequence: Sequence) -> None:
        while isinstance(sequence.state, Running):
            if self._finds(sequence.num_missing_pages):
                sequence.held.lease.extend(sequence.num_missing_pages)
                return
            self._preempt(max(self._admitted.values(), key=_arrival))

    def _preempt(self, victim: Sequence) -> None:
        self._num_preemptions += 1
        self._backlog.remove(victim)
        self._backlog.restore(victim)
        del self._admitted[victim.request_id]
        self._running.pop(victim.request_id, None)
        victim.preempt(self._last_planned)

    def _prefill_chunk(self, now_s: float) -> list[Entry]:
        entries: list[Entry] = []
        num_left = self._limits.chunk_tokens
        while num_left and (entry := self._next_piece(entries, num_left, now_s)):
            entries.append(entry)
            num_left -= len(entry.token_ids)
        return entries

    def _next_piece(self, planned: ListLike[Entry], num_left: int, now_s: float) -> Entry | None:
        may_admit = True
        for tenant in self._policy.order(self._backlog.tenants):
            sequence = self._backlog.head(tenant)
            if any(entry.sequence is sequence for entry in planned):
                continue  # its next piece reads what this one writes
            if isinstance(sequence.state, Waiting):
                # nobody overtakes a sequence that waits for pages, else it might wait forever
                may_admit = may_admit and self._admit(sequence, now_s)
                if not may_admit:
                    continue
            state = sequence.state
            assert isinstance(state, Prefilling), state
            start = state.num_written
            chunk = self._limits.chunk_tokens
            token_ids = sequence.tokens[start : (start // chunk + 1) * chunk]
            if len(token_ids) > num_left:
                return None
            is_last = start + len(token_ids) == len(sequence.tokens)
            if is_last:
                self._backlog.remove(sequence)
            self._policy.charge(tenant, len(token_ids))
            return Entry(sequence, token_ids, start, is_last)
        return None

    def _admit(self, sequence: Sequence, now_s: float) -> bool:
        """Give a sequence its pages if there is room for it."""
        if len(self._admitted) >= self._limits.max_batch:
            return False
        sequence.find_prefix(self._prefixes)
        # a page of growth for each, lest the newcomer be preempted in the next step; alone it fits
        num_growing = 0
        if self._admitted:
            num_growing = sum(s.may_grow for s in (sequence, *self._admitted.values()))
        if not self._finds(sequence.num_missing_pages + num_growing):
            sequence.preempt(self._last_planned)
            return False
        if sequence.num_cached is None:
            self._num_prompt_tokens += sequence.num_prompt
            self._num_cached_tokens += sequence.num_written
        sequence.admit(now_s)
        self._admitted[sequence.request_id] = sequence
        return True

    def _finds(self, num_pages: int) -> bool:
        """Return whether so many pages are free, or can be made so."""
        missing = num_pages - self._pool.num_free
        # what would not be enough is not evicted: somebody may still find it
        if 0 < missing <= self._prefixes.num_unread:
            self._prefixes.evict(missing)
        return self._pool.num_free >= num_pages

    def _distrust(self, plan: StepPlan, entry: Entry, fault: int, now_s: float) -> Failed:
        """End a sequence of which a page did not pass the check; nobody else notices."""
        sequence = entry.sequence
        incident = incident_of(plan, entry, fault, now_s)
        self.incidents.add(incident)
        if incident.page is not None:
            self._pool.quarantine(PageIndex(incident.page))
        # what the tenant's tree holds may be as wrong
        self._prefixes.drop(sequence.tenant)
        return self._fail(sequence, "cache_integrity", "a cache page was not the sequence's own")

    def _apply(
        self, entry: Entry, token_id: int | None, now_s: float
    ) -> SequenceTokens | Failed | None:
        sequence = entry.sequence
        if isinstance(sequence.state, Prefilling):
            sequence.advance(len(entry.token_ids))
        if not entry.wants_token:
            return None
        if token_id is None:
            return self._fail(sequence, "internal", "the model's logits are not finite")
        if isinstance(sequence.state, Prefilling):
            sequence.share_prompt(self._prefixes)
        return self._take(sequence, token_id, now_s)

    def _take(self, sequence: Sequence, token_id: int, now_s: float) -> SequenceTokens:
        self._policy.charge(sequence.tenant, 1)
        is_first = len(sequence.tokens) == sequence.num_prompt
        finish = sequence.append(token_id, now_s)
        if finish is not None:
            self._end(sequence)
        elif isinstance(sequence.state, Prefilling):
            sequence.hand_off(self._handoff)
            self._running[sequence.request_id] = sequence
        return SequenceTokens(
            request_id=sequence.request_id,
            token_ids=(token_id,),
            finish=finish,
            cached_tokens=sequence.num_cached or 0 if is_first else 0,
            timings=sequence.timings(now_s) if finish is not None else None,
        )

    def _fail(self, sequence: Sequence, reason: str, message: str) -> Failed:
        self._end(sequence)
        return Failed(request_id=sequence.request_id, reason=reason, message=message)

    def _end(self, sequence: Sequence) -> None:
        del self._live[sequence.request_id]
        self._admitted.pop(sequence.request_id, None)
        self._running.pop(sequence.request_id, None)
        self._backlog.remove(sequence)
        self._policy.leave(sequence.tenant)
        # a later step may be planned already and name its pages
        sequence.end(self._last_planned)


def _arrival(sequence: Sequence) -> int:
    return sequence.arrival
