"""What a flood costs everybody else, by policy: `python -m tenantry_recipes.bench.fairness`.

The engine's own scheduler on a simulated clock: a prefill and a decode member of Kimi K2.6 on eight
H200 each (`replay/costs.py`), the same requests for every policy. One tenant sends 20 times its share
of the prefill member, four send 0.6 times theirs.

| workload | prompts and answers |
|---|---|
| no shared prefixes | prompts of 4,096 tokens, no two alike, answers of 64 |
| shared prefixes | those of each of the four begin with the same 3,072 tokens; four times as many |
| long answers of the flood | 2,048 tokens, so that the decode member's places are all taken |

| figure | what |
|---|---|
| time to first token | of the four tenants' requests |
| flood | its part of the service that was given within the time, by cost |
| Jain | of what each tenant got over what it would get if all were served max-min fairly: 1 is even |
"""

from __future__ import annotations

import argparse
import statistics
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from random import Random
from typing import Literal, TypeAlias, get_args

from tenantry_runtime.core import PAGE_TOKENS, Share
from tenantry_runtime.engine.fairness import MAX_LEAD, VirtualCounters
from tenantry_runtime.engine.policy import Policy, Service, ServiceCost
from tenantry_runtime.replay.costs import KIMI_DECODE_TOKENS, KIMI_PREFILL_TOKENS, Costs
from tenantry_runtime.replay.measures import Measured
from tenantry_runtime.replay.member import DecodeMember, MemberSize, PrefillMember
from tenantry_runtime.replay.placement import RoundRobin
from tenantry_runtime.replay.prompts import Prompts
from tenantry_runtime.replay.simulation import Simulation
from tenantry_runtime.replay.trace import TraceRequest
from tenantry_runtime.replay.workload import ReplayRequest

from .table import table

SCALE = 8
"""Tokens that one simulated token stands for, as in `docs/pools.md`."""
PROMPT_TOKENS, PREFIX_TOKENS, OUTPUT_TOKENS, LONG_OUTPUT_TOKENS = 4096, 3072, 64, 2048
WorkloadName: TypeAlias = Literal[
    "no shared prefixes", "shared prefixes", "long answers of the flood"
]
PREFILL_TOKENS_PER_S = 18_270
"""Of the member, as `replay/costs.py` has it."""
FLOOD, NUM_POLITE = "flood", 4
FLOOD_SHARES, POLITE_SHARES = 20.0, 0.6
"""How much they send, as multiples of a fifth of the member."""

_COST = ServiceCost()
_PLAIN = Share()


class FirstCome:
    """A `Policy` that knows no tenants: who asked first is served first."""

    def __init__(self) -> None:
        self._tickets: dict[str, deque[int]] = defaultdict(deque)
        self._numbers = count()

    def enter(self, tenant: str, share: Share) -> None: ...

    def leave(self, tenant: str) -> None: ...

    def queue(self, tenant: str) -> None:
        self._tickets[tenant].append(next(self._numbers))

    def unqueue(self, tenant: str) -> None:
        # a tenant's own are served in order
        self._tickets[tenant].popleft()

    def charge(self, tenant: str, service: Service) -> None: ...

    def charge_elsewhere(self, tenant: str, amount: float) -> None: ...

    def admit(self, tenant: str, *, passed_over: Iterable[str] = ()) -> None: ...

    def may_overtake(self, tenant: str, waiting: str) -> bool:
        return True

    def order(self, tenants: Iterable[str]) -> list[str]:
        return sorted(tenants, key=lambda tenant: self._tickets[tenant][0])

    def totals(self) -> Mapping[str, float]:
        return {}


