"""Members on a simulated clock: the engine's own scheduler, allocator and prefix trees, no model.

A member is told what its node would be told, and says what its node would say. Two things take no
time here: messages, and pages on their way, because they are pushed while the rest is computed.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import count

from tenantry_runtime.cache.allocator import PageAllocator
from tenantry_runtime.cache.owners import OwnerSlots
from tenantry_runtime.cache.prefix import PrefixTrees
from tenantry_runtime.cache.prefix_keys import pack_keys
from tenantry_runtime.core import PAGE_TOKENS, Phase, Sampling, Share
from tenantry_runtime.engine.fairness import VirtualCounters
from tenantry_runtime.engine.plan import StepPlan, StepResult
from tenantry_runtime.engine.policy import Policy
from tenantry_runtime.engine.scheduler import Scheduler, SchedulerLimits
from tenantry_runtime.engine.sequence import Sequence
from tenantry_runtime.pool.messages import (
    HandoffEnd,
    MemberLoad,
    Part,
    Preempted,
    PrefixChanges,
    Reserved,
    SequenceTokens,
    Started,
    Submit,
)

from .costs import StepCost

MODEL = "replayed"
TOKEN = 0
"""What a simulated model says."""
NO_BOUND = 1 << 40


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberSize:
    """How much a member holds and takes at a time."""

    cache_tokens: int
    max_batch: int = 128
    chunk_tokens: int = 8192

    def __post_init__(self) -> None:
        if self.num_pages < 1 or self.max_batch < 1 or self.chunk_tokens < 1:
            raise ValueError(
                f"a member has {self.cache_tokens} tokens of cache, batches of {self.max_batch} and "
                f"chunks of {self.chunk_tokens}; it needs at least {PAGE_TOKENS}, 1 and 1"
            )

    @property
    def num_pages(self) -> int:
        return self.cache_tokens // PAGE_TOKENS


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """One sequence for a member."""

    request_id: str
    tenant: str
    session: str
    token_ids: list[int]
    max_tokens: int
    share: Share = field(default=Share())


@dataclass(frozen=True, slots=True)
class Prefilled:
    """A prompt is computed, and held until `PrefillMember.release`."""

    request_id: str
    num_cached: int


@dataclass(slots=True)
class Turn:
    """What a member says when it begins a step."""

    end_s: float | None = None
    """When the step will be done; None: there is nothing to compute."""
    started: list[str] = field(default_factory=list)
    reserved: list[tuple[str, int]] = field(default_factory=list)
    """Requests and the numbers of their hand-offs."""
    preempted: list[str] = field(default_factory=list)
    tokens: list[SequenceTokens] = field(default_factory=list)
    """First ones, of what has been received."""


class Member:
    """What the members of both phases have: pages, trees, a schedule, the step that runs."""

    phase: Phase
    part: Part

    def __init__(self, *, size: MemberSize, cost: StepCost, policy: Policy | None = None) -> None:
        """`policy` None: the engine's."""
        self.size = size
        self.pool = PageAllocator(size.num_pages)
        self._owners = OwnerSlots()
        self.prefixes = PrefixTrees(pool=self.pool, owners=self._owners)
        limits = SchedulerLimits(
            max_batch=size.max_batch, max_waiting=NO_BOUND, chunk_tokens=size.chunk_tokens
        )
        self.scheduler = Scheduler(
            pool=self.pool,
            prefixes=self.prefixes,
            policy=policy or VirtualCounters(),
            handoff=None,
            limits=limits,
        )
        self.busy_s = 0.0
        """Computing, since the start."""
        self._cost = cost
        self._arrivals = count()
        self._step: StepPlan | None = None

    @property
    def is_computing(self) -> bool:
        return self._step is not None

    @property
    def num_room_pages(self) -> int:
        """Pages that are free or can be made so."""
        return self.pool.num_free + self.prefixes.num_evictable

    def fits(self, num_tokens: int) -> bool:
        """Whether so many tokens fit the member when it has nothing else."""
        return num_tokens <= self.size.num_pages * PAGE_TOKENS

    def submit(self, work: Work, now_s: float) -> None:
        """Queue a sequence for the member's part of it."""
        submit = Submit(
            request_id=work.request_id,
            tenant=work.tenant,
            model=MODEL,
            token_ids=work.token_ids,
            sampling=Sampling(seed=0),
            stop_token_ids=(),
            max_tokens=work.max_tokens,
            session=work.session,
            part=self.part,
            share=work.share,
        )
        arrival = next(self._arrivals)
        self.scheduler.add(Sequence(submit, arrival=arrival, owners=self._owners, queued_s=now_s))

    def begin(self, now_s: float) -> Turn:
        """Start the next step, if there is one and none runs."""
        assert self._step is None, "one step at a time"
        self._step = self.scheduler.plan(self.phase, now_s)
        turn = Turn()
        if self._step is not None:
            step_s = self._cost.seconds(self._step)
            self.busy_s += step_s
            turn.end_s = now_s + step_s
        for report in self.scheduler.take_reports():
            match report:
                case Started(request_id=request_id):
                    turn.started.append(request_id)
                case Reserved(request_id=request_id, target=target):
                    turn.reserved.append((request_id, target.handoff))
                case Preempted(request_id=request_id):
                    turn.preempted.append(request_id)
                case SequenceTokens():
                    turn.tokens.append(report)
                case _:
                    pass  # `Delivered`: whoever released it knows
        return turn

    def prefix_changes(self) -> PrefixChanges | None:
        """Say what came into the trees and went since the last call, as far as anything did."""
        if not self.prefixes.journal:
            return None
        changes = self.prefixes.journal.take(NO_BOUND)
        return PrefixChanges(
            model=MODEL,
            phase=self.phase,
            added=pack_keys(changes.added),
            removed=pack_keys(changes.removed),
        )

    def load(self) -> MemberLoad:
        load = self.scheduler.load(self.phase)
        return MemberLoad(
            model=MODEL,
            phase=self.phase,
            num_free_pages=self.num_room_pages,
            num_reserved_growth_pages=load.num_growth_pages,
            num_queued_tokens=load.num_queued_tokens,
            num_sequences=load.num_sequences,
        )

    def _commit(self, now_s: float) -> tuple[StepPlan, list[SequenceTokens]]:
        plan, self._step = self._step, None
        assert plan is not None, "no step runs"
        result = StepResult(
            tokens_S=tuple(TOKEN if entry.wants_token else None for entry in plan.entries),
            ok_S=(True,) * len(plan.entries),
        )
        reports = self.scheduler.commit(plan, result, now_s)
        tokens = [report for report in reports if isinstance(report, SequenceTokens)]
        assert len(tokens) == len(reports), "nothing fails in a simulation"
        return plan, tokens


