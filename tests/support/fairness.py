"""Accounts of what a scheduler gives its tenants, kept from outside, and traffic for it to share out."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import count
from random import Random

from support.scheduling import Desk
from tenantry_runtime.core import PAGE_TOKENS, Share
from tenantry_runtime.engine.fairness import VirtualCounters
from tenantry_runtime.engine.plan import StepPlan
from tenantry_runtime.engine.policy import Policy
from tenantry_runtime.engine.sequence import Prefilling, Sequence, Waiting
from tenantry_runtime.pool.messages import Failed, SequenceTokens

INPUT_TOKEN, OUTPUT_TOKEN, PAGE_SECOND = 1.0, 4.0, 0.5
"""What `docs/fairness.md` says that service costs."""


class CountingDesk(Desk):
    """Adds up the cost of what it sees planned, told and held; the policy is not asked."""

    def __init__(
        self,
        *,
        num_pages: int = 16,
        max_batch: int = 4,
        chunk_tokens: int = 32,
        step_s: float = 0.05,
        policy: Policy | None = None,
        is_audited: bool = False,
    ) -> None:
        super().__init__(
            num_pages=num_pages,
            max_batch=max_batch,
            max_waiting=100_000,
            chunk_tokens=chunk_tokens,
            step_s=step_s,
            policy=policy,
            is_audited=is_audited,
        )
        self.served: dict[str, float] = defaultdict(float)
        self.first_planned: dict[str, int] = {}
        """The turn of each request's first piece, counted from 1."""
        self.num_turns = 0
        self._numbers = count()

    def send(
        self, tenant: str, prompt: list[int], max_tokens: int, share: Share | None = None
    ) -> str:
        request_id = f"{tenant}-{next(self._numbers)}"
        self.add(request_id, prompt=prompt, max_tokens=max_tokens, tenant=tenant, share=share)
        return request_id

    def num_waiting(self, tenant: str) -> int:
        return sum(isinstance(s.state, Waiting) and s.tenant == tenant for s in self.live.values())

    def turn(self) -> None:
        self.num_turns += 1
        super().turn()
        # nobody asks for the finished ones again
        self.sequences = self.live

    def commit(self, plan: StepPlan) -> None:
        self._count_pages()
        for entry in plan.entries:
            self.first_planned.setdefault(entry.sequence.request_id, self.num_turns)
            if plan.phase == "prefill":
                self.served[entry.sequence.tenant] += INPUT_TOKEN * len(entry.token_ids)
        super().commit(plan)

    def _read(self, report: SequenceTokens | Failed) -> None:
        assert isinstance(report, SequenceTokens)
        tenant = self.sequences[report.request_id].tenant
        self.served[tenant] += OUTPUT_TOKEN * len(report.token_ids)
        super()._read(report)

    def _count_pages(self) -> None:
        chunk = {
            id(entry.sequence)
            for plan in self.last_plans
            if plan.phase == "prefill"
            for entry in plan.entries
        }
        holding: dict[str, list[Sequence]] = defaultdict(list)
        for sequence in self.live.values():
            if not isinstance(sequence.state, Waiting):
                holding[sequence.tenant].append(sequence)
        for tenant, mine in holding.items():
            each_once = len({index for s in mine for index in s.held.lease.indices})
            in_use = sum(
                len(s.held.lease)
                for s in mine
                if not isinstance(s.state, Prefilling) or id(s) in chunk
            )
            self.served[tenant] += PAGE_SECOND * min(each_once, in_use) * self._step_s


@dataclass(frozen=True, kw_only=True)
class Habits:
    """What a tenant sends."""

    share: Share
    num_prompt: int
    max_tokens: int
    num_kept: int
    """Sequences that wait at the end of every turn, of one that is always backlogged."""
    rate: float
    """Chance of sending in a turn, of one that is not."""
    num_shared: int
    """Tokens that all its prompts begin with."""


