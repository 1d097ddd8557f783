"""Statistics of items that were judged twice: each is right or wrong under two formats.

The difference is the candidate's share of right items less the reference's. Its lower bound and the
test against a margin come from one score statistic, whose variance is estimated under the hypothesis
(T. Tango, Equivalence test and confidence interval for the difference in proportions for the
paired-sample design, Statistics in Medicine 17, 1998, 891-908). It needs no item on which the
formats differ, where a bootstrap would return a bound of 0.

Items of one context are no independent samples. As J. N. K. Rao and A. J. Scott (A simple method for
the analysis of clustered binary data, Biometrics 48, 1992, 577-585), we divide the number of items
by a design effect: the variance of the difference between whole contexts, as N. A. Obuchowski
estimates it (On the comparison of correlated proportions for clustered data, Statistics in Medicine
17, 1998, 1495-1507), over that of as many independent items. Damage is tested by turning the sign of
whole contexts, exactly: McNemar's test where no context has two items that differ.

Several tests share one error rate by S. Holm's step-down procedure (Scandinavian Journal of
Statistics 6, 1979, 65-70).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import copysign, fsum, inf, sqrt
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Variances:
    """Of the sum of differences, in two ways; those of several cells add up."""

    between_contexts: float
    of_items: float
    """If they were independent."""

    @classmethod
    def of(cls, contexts: Sequence[Pairs]) -> Variances:
        """Estimate both from the pairs of each context."""
        total = Pairs.total(contexts)
        residuals = (
            each.num_gained - each.num_lost - each.num_items * total.difference for each in contexts
        )
        num_differing = total.num_lost + total.num_gained
        between = fsum(residual**2 for residual in residuals)
        return cls(
            between_contexts=between * len(contexts) / max(len(contexts) - 1, 1),
            of_items=num_differing - total.num_items * total.difference**2,
        )

    @classmethod
    def total(cls, parts: Iterable[Variances]) -> Variances:
        """Add up those of different cells, and a pair of items that are lost together.

        So little is made of few items that differ: without any, they are taken to come in twos.
        """
        known = list(parts)
        return cls(
            between_contexts=fsum(part.between_contexts for part in known) + 2**2,
            of_items=fsum(part.of_items for part in known) + 2,
        )

    @property
    def ratio(self) -> float:
        return self.between_contexts / self.of_items if self.of_items > 0 else 1.0


def design_effect(own: Variances, together: Variances) -> float:
    """Return how many items count as one: at least one, and as the cell or all cells have it."""
    return max(1.0, own.ratio, together.ratio)


def score(pairs: Pairs, difference: float) -> float:
    """Return Tango's statistic: standard normal, about, if the true difference is this one.

    Of independent items; others have it divided by the square root of their design effect.
    """
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


def lower_bound(pairs: Pairs, design: float = 1.0, *, confidence: float = CONFIDENCE) -> float:
    """Return the difference that the true one exceeds with this confidence."""
    most = _NORMAL.inv_cdf(confidence) * sqrt(design)
    low, high = -1.0, pairs.difference
    for _ in range(_NUM_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if score(pairs, middle) > most else (low, middle)
    return low


def p_not_inferior(pairs: Pairs, margin: float, design: float = 1.0) -> float:
    """Return the chance of such pairs if the candidate were worse by `margin`."""
    return _NORMAL.cdf(-score(pairs, -margin) / sqrt(design))


def p_worse(contexts: Iterable[Pairs]) -> float:
    """Return the chance of so large a loss if in each context the formats might as well be swapped.

    Exact: over all ways to swap them.
    """
    nets = [each.num_lost - each.num_gained for each in contexts]
    # the chance of each sum of the contexts so far
    chances: dict[int, float] = {0: 1.0}
    for net in filter(None, nets):
        swapped: dict[int, float] = defaultdict(float)
        for so_far, chance in chances.items():
            swapped[so_far + net] += chance / 2
            swapped[so_far - net] += chance / 2
        chances = swapped
    return min(fsum(chance for lost, chance in chances.items() if lost >= sum(nets)), 1.0)


def holm(p_values: Sequence[float]) -> list[float]:
    """Return adjusted p-values, in order: those below a level hold together at that level."""
    adjusted = [0.0] * len(p_values)
    largest = 0.0
    ascending = sorted(range(len(p_values)), key=p_values.__getitem__)
    for rank, at in enumerate(ascending):
        largest = max(largest, min((len(p_values) - rank) * p_values[at], 1.0))
        adjusted[at] = largest
    return adjusted
