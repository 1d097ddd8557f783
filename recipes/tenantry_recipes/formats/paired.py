"""Statistics of items that were judged twice: each is right or wrong under two formats.

The difference is the candidate's share of right items less the reference's. Its lower bound and the
test against a margin come from one score statistic, whose variance is estimated under the hypothesis
(T. Tango, Equivalence test and confidence interval for the difference in proportions for the
paired-sample design, Statistics in Medicine 17, 1998, 891-908). It needs no item on which the
formats differ, where a bootstrap would return a bound of 0. Several tests share one error rate by
S. Holm's step-down procedure (Scandinavian Journal of Statistics 6, 1979, 65-70).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import copysign, exp, fsum, inf, lgamma, log, sqrt
from statistics import NormalDist

CONFIDENCE = 0.95
"""Of one-sided bounds."""
_NUM_HALVINGS = 60
"""Of an interval of at most 2: below the resolution of a float."""
_NORMAL = NormalDist()


@dataclass(frozen=True, slots=True, kw_only=True)
class Pairs:
    """How often two formats differ."""

    num_items: int
    num_right: int
    """Of the reference's."""
    num_lost: int
    """Right by the reference alone."""
    num_gained: int
    """Right by the candidate alone."""

    @classmethod
    def of(cls, verdicts: Iterable[tuple[bool, bool]]) -> Pairs:
        """Count pairs of the reference's and the candidate's verdict."""
        pairs = list(verdicts)
        return cls(
            num_items=len(pairs),
            num_right=sum(reference for reference, _ in pairs),
            num_lost=pairs.count((True, False)),
            num_gained=pairs.count((False, True)),
        )

    @classmethod
    def total(cls, parts: Sequence[Pairs]) -> Pairs:
        """Add up pairs of different items."""
        return cls(
            num_items=sum(part.num_items for part in parts),
            num_right=sum(part.num_right for part in parts),
            num_lost=sum(part.num_lost for part in parts),
            num_gained=sum(part.num_gained for part in parts),
        )

    @property
    def reference(self) -> float:
        return self.num_right / self.num_items

    @property
    def candidate(self) -> float:
        return (self.num_right - self.num_lost + self.num_gained) / self.num_items

    @property
    def difference(self) -> float:
        return (self.num_gained - self.num_lost) / self.num_items


def score(pairs: Pairs, difference: float) -> float:
    """Return Tango's statistic: standard normal, about, if the true difference is this one."""
    n, lost, gained = pairs.num_items, pairs.num_lost, pairs.num_gained
    # the maximum likelihood estimate of the share that is lost solves a quadratic equation
    linear = -lost - gained + (2 * n - gained + lost) * difference
    constant = -lost * difference * (1 - difference)
    root = sqrt(max(linear * linear - 8 * n * constant, 0.0))
    share_lost = (root - linear) / (4 * n)
    variance = n * (2 * share_lost + difference * (1 - difference))
    surplus = gained - lost - n * difference
    if variance <= 0:
        return copysign(inf, surplus) if surplus else 0.0
    return surplus / sqrt(variance)


def lower_bound(pairs: Pairs, confidence: float = CONFIDENCE) -> float:
    """Return the difference that the true one exceeds with this confidence."""
    most = _NORMAL.inv_cdf(confidence)
    low, high = -1.0, pairs.difference
    for _ in range(_NUM_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if score(pairs, middle) > most else (low, middle)
    return low


def p_not_inferior(pairs: Pairs, margin: float) -> float:
    """Return the chance of such pairs if the candidate were worse by `margin`."""
    return _NORMAL.cdf(-score(pairs, -margin))


def p_worse(pairs: Pairs) -> float:
    """Return the chance of as many losses among the items that differ if each were even odds.

    McNemar's test, one-sided and exact.
    """
    differing = pairs.num_lost + pairs.num_gained
    even = differing * log(2)
    return min(
        fsum(
            exp(_log_choose(differing, lost) - even)
            for lost in range(pairs.num_lost, differing + 1)
        ),
        1.0,
    )


def holm(p_values: Sequence[float]) -> list[float]:
    """Return adjusted p-values, in order: those below a level hold together at that level."""
    adjusted = [0.0] * len(p_values)
    largest = 0.0
    ascending = sorted(range(len(p_values)), key=p_values.__getitem__)
    for rank, at in enumerate(ascending):
        largest = max(largest, min((len(p_values) - rank) * p_values[at], 1.0))
        adjusted[at] = largest
    return adjusted


def _log_choose(n: int, k: int) -> float:
    return lgamma(n + 1) - lgamma(k + 1) - lgamma(n - k + 1)
