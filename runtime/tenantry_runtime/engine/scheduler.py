"""What the members of one page pool do next. Pure: no torch, no clock, no I/O.

A turn of the node is `plan` for every member, the steps, then `commit` (or `fail`) of each plan in
the order of the plans. A turn may be planned before the steps of the one before it are committed: what
they will bring is reckoned with (`under_way.py`), and where room has to be given back, that waits for
a plan before which they are (`must_settle`), for pages of a step that is under way are not free.

- Decode: every running sequence is in every batch, so `max_batch` bounds admission. Those in the
  background (`background.py`) are in none while others ask for a turn.
- Prefill: one chunk of at most `chunk_tokens`. A prompt is cut at multiples of `chunk_tokens`,
  whatever else is going on; what the last piece of a prompt leaves of the chunk, others fill. The
  pages that a prompt begins with and that the tenant's prefix tree has are not computed again.
- Whose turn it is, `turns.py` says, in the order of the policy (`fairness.py`).
- Pages are reserved as sequences grow. When none is free, pages of prefix trees that nobody reads
  are; after them somebody gives its own back (`room.py`), waits at the head of its tenant's line,
  and is prefilled again with what it had said.
- A tenant within its guarantee has pages and a place at the next plan before which no step is under
  way, whoever has to give them back. When it is computed is a matter of order, as for everybody.
"""

from __future__ import annotations

from collections.abc import Sequence as ListLike
from dataclasses import dataclass
from typing import TypeAlias

from tenantry_runtime.cache.allocator import PageAllocator
from tenantry_runtime.cache.pages import PageIndex
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

from .crowding import gives_way, is_full
from .incidents import IncidentLog, incident_of
from .phase_load import PhaseLoad, load_of
from .plan import Drawn, Entry, StepPlan, StepResult
from .policy import Policy, Service
from .room import Room
from .sequence import Finished, Prefilling, Receiving, Running, Sequence, Waiting
from .turns import Turns
from .under_way import StepsUnderWay

