"""What an edge remembers of its transactions: enough to refuse without another, and for headers.

What it refuses by holds whatever the other edges do: requests of a minute only get more, and so do the
neurons of a day. Tokens may be given back by another edge, so that nothing is refused by them.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Mapping
from typing import Generic, TypeVar

from tenantry_runtime.core import TenantId
from tenantry_runtime.errors import LimitExceeded

from . import rates
from .balances import Balances, RateKey, Wait, day_of, refusal
from .rates import Level
from .terms import REQUESTS, Place, Terms

MAX_KEYS = 16_384
"""Of each kind; beyond, the longest unused is forgotten."""

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Knowledge:
    """Of one edge. Changed with every transaction."""

    def __init__(self, own_open: Mapping[Place, int], *, max_keys: int = MAX_KEYS) -> None:
        """`own_open` is looked at each time."""
        self._own_open = own_open
        self._levels = _Latest[RateKey, Level](max_keys)
        self._others_open = _Latest[Place, int](max_keys)
        self._spent = _Latest[TenantId, tuple[str, int]](max_keys)

    def note(self, balances: Balances) -> None:
        """Remember what a transaction has found and left."""
        day = day_of(balances.now_us)
        for key, level in balances.levels.items():
            self._levels.put(key, level)
        for place, num_open in balances.others_open.items():
            self._others_open.put(place, num_open)
        for tenant, cost in balances.spent.items():
            self._spent.put(tenant, (day, cost))

    def refusal(self, terms: Terms, now_us: int) -> LimitExceeded | None:
        """Return why a request cannot run, if that is certain."""
        waits = []
        level = self.level(terms.place, REQUESTS)
        if level is not None and terms.requests_per_minute is not None:
            cost_us = rates.cost_us(1, terms.requests_per_minute)
            waits.append(Wait(REQUESTS, rates.wait_us(level, cost_us, now_us)))
        return refusal(
            terms,
            now_us,
            spent=self.spent(terms.place.tenant, now_us) or 0,
            num_open=self._own_open.get(terms.place, 0),
            waits=waits,
        )

    def level(self, place: Place, limit: str) -> Level | None:
        return self._levels.get(RateKey(place, limit))

    def num_open(self, place: Place) -> int | None:
        """Return how many requests are open, at other edges as of the latest transaction."""
        others = self._others_open.get(place)
        return None if others is None else others + self._own_open.get(place, 0)

    def spent(self, tenant: TenantId, now_us: int) -> int | None:
        """Return what a tenant has spent today, in pico-USD."""
        known = self._spent.get(tenant)
        return known[1] if known is not None and known[0] == day_of(now_us) else None


class _Latest(Generic[K, V]):
    def __init__(self, max_keys: int) -> None:
        self._max_keys = max_keys
        self._by_key: OrderedDict[K, V] = OrderedDict()

    def get(self, key: K) -> V | None:
        return self._by_key.get(key)

    def put(self, key: K, value: V) -> None:
        self._by_key[key] = value
        self._by_key.move_to_end(key)
        if len(self._by_key) > self._max_keys:
            self._by_key.popitem(last=False)
