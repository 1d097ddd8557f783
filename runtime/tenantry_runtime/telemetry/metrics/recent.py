"""The latest requests of this edge, for a page that shows the last minutes without a database."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import ceil

MAX_KEPT = 8192
SPAN_S = 600.0
BUCKET_S = 10.0
QUANTILES = (0.5, 0.9, 0.99)


@dataclass(frozen=True, slots=True)
class _Kept:
    ended_s: float
    model: str
    first_token_s: float | None
    per_token_s: float | None
    num_tokens: int
    is_ok: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Slice:
    """What ended in one stretch of time, of one model."""

    age_s: float
    """Of its end."""
    num_requests: int
    num_failed: int
    num_tokens: int
    """Written."""
    first_token_s: tuple[float, ...]
    """`QUANTILES`; empty where there was none."""
    per_token_s: tuple[float, ...]


class RecentRequests:
    """Keeps so many, and forgets the oldest."""

    def __init__(self, *, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._clock_s = clock_s
        self._kept: deque[_Kept] = deque(maxlen=MAX_KEPT)

    def add(
        self,
        model: str,
        *,
        first_token_s: float | None,
        per_token_s: float | None,
        num_tokens: int,
        is_ok: bool,
    ) -> None:
        now_s = self._clock_s()
        self._kept.append(_Kept(now_s, model, first_token_s, per_token_s, num_tokens, is_ok))

    def slices(self, model: str) -> list[Slice]:
        """Return the last minutes in stretches of `BUCKET_S`, the oldest first. O(kept)."""
        now_s = self._clock_s()
        num_slices = ceil(SPAN_S / BUCKET_S)
        stretches: list[list[_Kept]] = [[] for _ in range(num_slices)]
        for each in self._kept:
            number = int((now_s - each.ended_s) / BUCKET_S)
            if each.model == model and number < num_slices:
                stretches[number].append(each)
        return [
            _slice(number * BUCKET_S, stretches[number]) for number in reversed(range(num_slices))
        ]


def quantiles(values: Iterable[float]) -> tuple[float, ...]:
    """Return `QUANTILES` of the values, each one of them (nearest rank); none of none."""
    ordered: Sequence[float] = sorted(values)
    if not ordered:
        return ()
    return tuple(ordered[max(ceil(q * len(ordered)) - 1, 0)] for q in QUANTILES)


def _slice(age_s: float, kept: Sequence[_Kept]) -> Slice:
    return Slice(
        age_s=age_s,
        num_requests=len(kept),
        num_failed=sum(not each.is_ok for each in kept),
        num_tokens=sum(each.num_tokens for each in kept),
        first_token_s=quantiles(s for each in kept if (s := each.first_token_s) is not None),
        per_token_s=quantiles(s for each in kept if (s := each.per_token_s) is not None),
    )