@dataclass(eq=False)
class Traffic:
    """Tenants at random, some of them always backlogged."""

    rng: Random
    desk: CountingDesk
    habits: dict[str, Habits] = field(default_factory=dict)
    max_lead: float = 0.0
    """Of the policy."""
    largest: dict[str, float] = field(default_factory=dict)
    """The most that one sequence of the tenant can have cost."""

    def send(self) -> None:
        for tenant, habits in self.habits.items():
            if habits.num_kept:
                while self.desk.num_waiting(tenant) < self.desk.max_batch + habits.num_kept:
                    self._send_one(tenant, habits)
            elif self.rng.random() < habits.rate:
                self._send_one(tenant, habits)

    def _send_one(self, tenant: str, habits: Habits) -> None:
        rng = self.rng
        num_prompt = rng.randint(1, habits.num_prompt)
        num_shared = min(habits.num_shared, num_prompt - 1)
        prompt = [7] * num_shared + [rng.randint(1, 99) for _ in range(num_prompt - num_shared)]
        max_tokens = rng.randint(1, habits.max_tokens)
        self.desk.send(tenant, prompt, max_tokens, habits.share)
        cost = self.most(num_prompt, max_tokens)
        self.largest[tenant] = max(self.largest.get(tenant, 0.0), cost)

    def most(self, num_prompt: int, max_tokens: int) -> float:
        """Return what one sequence costs at most from one admission to the next.

        In each turn that it is charged for it has a token, or a piece of its prompt is computed.
        What it had said before it was preempted is input then, and cheaper than it was as output.
        """
        desk = self.desk
        num_pages = -(-(num_prompt + max_tokens) // PAGE_TOKENS)
        num_pieces = (num_prompt + max_tokens) // desk.chunk_tokens + 2
        # two steps a turn
        seconds = (max_tokens + num_pieces) * 2 * desk._step_s
        return (
            INPUT_TOKEN * num_prompt + OUTPUT_TOKEN * max_tokens + PAGE_SECOND * num_pages * seconds
        )


def a_world(rng: Random, policy: Policy | None = None) -> Traffic:
    """Return two to five tenants and a scheduler that cannot serve them all at once."""
    longest = rng.choice([60, 150, 260])
    max_lead = rng.choice([0.0, 0.0, 30.0, 300.0])
    desk = CountingDesk(
        num_pages=rng.randint(2 * (longest + 60) // PAGE_TOKENS + 2, 40),
        max_batch=rng.randint(1, 6),
        chunk_tokens=rng.choice([16, 64, 100, 300]),
        step_s=rng.choice([0.005, 0.05, 0.3]),
        policy=policy or VirtualCounters(max_lead=max_lead),
    )
    traffic = Traffic(rng, desk, max_lead=max_lead)
    num_tenants = rng.randint(2, 5)
    for number in range(num_tenants):
        is_backlogged = number < 2 or rng.random() < 0.5
        traffic.habits[f"t{number}"] = Habits(
            share=Share(
                weight=rng.choice([0.5, 1.0, 1.0, 1.0, 2.0, 8.0]),
                ceiling=1.0 if number < 2 else rng.choice([1.0, 0.6]),
            ),
            num_prompt=rng.choice([5, 40, longest]),
            max_tokens=rng.choice([1, 5, 20, 60]),
            num_kept=rng.choice([1, 3]) if is_backlogged else 0,
            rate=rng.choice([0.05, 0.3, 1.0]),
            num_shared=rng.choice([0, 0, 64, 128, 150]),
        )
    return traffic


def always_backlogged(traffic: Traffic) -> Iterable[tuple[str, str]]:
    """Return the pairs of tenants that always wait, and are never held up by a ceiling."""
    names = [n for n, h in traffic.habits.items() if h.num_kept and h.share.ceiling == 1.0]
    return [(a, b) for i, a in enumerate(names) for b in names[i + 1 :]]