class PrefillMember(Member):
    """Computes prompts, chunk by chunk, and holds them until they are handed over."""

    phase: Phase = "prefill"
    part: Part = "prefill"

    def __init__(self, *, size: MemberSize, cost: StepCost, policy: Policy | None = None) -> None:
        super().__init__(size=size, cost=cost, policy=policy)
        self.num_queued_tokens = 0
        """Of the prompts that are not computed to their ends."""
        self.num_placed_tokens = 0
        """Of all prompts since the start."""
        self._held: dict[str, Sequence] = {}

    def submit(self, work: Work, now_s: float) -> None:
        self.num_queued_tokens += len(work.token_ids)
        self.num_placed_tokens += len(work.token_ids)
        super().submit(work, now_s)

    def finish(self, now_s: float) -> list[Prefilled]:
        """End the step; return the prompts that it completed."""
        plan, _ = self._commit(now_s)
        done = [entry.sequence for entry in plan.entries if entry.wants_token]
        for sequence in done:
            self.num_queued_tokens -= sequence.num_prompt
            self._held[sequence.request_id] = sequence
        return [Prefilled(sequence.request_id, sequence.num_cached or 0) for sequence in done]

    def release(self, request_id: str) -> None:
        """Learn that a prompt has been handed over."""
        self.scheduler.delivered(self._held.pop(request_id))


class DecodeMember(Member):
    """Continues prompts that others have computed."""

    phase: Phase = "decode"
    part: Part = "decode"

    def receive(self, request_id: str, handoff: int, num_cached: int, now_s: float) -> None:
        """Take a computed prompt into the batch; its first token is in the next `begin`."""
        sequence = self.scheduler.sequence(request_id)
        assert sequence is not None, f"{request_id} has no reservation"
        now_ns = round(now_s * 1e9)
        end = HandoffEnd(
            handoff=handoff,
            num_pages=len(sequence.held.lease),
            first_token=TOKEN,
            cached_tokens=num_cached,
            queued_ns=now_ns,
            prefill_started_ns=now_ns,
            first_token_ns=now_ns,
            num_prefill_chunks=1,
        )
        self.scheduler.receive(sequence, end, now_s)

    def finish(self, now_s: float) -> list[SequenceTokens]:
        """End the step; return its tokens."""
        _, tokens = self._commit(now_s)
        return tokens
