"""Where tenants stand at one instant, and what that admits."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import NamedTuple

from tenantry_runtime.core import TenantId
from tenantry_runtime.errors import LimitExceeded, QuotaExceeded, RateExceeded

from . import rates
from .rates import Level, Reservation
from .terms import CONCURRENT, NEURONS, REQUESTS, TOKENS, Place, Terms

DAY_US = 86_400_000_000

RETRY_OPEN_S = 1
"""After a refusal for too many open requests: nobody knows when the next one ends."""


class RateKey(NamedTuple):
    """A row of `rates`."""

    place: Place
    limit: str


class Admission(NamedTuple):
    """What an admitted request holds."""

    terms: Terms
    tokens: Reservation | None
    """None where they are not limited."""


class Settlement(NamedTuple):
    """What an admitted request came to."""

    place: Place
    tokens: Reservation
    used_us: int


class Wait(NamedTuple):
    """How long a rate keeps a request."""

    limit: str
    wait_us: int


@dataclass(slots=True, eq=False, kw_only=True)
class Balances:
    """What a transaction knows of its tenants. Changed by what it admits."""

    now_us: int
    levels: dict[RateKey, Level]
    own_open: dict[Place, int]
    """Requests open at this edge."""
    others_open: Mapping[Place, int]
    spent: Mapping[TenantId, int]
    """Today, in pico-USD."""
    changed: set[RateKey] = field(default_factory=set)
    """Of the levels."""

    def admit(self, terms: Terms, num_tokens: int) -> Admission:
        """Take what a request needs, or else nothing; `num_tokens` is what it may come to.

        A request for more tokens than a whole minute's waits for all of those, and pays the rest when
        it has ended. Raises `RateExceeded` or `QuotaExceeded` for what keeps it the longest.
        """
        place = terms.place
        costs = _costs(terms, num_tokens)
        refused = refusal(
            terms,
            self.now_us,
            spent=self.spent.get(place.tenant, 0),
            num_open=self.own_open.get(place, 0) + self.others_open.get(place, 0),
            waits=[
                Wait(key.limit, rates.wait_us(self.levels[key], cost_us, self.now_us))
                for key, cost_us in costs.items()
            ],
        )
        if refused is not None:
            raise refused
        reserved = {key.limit: self._reserve(key, cost_us) for key, cost_us in costs.items()}
        if terms.concurrent_requests is not None:
            self.own_open[place] = self.own_open.get(place, 0) + 1
        return Admission(terms, reserved.get(TOKENS))

    def settle(self, settlement: Settlement) -> None:
        """Correct what a request had reserved."""
        key = RateKey(settlement.place, TOKENS)
        level, tokens = self.levels[key], settlement.tokens
        self.levels[key] = rates.settle(level, tokens, settlement.used_us, self.now_us)
        self.changed.add(key)

    def _reserve(self, key: RateKey, cost_us: int) -> Reservation:
        self.levels[key], reservation = rates.reserve(self.levels[key], cost_us, self.now_us)
        self.changed.add(key)
        return reservation


def refusal(
    terms: Terms, now_us: int, *, spent: int, num_open: int, waits: Iterable[Wait]
) -> LimitExceeded | None:
    """Return what keeps a request the longest, if anything does."""
    refusals: list[LimitExceeded] = []
    if terms.daily_cost is not None and spent >= terms.daily_cost:
        refusals.append(QuotaExceeded(NEURONS, seconds_of_day(now_us)))
    refusals += [RateExceeded(limit, seconds(wait_us)) for limit, wait_us in waits if wait_us]
    if terms.concurrent_requests is not None and num_open >= terms.concurrent_requests:
        refusals.append(RateExceeded(CONCURRENT, RETRY_OPEN_S))
    return max(refusals, key=lambda refused: refused.retry_after_s, default=None)


def seconds(wait_us: int) -> int:
    """Round up: who comes back then is not too early. At least one."""
    return max(1, -(-wait_us // 1_000_000))


def seconds_of_day(now_us: int) -> int:
    """Return what is left of the day, in UTC."""
    return seconds(DAY_US - now_us % DAY_US)


def day_of(now_us: int) -> str:
    """Return the day in UTC, as `daily_usage` has it."""
    return datetime.fromtimestamp(now_us // 1_000_000, UTC).date().isoformat()


def _costs(terms: Terms, num_tokens: int) -> dict[RateKey, int]:
    costs: dict[RateKey, int] = {}
    if terms.requests_per_minute is not None:
        costs[RateKey(terms.place, REQUESTS)] = rates.cost_us(1, terms.requests_per_minute)
    if terms.tokens_per_minute is not None:
        most = min(num_tokens, terms.tokens_per_minute)
        costs[RateKey(terms.place, TOKENS)] = rates.cost_us(most, terms.tokens_per_minute)
    return costs
