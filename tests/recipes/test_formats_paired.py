"""Statistics of pairs, against values worked out in other ways."""

from __future__ import annotations

import random
from fractions import Fraction
from itertools import product
from math import comb, log, sqrt

import pytest

from tenantry_recipes.formats.paired import (
    Pairs,
    Variances,
    design_effect,
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


def alone(*, lost: int, gained: int) -> list[Pairs]:
    """Contexts of ten items, in none of which two differ."""
    return [pairs(10, lost=1, gained=0)] * lost + [pairs(10, lost=0, gained=1)] * gained


@pytest.mark.parametrize(("lost", "gained"), [(0, 0), (5, 0), (0, 5), (9, 3), (30, 30), (300, 250)])
def test_damage_of_single_items_is_tested_as_mcnemar_does(lost: int, gained: int) -> None:
    differing = lost + gained
    ways = sum(comb(differing, k) for k in range(lost, differing + 1))

    expected = float(Fraction(ways, 2**differing))
    assert p_worse(alone(lost=lost, gained=gained)) == pytest.approx(expected, rel=1e-9)


def test_damage_of_whole_contexts_is_tested_over_all_ways_to_swap_the_formats() -> None:
    nets = [5, 3, 3, 1, -2, 4, 0, -1]
    contexts = [pairs(16, lost=max(net, 0) + 2, gained=max(-net, 0) + 2) for net in nets]
    swaps = list(product((1, -1), repeat=len(nets)))
    as_large = sum(
        sum(sign * net for sign, net in zip(signs, nets, strict=True)) >= sum(nets)
        for signs in swaps
    )

    assert p_worse(contexts) == pytest.approx(as_large / len(swaps))


def test_items_that_differ_alone_count_as_one_each() -> None:
    contexts = [*alone(lost=50, gained=30), *[pairs(10, lost=0, gained=0)] * 920]

    assert Variances.of(contexts).ratio == pytest.approx(1.0, abs=0.01)


def test_contexts_that_are_lost_as_a_whole_count_as_one_item_each() -> None:
    contexts = [pairs(16, lost=16, gained=0)] * 10 + [pairs(16, lost=0, gained=0)] * 990
    own = Variances.of(contexts)

    assert own.ratio == pytest.approx(16, rel=0.01)
    # the interval is then that of a thousand items of which ten are lost
    bound = lower_bound(Pairs.total(contexts), design_effect(own, Variances.total([own])))
    assert bound == pytest.approx(lower_bound(pairs(1000, lost=10, gained=0)), rel=0.02)


def test_without_items_that_differ_two_count_as_one() -> None:
    own = Variances.of([pairs(16, lost=0, gained=0)] * 125)

    assert design_effect(own, Variances.total([own])) == 2.0
    assert lower_bound(pairs(2000, lost=0, gained=0), 2.0) == pytest.approx(
        -(Z95**2) / (1000 + Z95**2), abs=1e-9
    )


def test_a_cell_without_items_that_differ_learns_from_the_others() -> None:
    quiet = Variances.of([pairs(16, lost=0, gained=0)] * 100)
    loud = Variances.of([pairs(16, lost=4, gained=0)] * 40 + [pairs(16, lost=0, gained=0)] * 960)

    assert design_effect(quiet, Variances.total([quiet, loud])) == pytest.approx(4.0, rel=0.05)


@pytest.mark.parametrize(
    ("share_lost", "share_gained", "alike"),
    [(0.01, 0.0, 0.0), (0.01, 0.005, 0.05), (0.01, 0.0, 0.15), (0.02, 0.01, 0.3)],
)
def test_bounds_of_contexts_lie_below_the_truth_as_often_as_they_say(
    share_lost: float, share_gained: float, alike: float
) -> None:
    """Each context has its own chance to lose an item, and to gain one; `alike` is how like are two."""
    rng = random.Random(f"{share_lost} {share_gained} {alike}")
    num_below = num_naive = 0
    for _ in range(_NUM_RUNS):
        cells = [
            [_a_context(rng, share_lost, share_gained, alike) for _ in range(_NUM_CONTEXTS)]
            for _ in range(_NUM_CELLS)
        ]
        own = [Variances.of(contexts) for contexts in cells]
        together = Variances.total(own)
        for contexts, variances in zip(cells, own, strict=True):
            total = Pairs.total(contexts)
            # the bound lies below the truth where the test against the truth is not significant
            loss = share_lost - share_gained
            design = design_effect(variances, together)
            num_below += p_not_inferior(total, loss, design) >= 0.05
            num_naive += p_not_inferior(total, loss) >= 0.05

    covered = num_below / (_NUM_RUNS * _NUM_CELLS)
    # five standard errors of a share of 95%
    assert covered > 0.95 - 5 * sqrt(0.95 * 0.05 / (_NUM_RUNS * _NUM_CELLS))
    assert num_naive <= num_below
    if alike == 0.15:
        assert num_naive / (_NUM_RUNS * _NUM_CELLS) < 0.9


_NUM_RUNS, _NUM_CELLS, _NUM_CONTEXTS, _NUM_EACH = 40, 8, 125, 16


def _a_context(rng: random.Random, share_lost: float, share_gained: float, alike: float) -> Pairs:
    """Draw the chances of a context from beta distributions, and its items from them."""

    def chance(mean: float) -> float:
        if not alike or not mean:
            return mean
        spread = (1 - alike) / alike
        return rng.betavariate(mean * spread, (1 - mean) * spread)

    lost, gained = chance(share_lost), chance(share_gained)
    draws = [rng.random() for _ in range(_NUM_EACH)]
    return pairs(
        _NUM_EACH,
        lost=sum(draw < lost for draw in draws),
        gained=sum(draw > 1 - gained for draw in draws),
    )


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
