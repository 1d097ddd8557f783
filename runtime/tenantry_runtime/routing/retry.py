"""How many retries there may be: a share of the requests, so that failures cannot feed on themselves."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass

RETRIES_PER_REQUEST = 0.2
"""Attempts are at most 1.2 times the requests, of a tenant, to a member, and in all."""

RESERVE = 4
"""Retries that may come before the requests that pay for them: a failure soon after the start is
retried too. From the twentieth request on they make no difference to the bound."""

MAX_SAVED = 100.0
"""Retries that quiet times leave over for later."""

MAX_KEYS = 8192
"""Buckets that are kept; beyond, the longest unused goes, and starts anew if it returns."""

_DUST = 1e-9
"""Five fifths are a little less than one."""


@dataclass(frozen=True, slots=True)
class RetryStatistics:
    num_left: float
    """Retries that all tenants together may have now."""
    num_refused: int
    """Failures that were not tried again, as a tenant, a member or all together had none left."""


class TokenBucket:
    """Earns a fraction of a retry with every request, spends a whole one with every retry."""

    __slots__ = ("_debt", "_saved")

    def __init__(self, reserve: int = RESERVE) -> None:
        self._saved = float(reserve)
        self._debt = float(reserve)

    @property
    def num_left(self) -> float:
        return self._saved

    @property
    def can_spend(self) -> bool:
        return self._saved >= 1 - _DUST

    def earn(self) -> None:
        paid = min(self._debt, RETRIES_PER_REQUEST)
        self._debt -= paid
        self._saved = min(MAX_SAVED, self._saved + RETRIES_PER_REQUEST - paid)

    def spend(self) -> None:
        assert self.can_spend
        self._saved -= 1


class RetryBudget:
    """The buckets of all tenants and members, and one for all together."""

    def __init__(self, *, reserve: int = RESERVE, max_keys: int = MAX_KEYS) -> None:
        self._reserve = reserve
        self._max_keys = max_keys
        self._all = TokenBucket(reserve)
        self._by_key: OrderedDict[Hashable, TokenBucket] = OrderedDict()
        self._num_refused = 0

    def statistics(self) -> RetryStatistics:
        return RetryStatistics(self._all.num_left, self._num_refused)

    def earn(self, tenant: str) -> None:
        """A request has come."""
        self._all.earn()
        self._bucket(("tenant", tenant)).earn()

    def earn_at(self, member: Hashable) -> None:
        """A request has been placed on a member."""
        self._bucket(("member", member)).earn()

    def spend(self, tenant: str, member: Hashable) -> bool:
        """Pay for the retry of what failed on the member; False when that is not affordable."""
        buckets = (
            self._all,
            self._bucket(("tenant", tenant)),
            self._bucket(("member", member)),
        )
        if not all(bucket.can_spend for bucket in buckets):
            self._num_refused += 1
            return False
        for bucket in buckets:
            bucket.spend()
        return True

    def _bucket(self, key: Hashable) -> TokenBucket:
        bucket = self._by_key.get(key)
        if bucket is None:
            if len(self._by_key) >= self._max_keys:
                self._by_key.popitem(last=False)
            bucket = self._by_key[key] = TokenBucket(self._reserve)
        self._by_key.move_to_end(key)
        return bucket