MAX_ELAPSED_S = 1.0
"""Between two plans or commits, as far as it is charged: who holds pages while a node stands still is
not the cause of it. A step takes less."""

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
        self.policy = policy
        self._handoff = handoff
        self._limits = limits
        self._cache_format = cache_format
        self.incidents = incidents or IncidentLog()
        self._live: dict[str, Sequence] = {}
        self._running: dict[str, Sequence] = {}
        self._room = Room(pool=pool, prefixes=prefixes, max_batch=limits.max_batch)
        self._turns = Turns(policy=policy, room=self._room)
        self._receiving: dict[int, Sequence] = {}
        """By the number of the hand-off."""
        self._under_way = StepsUnderWay()
        self._is_held_up = False
        """Somebody lacks room that others would give back if no step were under way."""
        self._now_s: float | None = None
        self._reports: list[Report] = []
        self._num_preemptions = 0
        self._num_prompt_tokens = 0
        self._num_cached_tokens = 0

    @property
    def admitted(self) -> tuple[Sequence, ...]:
        """The sequences that hold pages."""
        return tuple(self._room.admitted)

    @property
    def num_admitted(self) -> int:
        return self._room.num_admitted

    @property
    def is_idle(self) -> bool:
        return not self._live

    @property
    def must_settle(self) -> bool:
        """Whether the next plan is to wait until no step is under way."""
        return self._is_held_up and bool(self._under_way)

    def add(self, sequence: Sequence, *, is_again: bool = False) -> None:
        """Queue a sequence that fits the pool when alone; raises `CapacityExceeded`.

        `is_again`: it has been preempted, and is let in whatever the queue has room for.
        """
        assert sequence.request_id not in self._live
        if not is_again:
            self._check_queue(sequence)
        sequence.is_spared = is_again
        self._live[sequence.request_id] = sequence
        share = sequence.submit.share
        self._room.enter(sequence.tenant, share)
        self.policy.enter(sequence.tenant, share)
        self._turns.append(sequence)

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
        self._pass_time(now_s)
        if not self._under_way:
            self._is_held_up = False
        if phase == "decode":
            self._grow_all()
            self._meet_claims(now_s)
            entries = self._decode_batch()
            self._reserve_for_arrivals(now_s)
        else:
            self._meet_claims(now_s)
            entries = self._prefill_chunk(now_s)
        if not entries:
            return None
        return self._under_way.begin(phase, entries)

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
        sequence.receive(end, now_s)
        self._under_way.tally.begin(sequence)
        # pages of a hand-off alone, never what decode steps write
        sequence.share_prompt(self._prefixes)
        self._running[sequence.request_id] = sequence
        self._reports.append(self._take(sequence, Drawn(end.first_token, end.first_logprob), now_s))

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
        return load_of(self._live.values(), phase)

    def commit(
        self, plan: StepPlan, result: StepResult, now_s: float
    ) -> list[SequenceTokens | Failed]:
        """Apply a step's outcome; return what there is to tell."""
        self._pass_time(now_s)
        self._step_ends(plan)
        live = (
            (entry, s)
            for s, entry in enumerate(plan.entries)
            if not isinstance(entry.sequence.state, Finished)  # canceled while the step ran
        )
        reports = (
            self._apply(entry, result.drawn(s), now_s)
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
        self._step_ends(plan)
        return [
            self._fail(entry.sequence, "internal", problem)
            for entry in plan.entries
            if not isinstance(entry.sequence.state, Finished)
        ]

    def statistics(self) -> SchedulerStatistics:
        return SchedulerStatistics(
            num_running=self.num_admitted,
            num_waiting=len(self._live) - self.num_admitted,
            num_preemptions=self._num_preemptions,
            num_prompt_tokens=self._num_prompt_tokens,
            num_cached_tokens=self._num_cached_tokens,
        )

    def _check_queue(self, sequence: Sequence) -> None:
        """Refuse a sequence that would wait longer than it, its tenant or the pool has room for."""
        submit, line = sequence.submit, self._turns.line_of(sequence)
        is_idle = not self._turns.is_behind(sequence) and self._room.fits_at_once(sequence)
        if not is_idle and (not submit.may_wait or submit.max_waiting == 0):
            raise CapacityExceeded
        # in part decode it has been let in with its prompt
        if submit.max_waiting and submit.part != "decode":
            if line.num_waiting(sequence.tenant) >= submit.max_waiting:
                raise CapacityExceeded
        num_waiting = len(self._live) - self.num_admitted
        if is_full(self._live.values(), sequence, num_waiting, self._limits.max_waiting):
            last = gives_way(self._live.values(), sequence)
            if last is None:
                raise CapacityExceeded
            self.give_up(last, "capacity", "its tenant has more than its part of a full queue")

    def _pass_time(self, now_s: float) -> None:
        """Charge who has held pages until now.

        Not those of a prompt that waits for its next chunk: that is up to the policy itself.
        """
        before_s, self._now_s = self._now_s, now_s
        elapsed_s = 0.0 if before_s is None else min(now_s - before_s, MAX_ELAPSED_S)
        if elapsed_s <= 0.0:
            return
        prefilling = self._under_way.prefilling
        for tenant, admitted in self._room.holders():
            num_used = sum(
                len(s.held.lease)
                for s in admitted
                if not isinstance(s.state, Prefilling) or s in prefilling
            )
            # of those that two of them read, each counts once
            num_pages = min(num_used, self._room.num_pages(tenant)) if num_used else 0
            self.policy.charge(tenant, Service(page_seconds=num_pages * elapsed_s))

    def _step_ends(self, plan: StepPlan) -> None:
        self._under_way.end(plan)
        self._pool.completed(plan.step)

    def _grow_all(self) -> None:
        for sequence in [s for s in self._at_turn() if s.num_missing_pages]:
            while isinstance(sequence.state, Running):
                num_missing = sequence.num_missing_pages
                if self._room.allows(sequence, num_missing) and self._room.finds(num_missing):
                    sequence.held.lease.extend(num_missing)
                    break
                if not self._preempt(self._room.victim_for_growth(sequence)):
                    # it misses this turn
                    break

    def _decode_batch(self) -> list[Entry]:
        batch = [s for s in self._at_turn() if not s.num_missing_pages]
        # the last token that is known stands for one that is still on the device
        return [Entry(s, s.tokens[-1:], len(s.tokens) + s.num_coming - 1, True) for s in batch]

    def _at_turn(self) -> list[Sequence]:
        """Return who is to decode: nobody in the background while others ask for a turn."""
        is_barred = self._turns.has_foreground
        return [
            s
            for s in self._running.values()
            if not (is_barred and s.is_background) and not (s.num_coming and s.is_complete)
        ]

    def _meet_claims(self, now_s: float) -> None:
        """Give room to those that are first in their tenants' lines and within the guarantee."""
        self._turns.make_way(self._preempt, self._under_way.last)
        if not self._room.has_promises:
            return
        for line in (self._turns.prompts, self._turns.arrivals):
            for tenant in self.policy.order(line.tenants):
                sequence = line.head(tenant)
                if isinstance(sequence.state, Waiting) and self._room.claim(
                    sequence, preempt=self._preempt, after=self._under_way.last
                ):
                    self._admit(sequence, now_s)

    def _preempt(self, victim: Sequence) -> bool:
        """Take a sequence's room; False: not while a step is under way, for it would not be free yet."""
        if self._under_way:
            self._is_held_up = True
            return False
        self._num_preemptions += 1
        if victim.submit.part != "whole":
            self._end(victim, "preempted")
            self._reports.append(Preempted(request_id=victim.request_id))
            return True
        self._room.dismiss(victim)
        self._turns.restore(victim)
        self._running.pop(victim.request_id, None)
        victim.preempt(self._under_way.last)
        return True

    def _prefill_chunk(self, now_s: float) -> list[Entry]:
        entries: list[Entry] = []
        num_left = self._limits.chunk_tokens
        while num_left and (entry := self._next_piece(entries, num_left, now_s)):
            entries.append(entry)
            num_left -= len(entry.token_ids)
        return entries

    def _next_piece(self, planned: ListLike[Entry], num_left: int, now_s: float) -> Entry | None:
        # the next piece of who is in the chunk reads what this one writes
        beside = [entry.sequence for entry in planned]
        sequence = self._turns.next_in(
            self._turns.prompts, beside=beside, after=self._under_way.last
        )
        if sequence is None:
            return None
        if not self._room.is_admitted(sequence):
            self._admit(sequence, now_s)
        start = sequence.num_written + sequence.num_being_written
        chunk = self._limits.chunk_tokens
        token_ids = sequence.tokens[start : (start // chunk + 1) * chunk]
        if len(token_ids) > num_left:
            return None
        is_last = start + len(token_ids) == len(sequence.tokens)
        if is_last:
            self._turns.remove(sequence)
        is_first = not sequence.num_prefill_chunks and not sequence.num_being_written
        if sequence.submit.part == "prefill" and is_first:
            self._reports.append(
                Started(request_id=sequence.request_id, cached_tokens=sequence.num_cached)
            )
        self.policy.charge(sequence.tenant, Service(input_tokens=len(token_ids)))
        return Entry(sequence, token_ids, start, is_last)

    def _reserve_for_arrivals(self, now_s: float) -> None:
        """Reserve pages for those that wait for a hand-off, in order, as long as there are any."""
        line = self._turns.arrivals
        while sequence := self._turns.next_in(line, after=self._under_way.last):
            self._admit(sequence, now_s)

    def _admit(self, sequence: Sequence, now_s: float) -> None:
        """Give a sequence that there is room for its pages: it holds its prefix."""
        num_cached = sequence.num_written
        self._room.admit(sequence)
        if sequence.submit.part == "decode":
            self._turns.remove(sequence)
            num_input = sequence.num_missing_pages * PAGE_TOKENS
            service = Service(input_tokens=num_input, cached_tokens=num_cached)
            self.policy.charge(sequence.tenant, service)
            target = sequence.reserve(self._cache_format)
            self._receiving[target.handoff] = sequence
            self._reports.append(Reserved(request_id=sequence.request_id, target=target))
            return
        if sequence.num_cached is None:
            self._num_prompt_tokens += sequence.num_prompt
            self._num_cached_tokens += num_cached
        self.policy.charge(sequence.tenant, Service(cached_tokens=num_cached))
        sequence.admit(now_s)

    def _distrust(self, sequence: Sequence, incident: Incident) -> Failed:
        """End a sequence of which a page did not pass the check; nobody else notices."""
        self.incidents.add(incident)
        if incident.page is not None:
            self._pool.quarantine(PageIndex(incident.page))
        # what the tenant's tree holds may be as wrong
        self._prefixes.drop(sequence.tenant)
        return self._fail(sequence, "cache_integrity", "a cache page was not the sequence's own")

    def _apply(
        self, entry: Entry, drawn: Drawn | None, now_s: float
    ) -> SequenceTokens | Failed | None:
        sequence = entry.sequence
        if isinstance(sequence.state, Prefilling):
            sequence.advance(len(entry.token_ids))
        if not entry.wants_token:
            return None
        if drawn is None:
            return self._fail(sequence, "internal", sequence.why_no_token)
        if isinstance(sequence.state, Prefilling):
            sequence.share_prompt(self._prefixes)
            if sequence.submit.part == "prefill":
                # the decode member tells it, when it has what belongs to it
                self.policy.charge(sequence.tenant, _ONE_TOKEN)
                sequence.append(drawn.token_id, now_s)
                sequence.first_logprob = drawn.logprob
                sequence.await_confirmation()
                return None
        return self._take(sequence, drawn, now_s)

    def _take(self, sequence: Sequence, drawn: Drawn, now_s: float) -> SequenceTokens:
        self.policy.charge(sequence.tenant, _ONE_TOKEN)
        is_first = len(sequence.tokens) == sequence.num_prompt
        finish = sequence.append(drawn.token_id, now_s)
        if finish is not None:
            self._end(sequence)
        elif isinstance(sequence.state, Prefilling):
            assert self._handoff is not None, "the pool has no decode member"
            sequence.hand_off(self._handoff)
            self._under_way.tally.begin(sequence)
            self._running[sequence.request_id] = sequence
        return SequenceTokens(
            request_id=sequence.request_id,
            token_ids=(drawn.token_id,),
            finish=finish,
            cached_tokens=sequence.num_cached or 0 if is_first else 0,
            timings=self._under_way.tally.timings(sequence, self._running, now_s)
            if finish
            else None,
            logprobs=() if drawn.logprob is None else (drawn.logprob,),
        )

    def _fail(self, sequence: Sequence, reason: str, message: str) -> Failed:
        self._end(sequence, f"{reason}: {message}")
        return Failed(request_id=sequence.request_id, reason=reason, message=message)

    def _end(self, sequence: Sequence, problem: str = "the sequence has ended") -> None:
        del self._live[sequence.request_id]
        self._room.dismiss(sequence)
        self._running.pop(sequence.request_id, None)
        self._turns.remove(sequence)
        if isinstance(state := sequence.state, Receiving):
            self._receiving.pop(state.reception.reservation.handoff.number, None)
        self.policy.leave(sequence.tenant)
        self._room.leave(sequence.tenant)
        # a later step may be planned already and name its pages
        sequence.end(self._under_way.last, problem)


_ONE_TOKEN = Service(output_tokens=1)
