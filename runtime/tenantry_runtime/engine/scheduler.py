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
from typing import TypeAlias

from tenantry_runtime.cache.allocator import PageAllocator
from tenantry_runtime.cache.pages import PageIndex, StepNumber
from tenantry_runtime.cache.prefix import PrefixTrees
from tenantry_runtime.core import PAGE_TOKENS, Phase
from tenantry_runtime.errors import CapacityExceeded
from tenantry_runtime.pool.handoff import Handoff
from tenantry_runtime.pool.messages import (
    Delivered,
    Failed,
    HandoffEnd,
    Incident,
    Preempted,
    Reserved,
    SequenceTokens,
    Started,
)

from .backlog import Backlog
from .incidents import IncidentLog, incident_of
from .plan import Entry, StepPlan, StepResult
from .policy import Policy
from .sequence import Finished, Prefilling, Receiving, Running, Sequence, Waiting

Report: TypeAlias = SequenceTokens | Failed | Started | Reserved | Delivered | Preempted


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


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseLoad:
    """What one phase of a model has to do in a pool (`pool.messages.MemberLoad`)."""

    num_growth_pages: int
    num_queued_tokens: int
    num_sequences: int


class Scheduler:
    """The queue, the admitted and the running sequences of one page pool."""

    def __init__(
        self,
        *,
        pool: PageAllocator,
        prefixes: PrefixTrees,
        policy: Policy,
        handoff: Handoff | None,
        limits: SchedulerLimits,
        cache_format: str = "",
        incidents: IncidentLog | None = None,
    ) -> None:
        """`handoff` is of the two members that share the pool; None where there is but one."""
        self._pool = pool
        self._prefixes = prefixes
        self._policy = policy
        self._handoff = handoff
        self._limits = limits
        self._cache_format = cache_format
        self.incidents = incidents or IncidentLog()
        self._live: dict[str, Sequence] = {}
        self._admitted: dict[str, Sequence] = {}
        self._running: dict[str, Sequence] = {}
        self._backlog = Backlog()
        self._arrivals = Backlog()
        """In part decode, waiting for pages."""
        self._receiving: dict[int, Sequence] = {}
        """By the number of the hand-off."""
        self._short: Sequence | None = None
        """The last one that was refused pages."""
        self._reports: list[Report] = []
        self._last_planned: StepNumber = 0
        self._num_preemptions = 0
        self._num_prompt_tokens = 0
        self._num_cached_tokens = 0

    @property
    def admitted(self) -> tuple[Sequence, ...]:
        """The sequences that hold pages."""
        return tuple(self._admitted.values())

    @property
    def num_admitted(self) -> int:
        return len(self._admitted)

    @property
    def is_idle(self) -> bool:
        return not self._live

    def add(self, sequence: Sequence, *, is_again: bool = False) -> None:
        """Queue a sequence that fits the pool when alone; raises `CapacityExceeded`.

        `is_again`: it has been preempted, and comes on top of those that the queue has room for.
        """
        assert sequence.request_id not in self._live
        num_waiting = len(self._live) - len(self._admitted)
        if num_waiting >= self._limits.max_waiting and not is_again:
            raise CapacityExceeded
        self._live[sequence.request_id] = sequence
        self._line_of(sequence).append(sequence)
        self._policy.enter(sequence.tenant)

    def cancel(self, request_id: str) -> bool:
        """Forget a sequence, whatever its state; False if there is none of that id."""
        self._reports = [report for report in self._reports if report.request_id != request_id]
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
        if phase == "decode":
            entries = self._decode_batch()
            if self._arrivals:
                self._reserve_for_arrivals(now_s)
        else:
            entries = self._prefill_chunk(now_s)
        if not entries:
            return None
        self._last_planned += 1
        return StepPlan(step=self._last_planned, phase=phase, entries=tuple(entries))

    def take_reports(self) -> list[Report]:
        """Return what there is to tell beside the outcomes of steps."""
        reports, self._reports = self._reports, []
        return reports

    def sequence(self, request_id: str) -> Sequence | None:
        return self._live.get(request_id)

    def receiving(self, handoff: int) -> Sequence | None:
        """Return the sequence that waits for a hand-off's pages."""
        return self._receiving.get(handoff)

    def receive(self, sequence: Sequence, end: HandoffEnd, now_s: float) -> None:
        """Let a sequence run whose pages have all come and are verified."""
        del self._receiving[end.handoff]
        sequence.receive(end)
        # pages of a hand-off alone, never what decode steps write
        sequence.share_prompt(self._prefixes)
        self._running[sequence.request_id] = sequence
        self._reports.append(self._take(sequence, end.first_token, now_s))

    def delivered(self, sequence: Sequence) -> None:
        """Learn that the decode member has it all."""
        self._end(sequence)
        self._reports.append(Delivered(request_id=sequence.request_id))

    def give_up(self, sequence: Sequence, reason: str, message: str) -> None:
        """End a sequence whose hand-off has failed."""
        self._reports.append(self._fail(sequence, reason, message))

    def distrust(self, sequence: Sequence, incident: Incident, *, is_kept: bool) -> None:
        """End a sequence of which a page of a hand-off did not pass.

        `is_kept`: what did not pass is a page in the cache, not one on the wire.
        """
        if is_kept:
            self._reports.append(self._distrust(sequence, incident))
        else:
            self.incidents.add(incident)
            message = "a page of the hand-off was not the sequence's own"
            self.give_up(sequence, "cache_integrity", message)

    def load(self, phase: Phase) -> PhaseLoad:
        """Return what the phase's member has to do. O(sequences)."""
        mine = [s for s in self._live.values() if _phase_of(s) == phase]
        holding = [s for s in mine if not isinstance(s.state, Waiting)]
        return PhaseLoad(
            num_growth_pages=sum(s.num_growth_pages for s in holding),
            num_queued_tokens=sum(s.num_queued for s in mine),
            num_sequences=len(mine),
        )

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
            else self._distrust(
                entry.sequence,
                incident_of(plan, entry, result.fault_S[s] if result.fault_S else 0, now_s),
            )
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
            self._preempt(self._victim(sequence))

    def _victim(self, growing: Sequence) -> Sequence:
        """Return the youngest; one whose pages are on their way only where nobody else is younger."""
        # what is handed over leaves by itself
        pages_of = [s for s in self._admitted.values() if s.submit.part != "prefill"]
        at_work = [s for s in pages_of if not isinstance(s.state, Receiving)]
        victim = max(at_work, key=_arrival)
        return max(pages_of, key=_arrival) if victim is growing else victim

    def _preempt(self, victim: Sequence) -> None:
        self._num_preemptions += 1
        if victim.submit.part == "decode":
            self._end(victim, "preempted")
            self._reports.append(Preempted(request_id=victim.request_id))
            return
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
            if sequence.submit.part == "prefill" and not sequence.num_prefill_chunks:
                self._reports.append(
                    Started(request_id=sequence.request_id, cached_tokens=sequence.num_cached)
                )
            self._policy.charge(tenant, len(token_ids))
            return Entry(sequence, token_ids, start, is_last)
        return None

    def _reserve_for_arrivals(self, now_s: float) -> None:
        """Reserve pages for those that wait for a hand-off, in order, as long as there are any."""
        while self._arrivals:
            tenant = self._policy.order(self._arrivals.tenants)[0]
            sequence = self._arrivals.head(tenant)
            if not self._has_room_for(sequence):
                return
            self._arrivals.remove(sequence)
            self._policy.charge(tenant, sequence.num_missing_pages * PAGE_TOKENS)
            target = sequence.reserve(self._cache_format)
            self._receiving[target.handoff] = sequence
            self._admitted[sequence.request_id] = sequence
            self._reports.append(Reserved(request_id=sequence.request_id, target=target))

    def _admit(self, sequence: Sequence, now_s: float) -> bool:
        """Give a sequence its pages if there is room for it."""
        if not self._has_room_for(sequence):
            return False
        if sequence.num_cached is None:
            self._num_prompt_tokens += sequence.num_prompt
            self._num_cached_tokens += sequence.num_written
        sequence.admit(now_s)
        self._admitted[sequence.request_id] = sequence
        return True

    def _has_room_for(self, sequence: Sequence) -> bool:
        """Let a sequence hold the prefix that is known of it, if there is room for the rest."""
        if self._is_overtaking(sequence):
            return False
        if len(self._admitted) >= self._limits.max_batch:
            return False
        sequence.find_prefix(self._prefixes)
        # a page of growth for each, lest the newcomer be preempted in the next step; alone it fits
        num_growing = 0
        if self._admitted:
            num_growing = sum(s.may_grow for s in (sequence, *self._admitted.values()))
        if not self._finds(sequence.num_missing_pages + num_growing):
            sequence.preempt(self._last_planned)
            self._short = sequence
            return False
        return True

    def _is_overtaking(self, sequence: Sequence) -> bool:
        """Whether an older one of the other queue has been refused pages and still waits for them."""
        short = self._short
        return (
            short is not None
            and isinstance(short.state, Waiting)
            and short.arrival < sequence.arrival
            and self._line_of(short) is not self._line_of(sequence)
        )

    def _line_of(self, sequence: Sequence) -> Backlog:
        return self._arrivals if sequence.submit.part == "decode" else self._backlog

    def _finds(self, num_pages: int) -> bool:
        """Return whether so many pages are free, or can be made so."""
        missing = num_pages - self._pool.num_free
        # what would not be enough is not evicted: somebody may still find it
        if 0 < missing <= self._prefixes.num_unread:
            self._prefixes.evict(missing)
        return self._pool.num_free >= num_pages

    def _distrust(self, sequence: Sequence, incident: Incident) -> Failed:
        """End a sequence of which a page did not pass the check; nobody else notices."""
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
            if sequence.submit.part == "prefill":
                # the decode member tells it, when it has what belongs to it
                self._policy.charge(sequence.tenant, 1)
                sequence.append(token_id, now_s)
                sequence.await_confirmation()
                return None
        return self._take(sequence, token_id, now_s)

    def _take(self, sequence: Sequence, token_id: int, now_s: float) -> SequenceTokens:
        self._policy.charge(sequence.tenant, 1)
        is_first = len(sequence.tokens) == sequence.num_prompt
        finish = sequence.append(token_id, now_s)
        if finish is not None:
            self._end(sequence)
        elif isinstance(sequence.state, Prefilling):
            assert self._handoff is not None, "the pool has no decode member"
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
        self._end(sequence, f"{reason}: {message}")
        return Failed(request_id=sequence.request_id, reason=reason, message=message)

    def _end(self, sequence: Sequence, problem: str = "the sequence has ended") -> None:
        del self._live[sequence.request_id]
        self._admitted.pop(sequence.request_id, None)
        self._running.pop(sequence.request_id, None)
        self._line_of(sequence).remove(sequence)
        if isinstance(state := sequence.state, Receiving):
            self._receiving.pop(state.reception.reservation.handoff.number, None)
        self._policy.leave(sequence.tenant)
        # a later step may be planned already and name its pages
        sequence.end(self._last_planned, problem)


def _phase_of(sequence: Sequence) -> Phase:
    """Return the phase that the sequence is in, or waits for."""
    match sequence.submit.part:
        case "whole":
            return "decode" if isinstance(sequence.state, Running) else "prefill"
        case part:
            return part


def _arrival(sequence: Sequence) -> int:
    return sequence.arrival