def counters(cost: ServiceCost = _COST) -> VirtualCounters:
    return VirtualCounters(cost, max_lead=MAX_LEAD / SCALE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Contender:
    """How requests are ordered, and what the four tenants are promised."""

    name: str
    policy: Callable[[], Policy]
    share: Share = _PLAIN


CONTENDERS = (
    Contender(name="first come, first served", policy=FirstCome),
    Contender(
        name="counting all tokens, cached or not, and no pages",
        policy=lambda: counters(replace(_COST, cached_token=1.0, page_second=0.0)),
    ),
    Contender(name="as here", policy=counters),
    Contender(
        name="as here, a tenth guaranteed to each of the four",
        policy=counters,
        share=Share(guaranteed=0.1),
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """What came of one policy on one workload."""

    first_token_s: tuple[float, ...]
    """Of the polite tenants' requests, in order."""
    flood_part: float
    jain: float

    @property
    def cells(self) -> list[str]:
        quantiles = statistics.quantiles(self.first_token_s, n=100, method="inclusive")
        return [
            f"{quantiles[49]:.2f} s",
            f"{quantiles[98]:.2f} s",
            f"{self.flood_part:.0%}",
            f"{self.jain:.2f}",
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """Requests of all tenants within so many seconds."""

    name: WorkloadName
    duration_s: float
    seed: int = 0

    @property
    def has_prefixes(self) -> bool:
        return self.name == "shared prefixes"

    def requests(self, share: Share) -> list[ReplayRequest]:
        """Return them in order of arrival; `share` is that of the polite tenants."""
        rng = Random(self.seed)
        fair_per_s = PREFILL_TOKENS_PER_S / (NUM_POLITE + 1) / PROMPT_TOKENS
        computed = PROMPT_TOKENS - PREFIX_TOKENS * self.has_prefixes
        polite_per_s = POLITE_SHARES * fair_per_s * PROMPT_TOKENS / computed
        arrivals = [(at_s, FLOOD) for at_s in _poisson(rng, FLOOD_SHARES * fair_per_s, self)]
        for n in range(NUM_POLITE):
            arrivals += [(at_s, f"polite-{n}") for at_s in _poisson(rng, polite_per_s, self)]
        arrivals.sort()
        return [
            self._request(number, at_s, tenant, _PLAIN if tenant == FLOOD else share)
            for number, (at_s, tenant) in enumerate(arrivals)
        ]

    def _request(self, number: int, at_s: float, tenant: str, share: Share) -> ReplayRequest:
        num_blocks = PROMPT_TOKENS // SCALE // PAGE_TOKENS
        num_prefix = PREFIX_TOKENS // SCALE // PAGE_TOKENS
        own = [(number + 1) * num_blocks + block for block in range(num_blocks)]
        if self.has_prefixes and tenant != FLOOD:
            own[:num_prefix] = range(num_prefix)
        is_long = tenant == FLOOD and self.name == "long answers of the flood"
        num_output = LONG_OUTPUT_TOKENS if is_long else OUTPUT_TOKENS
        trace = TraceRequest(
            number=number,
            arrival_s=at_s,
            num_prompt=PROMPT_TOKENS // SCALE,
            num_output=num_output // SCALE,
            blocks=tuple(own),
            block_tokens=PAGE_TOKENS,
        )
        return ReplayRequest(trace=trace, session=f"s{number}", tenant=tenant, share=share)


def measured(workload: Workload, contender: Contender) -> Figures:
    """Replay the workload with the contender's policy in both members."""
    requests = workload.requests(contender.share)
    costs = Costs().scaled(SCALE)
    prefill = PrefillMember(
        size=MemberSize(cache_tokens=KIMI_PREFILL_TOKENS // SCALE, chunk_tokens=8192 // SCALE),
        cost=costs.prefill,
        policy=contender.policy(),
    )
    decode = DecodeMember(
        size=MemberSize(cache_tokens=KIMI_DECODE_TOKENS // SCALE),
        cost=costs.decode,
        policy=contender.policy(),
    )
    outcome = Simulation(
        prefill=[prefill],
        decode=[decode],
        placement=RoundRobin([prefill], [decode]),
        prompts=Prompts(),
    ).run(requests)
    tenants = {request.trace.number: request.tenant for request in requests}
    return _figures(workload, outcome.requests, tenants)


def _figures(
    workload: Workload, answers: Sequence[Measured], tenants: Mapping[int, str]
) -> Figures:
    wanted: dict[str, float] = defaultdict(float)
    given: dict[str, float] = defaultdict(float)
    for answer in answers:
        tenant = tenants[answer.number]
        cost = answer.num_prompt - answer.num_cached + _COST.output_token * answer.num_output
        wanted[tenant] += cost
        if answer.last_token_s <= workload.duration_s:
            given[tenant] += cost
    fair = max_min(wanted, sum(given.values()))
    over = [given[tenant] / fair[tenant] for tenant in wanted]
    return Figures(
        first_token_s=tuple(
            answer.first_token_s - answer.sent_s
            for answer in sorted(answers, key=lambda answer: answer.number)
            if tenants[answer.number] != FLOOD
        ),
        flood_part=given[FLOOD] / sum(given.values()),
        jain=sum(over) ** 2 / (len(over) * sum(x * x for x in over)),
    )


def max_min(wanted: Mapping[str, float], total: float) -> dict[str, float]:
    """Share out a total: to each what it wants, as far as the others do not get less for it."""
    fair: dict[str, float] = {}
    for tenant in sorted(wanted, key=lambda tenant: wanted[tenant]):
        even = (total - sum(fair.values())) / (len(wanted) - len(fair))
        fair[tenant] = min(wanted[tenant], even)
    return fair


def _poisson(rng: Random, rate_per_s: float, workload: Workload) -> list[float]:
    times = []
    at_s = rng.expovariate(rate_per_s)
    while at_s < workload.duration_s:
        times.append(at_s)
        at_s += rng.expovariate(rate_per_s)
    return times


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=120.0, help="of arrivals (default: 120)")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    header = ["policy", "time to first token, p50", "p99", "flood", "Jain"]
    for name in get_args(WorkloadName):
        workload = Workload(name=name, duration_s=options.seconds, seed=options.seed)
        rows = [[each.name, *measured(workload, each).cells] for each in CONTENDERS]
        print(f"\n{workload.name}\n\n{table(header, rows)}")


if __name__ == "__main__":
    main()
