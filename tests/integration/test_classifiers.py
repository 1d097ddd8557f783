"""The judge of side channels, judged: by published figures, by arithmetic, and by known answers."""

from __future__ import annotations

from statistics import NormalDist

import numpy as np
import pytest

from support.classifiers import (
    Bools,
    Floats,
    auc,
    best_attack,
    by_feature,
    by_forest,
    by_regression,
    cross_fitted,
)

# Hanley and McNeil 1982, table 1: how sure a reader was that each of 109 images was abnormal, 1 to 5
NORMAL = (33, 6, 6, 11, 2)
ABNORMAL = (3, 2, 2, 11, 33)


def rated() -> tuple[Floats, Bools]:
    ratings = np.arange(1.0, 6.0)
    scores = np.concatenate([np.repeat(ratings, NORMAL), np.repeat(ratings, ABNORMAL)])
    return scores, np.arange(109) >= sum(NORMAL)


def drawn(rng: np.random.Generator, num: int, distance: float) -> tuple[Floats, Bools]:
    """Return two normal distributions, whose true AUC is known."""
    truth_N = rng.permutation(num) % 2 == 0
    return rng.normal(size=num) + distance * truth_N, truth_N


def test_the_auc_is_the_published_one() -> None:
    found = auc(*rated())

    assert round(found.value, 3) == 0.893
    # theirs rests on another approximation, and comes to 0.032
    assert found.standard_error == pytest.approx(0.032, abs=0.002)


def test_auc_and_error_are_those_of_every_pair_compared() -> None:
    rng = np.random.default_rng(1)
    scores_N, truth_N = rng.integers(0, 6, size=60).astype(float), rng.random(60) < 0.4
    above = [
        [(true > false) + (true == false) / 2 for false in scores_N[~truth_N]]
        for true in scores_N[truth_N]
    ]
    pairs = np.array(above)
    variance = pairs.mean(1).var(ddof=1) / len(pairs) + pairs.mean(0).var(ddof=1) / len(pairs.T)

    found = auc(scores_N, truth_N)

    assert found.value == pytest.approx(pairs.mean())
    assert found.standard_error == pytest.approx(np.sqrt(variance))


@pytest.mark.parametrize("distance", [0.0, 0.5, 1.5])
def test_the_truth_is_below_the_upper_bound_in_95_of_100_experiments(distance: float) -> None:
    rng = np.random.default_rng(2)
    truth = NormalDist().cdf(distance / np.sqrt(2))

    num_right = sum(auc(*drawn(rng, 300, distance)).upper >= truth for _ in range(2000))

    # four standard errors of a share of 2,000
    assert num_right / 2000 == pytest.approx(0.95, abs=4 * np.sqrt(0.95 * 0.05 / 2000))


@pytest.mark.parametrize("scale", [1, -1], ids=["rising", "falling"])
def test_what_one_number_tells_is_found_whichever_way_it_goes(scale: int) -> None:
    score_N, truth_N = drawn(np.random.default_rng(3), 2000, 1.0)
    seen_NF = np.stack([np.zeros(2000), scale * np.exp(score_N)], axis=1)

    found = best_attack(seen_NF, truth_N)

    # the classifiers' own mistakes cost a little of 0.76
    assert found["number 0 alone"].value == 0.5
    for name in ("number 1 alone", "regression", "forest"):
        assert found[name].value == pytest.approx(NormalDist().cdf(1 / np.sqrt(2)), abs=0.03)


def test_what_two_numbers_tell_together_is_found() -> None:
    rng = np.random.default_rng(4)
    seen_NF = rng.random((2000, 2))
    truth_N = (seen_NF[:, 0] > 0.5) != (seen_NF[:, 1] > 0.4)

    assert cross_fitted(by_feature(0), seen_NF, truth_N, rng).value < 0.65
    assert cross_fitted(by_forest(rng), seen_NF, truth_N, rng).value > 0.9


def test_what_lies_in_the_middle_is_found() -> None:
    rng = np.random.default_rng(5)
    seen_NF = rng.random((2000, 1))
    truth_N = np.abs(seen_NF[:, 0] - 0.5) < 0.25

    assert cross_fitted(by_regression, seen_NF, truth_N, rng).value > 0.95
    assert cross_fitted(by_forest(rng), seen_NF, truth_N, rng).value > 0.95


def test_nobody_learns_from_noise() -> None:
    """However hard a classifier tries: it is judged by what it has not seen."""
    found = []
    for seed in range(10):
        rng = np.random.default_rng(seed)
        seen_NF, truth_N = rng.random((1000, 3)), rng.permutation(1000) % 2 == 0
        found += [attack.value for attack in best_attack(seen_NF, truth_N, seed=seed).values()]

    # the standard error of one is 0.018
    assert np.mean(found) < 0.51
    assert max(found) < 0.5 + 4 * 0.018
