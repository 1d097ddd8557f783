"""Virtual token counters: who was given least, by cost and weight, is served next.

After Sheng et al., "Fairness in Serving Large Language Models" (OSDI 2024, arXiv 2401.00588). A
tenant's counter is the cost of all that it was given, divided by its weight. The virtual time is
the least counter of those that ask for a turn; where nobody asks, the counter of who asked last. A
tenant that begins to ask is lifted to it: not to have asked earns nothing, and as its own counter
is kept while it is above, going away for a moment forgives nothing. `docs/fairness.md` has the bound.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tenantry_runtime.core import Share

from .policy import Service, ServiceCost

MAX_LEAD = 16_384.0
"""By which a tenant may be ahead of one that it is admitted before, where that one cannot use the room:
two chunks of 8,192 tokens, in units of cost at weight 1. Part of the bound, so no more than it needs."""

MAX_ABSENT = 4096
"""Tenants without sequences whose counters are kept: those furthest ahead of the virtual time, which
passes them within one bound (`docs/fairness.md`), so that more would have to be served within it."""

MAX_TOTALS = 4096
"""Tenants whose totals are kept. A heartbeat of them all is 200 KB; tenants come back sooner."""


@dataclass(slots=True, eq=False)
class _Account:
    counter: float
    weight: float = 1.0
    is_weighed: bool = False
    """False: only others have told of the tenant, and not what it weighs."""
    start: float = 0.0
    """What the counter was when it was opened."""
    num_sequences: int = 0
    num_queued: int = 0


class VirtualCounters:
    """A `Policy`. O(tenants that ask) per call at most."""

    def __init__(self, cost: ServiceCost | None = None, *, max_lead: float = MAX_LEAD) -> None:
        self._cost = cost or ServiceCost()
        self._max_lead = max_lead
        self._present: dict[str, _Account] = {}
        self._queued: dict[str, _Account] = {}
        """Of those present, in the order in which they began to ask: among equals, that decides."""
        self._absent: dict[str, _Account] = {}
        """Ahead of the virtual time, as far as we know."""
        self._num_absent_kept = 0
        self._last: _Account | None = None
        """Of who asked last, while nobody does."""
        self._time = 0.0
        self._totals: dict[str, float] = {}

    @property
    def virtual_time(self) -> float:
        """The counter at which a tenant that nothing is known of begins. Never falls."""
        if self._queued:
            self._time = max(self._time, min(a.counter for a in self._queued.values()))
        elif self._last is not None:
            self._time = max(self._time, self._last.counter)
        return self._time

    @property
    def num_kept(self) -> int:
        """Tenants whose counters are known."""
        return len(self._present) + len(self._absent)

    def counter(self, tenant: str) -> float:
        """Return the tenant's counter, or where it would begin."""
        account = self._present.get(tenant) or self._absent.get(tenant)
        return self.virtual_time if account is None else account.counter

    def enter(self, tenant: str, share: Share) -> None:
        account = self._present.get(tenant)
        if account is None:
            account = self._absent.pop(tenant, None) or self._opened()
            self._present[tenant] = account
        if not account.is_weighed:
            account.counter = account.start + (account.counter - account.start) / share.weight
            account.is_weighed = True
        account.weight = share.weight
        account.num_sequences += 1

    def leave(self, tenant: str) -> None:
        account = self._present[tenant]
        account.num_sequences -= 1
        if account.num_sequences:
            return
        assert not account.num_queued, f"{tenant} asks for turns of sequences that have ended"
        del self._present[tenant]
        self._keep(tenant, account)

    def queue(self, tenant: str) -> None:
        account = self._present[tenant]
        account.num_queued += 1
        if account.num_queued == 1:
            account.counter = max(account.counter, self.virtual_time)
            self._queued[tenant] = account

    def unqueue(self, tenant: str) -> None:
        account = self._present[tenant]
        account.num_queued -= 1
        if not account.num_queued:
            del self._queued[tenant]
            self._last = account

    def admit(self, tenant: str, *, passed_over: Iterable[str] = ()) -> None:
        least = self._present[tenant].counter - self._max_lead
        for other in passed_over:
            account = self._present[other]
            account.counter = max(account.counter, least)

    def may_overtake(self, tenant: str, waiting: str) -> bool:
        lead = self._present[tenant].counter - self._present[waiting].counter
        return lead <= self._max_lead

    def charge(self, tenant: str, service: Service) -> None:
        amount = self._cost.of(service)
        self._add(tenant, amount)
        # who was served longest ago is forgotten first
        self._totals[tenant] = self._totals.pop(tenant, 0.0) + amount
        if len(self._totals) > MAX_TOTALS:
            del self._totals[next(iter(self._totals))]

    def charge_elsewhere(self, tenant: str, amount: float) -> None:
        account = self._add(tenant, amount)
        if not self._queued and (self._last is None or account.counter > self._last.counter):
            # of the whole pool, it is the last that was served
            self._last = account

    def order(self, tenants: Iterable[str]) -> list[str]:
        wanted = frozenset(tenants)
        asking = [(tenant, a) for tenant, a in self._queued.items() if tenant in wanted]
        # a sort keeps the order of equals
        return [tenant for tenant, _ in sorted(asking, key=lambda each: each[1].counter)]

    def totals(self) -> Mapping[str, float]:
        return dict(self._totals)

    def _add(self, tenant: str, amount: float) -> _Account:
        account = self._present.get(tenant) or self._absent.get(tenant)
        is_new = account is None
        account = account or self._opened()
        account.counter += amount / account.weight
        if is_new:
            self._keep(tenant, account)
        return account

    def _opened(self) -> _Account:
        time = self.virtual_time
        return _Account(counter=time, start=time)

    def _keep(self, tenant: str, account: _Account) -> None:
        self._absent[tenant] = account
        # amortized: the walk is as long as what has come since the last one
        if len(self._absent) > 2 * self._num_absent_kept + 64:
            time = self.virtual_time
            ahead = [each for each in self._absent.items() if each[1].counter > time]
            ahead.sort(key=lambda each: each[1].counter, reverse=True)
            self._absent = dict(ahead[:MAX_ABSENT])
            self._num_absent_kept = len(self._absent)
