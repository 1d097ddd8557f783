"""How long answers turn out to be, by tenant and model."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import OrderedDict, deque
from math import ceil

QUANTILE = 0.9
"""Nine of ten answers are no longer than expected; the tenth is what preemption is for."""

WINDOW = 128
"""Latest answers that count: enough for a 90th percentile that rests on a dozen of them."""

MAX_KEYS = 4096
"""Pairs of tenant and model that are kept; beyond, the longest unused goes."""

UNKNOWN_TOKENS = 512
"""Expected of a tenant and model without an answer yet."""


class RunningQuantile:
    """A quantile of the latest values: the least one that so many of them do not exceed."""

    def __init__(self, *, quantile: float = QUANTILE, window: int = WINDOW) -> None:
        assert 0 < quantile <= 1 and window > 0
        self._quantile = quantile
        self._window = window
        self._latest: deque[int] = deque()
        self._sorted: list[int] = []

    def add(self, value: int) -> None:
        if len(self._latest) == self._window:
            del self._sorted[bisect_left(self._sorted, self._latest.popleft())]
        self._latest.append(value)
        insort(self._sorted, value)

    @property
    def value(self) -> int | None:
        """None before the first value."""
        if not self._sorted:
            return None
        # rounded, lest 0.9 * 10 be more than 9
        rank = ceil(round(self._quantile * len(self._sorted), 9))
        return self._sorted[rank - 1]


class OutputLengths:
    """Expects of a request what most answers of its tenant and model came to."""

    def __init__(self, *, unknown_tokens: int = UNKNOWN_TOKENS, max_keys: int = MAX_KEYS) -> None:
        self._unknown_tokens = unknown_tokens
        self._max_keys = max_keys
        self._by_key: OrderedDict[tuple[str, str], RunningQuantile] = OrderedDict()

    def add(self, tenant: str, model: str, num_tokens: int) -> None:
        """Count an answer that has come to its end."""
        key = tenant, model
        quantile = self._by_key.get(key)
        if quantile is None:
            if len(self._by_key) >= self._max_keys:
                self._by_key.popitem(last=False)
            quantile = self._by_key[key] = RunningQuantile()
        self._by_key.move_to_end(key)
        quantile.add(num_tokens)

    def expected(self, tenant: str, model: str, max_tokens: int | None) -> int:
        """Return how many tokens to make room for; never more than `max_tokens`."""
        quantile = self._by_key.get((tenant, model))
        usual = self._unknown_tokens if quantile is None else quantile.value
        assert usual is not None
        return usual if max_tokens is None else min(usual, max_tokens)
