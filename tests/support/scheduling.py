"""A scheduler with pages but no model: every step succeeds, and its rules are checked from outside."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence as ListLike
from itertools import count

from support.engine import a_submit
from tenantry_runtime.cache.allocator import PageAllocator
from tenantry_runtime.cache.owners import OwnerSlots
from tenantry_runtime.cache.prefix import PrefixTrees
from tenantry_runtime.core import PAGE_TOKENS, Share
from tenantry_runtime.engine.fairness import VirtualCounters
from tenantry_runtime.engine.plan import StepPlan, StepResult
from tenantry_runtime.engine.policy import Policy
from tenantry_runtime.engine.scheduler import Scheduler, SchedulerLimits
from tenantry_runtime.engine.sequence import Finished, Prefilling, Running, Sequence, Waiting
from tenantry_runtime.pool.handoff import Endpoint, adopt
from tenantry_runtime.pool.messages import Failed, SequenceTokens

TOKEN = 9


class Desk:
    """Adds, cancels and turns; after each turn the promises of the scheduler must hold."""

    def __init__(
        self,
        *,
        num_pages: int = 16,
        max_batch: int = 4,
        max_waiting: int = 100,
        chunk_tokens: int = 32,
        policy: Policy | None = None,
        step_s: float = 0.05,
        is_audited: bool = True,
        runs_ahead: bool = False,
    ) -> None:
        """`step_s` is what every step takes; `is_audited`: all books are read after each turn.

        `runs_ahead`: a turn's steps are committed in the next one, after that has planned its own.
        """
        self.num_pages = num_pages
        self.chunk_tokens = chunk_tokens
        self.max_batch = max_batch
        self.pool = PageAllocator(num_pages)
        self.owners = OwnerSlots()
        self.prefixes = PrefixTrees(pool=self.pool, owners=self.owners)
        endpoint = Endpoint(pool=self.pool, cache_format="none")
        self.scheduler = Scheduler(
            pool=self.pool,
            prefixes=self.prefixes,
            policy=policy or VirtualCounters(),
            handoff=adopt(endpoint, endpoint),
            limits=SchedulerLimits(
                max_batch=max_batch, max_waiting=max_waiting, chunk_tokens=chunk_tokens
            ),
        )
        self.sequences: dict[str, Sequence] = {}
        self.num_tokens_told: dict[str, int] = {}
        self.finished: list[str] = []
        self.last_plans: list[StepPlan] = []
        self.now_s = 0.0
        self._step_s = step_s
        self._is_audited = is_audited
        self._runs_ahead = runs_ahead
        self.under_way: list[StepPlan] = []
        self._written: dict[str, int] = {}
        self._arrivals = count()

    @property
    def live(self) -> dict[str, Sequence]:
        return {
            request_id: sequence
            for request_id, sequence in self.sequences.items()
            if not isinstance(sequence.state, Finished)
        }

    def add(
        self,
        request_id: str,
        *,
        num_prompt: int | None = None,
        prompt: ListLike[int] = (),
        max_tokens: int = 4,
        tenant: str = "acme",
        share: Share | None = None,
        may_wait: bool = True,
        max_waiting: int | None = None,
        is_again: bool = False,
        is_background: bool = False,
    ) -> None:
        """Of `num_prompt` tokens that are all alike, or of others."""
        submit = a_submit(
            request_id,
            prompt=prompt if num_prompt is None else [5] * num_prompt,
            max_tokens=max_tokens,
            tenant=tenant,
            share=share,
            may_wait=may_wait,
            max_waiting=max_waiting,
            is_background=is_background,
        )
        sequence = Sequence(submit, arrival=next(self._arrivals), owners=self.owners, queued_s=0.0)
        self.scheduler.add(sequence, is_again=is_again)
        self.sequences[request_id] = sequence
        self.num_tokens_told[request_id] = 0

    def turn(self) -> None:
        if self.scheduler.must_settle:
            self.settle()
        before = self.under_way
        num_preemptions = self.scheduler.statistics().num_preemptions
        running = [s for s in self.live.values() if isinstance(s.state, Running)]
        decode = self.scheduler.plan("decode", self.now_s)
        self._check_decode(decode, running)
        prefill = self.scheduler.plan("prefill", self.now_s)
        self._check_prefill(prefill)
        if before:
            assert self.scheduler.statistics().num_preemptions == num_preemptions, "not free yet"
        self.last_plans = [plan for plan in (decode, prefill) if plan is not None]
        assert self.last_plans or before or not self.live, "idle although there is work"
        self.under_way = [*before, *self.last_plans]
        for plan in before if self._runs_ahead else tuple(self.under_way):
            self.commit(plan)
        if self._is_audited:
            self.check_books()

    def settle(self) -> None:
        for plan in tuple(self.under_way):
            self.commit(plan)

    def run_to_end(self, max_turns: int = 2000) -> None:
        for _ in range(max_turns):
            if self.scheduler.is_idle:
                self.settle()
                self.check_nothing_is_held()
                return
            self.turn()
        raise AssertionError(f"still live after {max_turns} turns: {sorted(self.live)}")

    def check_books(self) -> None:
        holding = [s for s in self.live.values() if isinstance(s.state, Prefilling | Running)]
        assert self.pool.audit() == []
        assert self.prefixes.audit() == []
        pages = {ref.index for s in holding for ref in s.held.lease.refs}
        shared = {page.ref.index for page in self.pool.shared_pages}
        assert self.pool.statistics().num_private == len(pages - shared)
        assert self.pool.statistics().num_leases == len(holding) <= self.max_batch
        trees = {tree.tenant for tree in self.prefixes.trees}
        assert self.owners.num_tenants == len({sequence.tenant for sequence in holding} | trees)
        statistics = self.scheduler.statistics()
        assert statistics.num_running == len(holding)
        assert statistics.num_waiting == len(self.live) - len(holding)

    def check_nothing_is_held(self) -> None:
        self.check_books()
        assert self.pool.num_free + self.prefixes.num_evictable == self.num_pages

    def _check_decode(self, plan: StepPlan | None, running: ListLike[Sequence]) -> None:
        """Everyone who was running is in the batch or has been preempted: nobody waits a turn.

        Except where a step is under way: for one whose last token that brings, and for one that lacks
        room which others can give back only afterwards.
        """
        coming = Counter(
            id(entry.sequence)
            for step in self.under_way
            for entry in step.entries
            if entry.wants_token
        )
        in_batch = {id(entry.sequence) for entry in plan.entries} if plan else set()
        for sequence in running:
            num_tokens = len(sequence.tokens) + coming[id(sequence)]
            is_whole = num_tokens - sequence.num_prompt >= sequence.submit.max_tokens
            is_preempted = isinstance(sequence.state, Waiting)
            is_held_up = (
                not is_preempted
                and self.scheduler.must_settle
                and len(sequence.held.lease) * PAGE_TOKENS < num_tokens
            )
            is_left_out = is_whole or is_preempted or is_held_up
            assert not (id(sequence) in in_batch and is_left_out)
            if self._has_its_turn(sequence):
                assert id(sequence) in in_batch or is_left_out
        assert in_batch <= {id(sequence) for sequence in running}
        for entry in plan.entries if plan else ():
            assert list(entry.token_ids) == entry.sequence.tokens[-1:]
            assert entry.start == len(entry.sequence.tokens) - 1 + coming[id(entry.sequence)]
            assert entry.wants_token
            assert len(entry.sequence.held.lease) * PAGE_TOKENS > entry.start

    def _has_its_turn(self, sequence: Sequence) -> bool:
        """Whether it may not be kept out of a batch."""
        return True

    def _check_prefill(self, plan: StepPlan | None) -> None:
        for sequence in self.live.values():
            if isinstance(sequence.state, Waiting):
                self._written.pop(sequence.request_id, None)
        if plan is None:
            return
        assert plan.num_tokens <= self.chunk_tokens, "decode waits longer than one chunk"
        assert len({id(entry.sequence) for entry in plan.entries}) == len(plan.entries)
        for entry in plan.entries:
            sequence = entry.sequence
            end = entry.start + len(entry.token_ids)
            if sequence.request_id in self._written:
                assert entry.start == self._written[sequence.request_id]
            else:
                assert entry.start % PAGE_TOKENS == 0, "only whole pages are found"
            assert list(entry.token_ids) == sequence.tokens[entry.start : end]
            assert entry.start // self.chunk_tokens == (end - 1) // self.chunk_tokens
            assert end % self.chunk_tokens == 0 or end == len(sequence.tokens)
            assert entry.wants_token == (end == len(sequence.tokens))
            assert len(sequence.held.lease) * PAGE_TOKENS >= len(sequence.tokens)
            self._written[sequence.request_id] = end

    def commit(self, plan: StepPlan) -> None:
        self.under_way = [each for each in self.under_way if each is not plan]
        result = StepResult(
            tokens_S=tuple(TOKEN if entry.wants_token else None for entry in plan.entries),
            ok_S=(True,) * len(plan.entries),
        )
        self.now_s += self._step_s
        for report in self.scheduler.commit(plan, result, self.now_s):
            self._read(report)

    def _read(self, report: SequenceTokens | Failed) -> None:
        assert isinstance(report, SequenceTokens)
        self.num_tokens_told[report.request_id] += len(report.token_ids)
        if report.finish is not None:
            self.finished.append(report.request_id)
            submit = self.sequences[report.request_id].submit
            assert self.num_tokens_told[report.request_id] == submit.max_tokens
