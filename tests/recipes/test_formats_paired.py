"""Statistics of pairs, against values worked out in other ways."""

from __future__ import annotations

from fractions import Fraction
from math import comb, log, sqrt

import pytest

from tenantry_recipes.formats.paired import (
    Pairs,
    holm,
    lower_bound,
    p_not_inferior,
    p_worse,
    score,
)

Z95 = 1.6448536269514722
"""One-sided 95% point of a standard normal, from tables."""


def pairs(num_items: int, *, lost: int, gained: int) -> Pairs:
    return Pairs(
        num_items=num_items, num_right=num_items - gained, num_lost=lost, num_gained=gained
    )


def score_by_search(counts: Pairs, difference: float) -> float:
    """Tango's statistic with the likelihood's maximum found by trying shares, not solved for."""
    n, lost, gained = counts.num_items, counts.num_lost, counts.num_gained

    def likelihood(share_lost: float) -> float:
        share_gained = share_lost + difference
        rest = 1 - share_lost - share_gained
        terms = ((lost, share_lost), (gained, share_gained), (n - lost - gained, rest))
        if any(share < 0 or (count and share == 0) for count, share in terms):
            return -float("inf")
        return sum(count * log(share) for count, share in terms if count)

    low, high = max(0.0, -difference), (1 - difference) / 2
    best = low
    for _ in range(6):
        step = (high - low) / 200
        best = max((low + step * k for k in range(201)), key=likelihood)
        low, high = max(low, best - step), min(high, best + step)
    variance = (2 * best + difference - difference**2) * n
    return (gained - lost - n * difference) / sqrt(variance)


@pytest.mark.parametrize(
    ("num_items", "lost", "gained"), [(21, 7, 1), (160, 20, 40), (2000, 30, 20), (2000, 3, 0)]
)
@pytest.mark.parametrize("difference", [-0.4, -0.1, -0.01, 0.003])
def test_the_score_is_that_of_the_most_likely_shares(
    num_items: int, lost: int, gained: int, difference: float
) -> None:
    counts = pairs(num_items, lost=lost, gained=gained)

    assert score(counts, difference) == pytest.approx(
        score_by_search(counts, difference), rel=1e-3, abs=1e-6
    )


def test_without_any_difference_the_bound_is_that_of_no_loss_in_so_many_items() -> None:
    # then share_lost = -d and the statistic is -n d / sqrt(n (-d - d^2)): solved for d by hand
    expected = -(Z95**2) / (2000 + Z95**2)

    assert lower_bound(pairs(2000, lost=0, gained=0)) == pytest.approx(expected, abs=1e-9)


def test_at_no_difference_the_score_is_mcnemars() -> None:
    assert score(pairs(500, lost=25, gained=9), 0.0) == pytest.approx((9 - 25) / sqrt(25 + 9))


def test_the_bound_is_where_the_test_against_a_margin_turns() -> None:
    counts = pairs(2000, lost=14, gained=9)
    bound = lower_bound(counts)

    assert p_not_inferior(counts, -bound) == pytest.approx(0.05, abs=1e-6)
    assert p_not_inferior(counts, -bound + 0.001) < 0.05 < p_not_inferior(counts, -bound - 0.001)


def test_with_many_items_the_bound_is_the_normal_one() -> None:
    n, lost, gained = 1_000_000, 4000, 3000
    difference = (gained - lost) / n
    error = sqrt(((lost + gained) / n - difference**2) / n)

    bound = lower_bound(pairs(n, lost=lost, gained=gained))
    assert bound == pytest.approx(difference - Z95 * error, rel=2e-3)


def test_a_bound_of_the_right_share_of_samples_lies_below_the_truth() -> None:
    """Over all samples of 40 items, weighted by their chance where 8% are lost and 4% gained."""
    n, lost, gained = 40, Fraction(8, 100), Fraction(4, 100)
    covered = Fraction(0)
    for num_lost in range(16):
        for num_gained in range(12):
            same = n - num_lost - num_gained
            ways = comb(n, num_lost) * comb(n - num_lost, num_gained)
            chance = ways * lost**num_lost * gained**num_gained * (1 - lost - gained) ** same
            if lower_bound(pairs(n, lost=num_lost, gained=num_gained)) <= -0.04:
                covered += chance

    assert 0.93 < covered < 0.97


@pytest.mark.parametrize(("lost", "gained"), [(0, 0), (5, 0), (0, 5), (9, 3), (30, 30), (300, 250)])
def test_the_chance_of_so_many_losses_is_counted_exactly(lost: int, gained: int) -> None:
    differing = lost + gained
    ways = sum(comb(differing, k) for k in range(lost, differing + 1))

    expected = float(Fraction(ways, 2**differing))
    assert p_worse(pairs(1000, lost=lost, gained=gained)) == pytest.approx(expected, rel=1e-9)


def test_holm_multiplies_by_how_many_are_left_and_never_falls() -> None:
    # by hand: 0.005 * 4, 0.01 * 3, then 0.03 * 2 = 0.06, and 0.04 * 1 may not be below that
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])


def test_holm_of_nothing_is_nothing_and_no_chance_exceeds_one() -> None:
    assert holm([]) == []
    assert holm([0.7, 0.8]) == [1.0, 1.0]


def test_pairs_are_counted_by_which_side_was_right() -> None:
    counted = Pairs.of([(True, True), (True, False), (True, False), (False, True), (False, False)])

    assert (counted.num_items, counted.num_right) == (5, 3)
    assert (counted.num_lost, counted.num_gained) == (2, 1)
    assert (counted.reference, counted.candidate) == (0.6, 0.4)
    assert counted.difference == pytest.approx(-0.2)
