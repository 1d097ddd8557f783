"""How well one can tell two kinds of observations apart, and how sure one can be of that.

The judge of side channels: an attacker sees a few numbers of each trial, and guesses which of two
things was the case. The area under the ROC curve (AUC) is the chance that a trial of the one kind is
ranked above one of the other: 0.5 is guessing, 1 is knowing.

| classifier | ranks trials by | learns |
|---|---|---|
| `by_feature` | one of the numbers, up or down | which way is up |
| `by_forest` | votes of shallow trees over all numbers | everything |
| `by_regression` | a logistic regression over ranks of the numbers | weights |

Whatever is learned is learned from other trials than those that are judged (cross-fitting), so that
none looks good by chance of having been chosen for it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from statistics import NormalDist
from typing import Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

# N: trials, F: numbers seen of each
Floats: TypeAlias = npt.NDArray[np.float64]
Bools: TypeAlias = npt.NDArray[np.bool_]

NUM_FOLDS = 5

CONFIDENCE = 0.95
"""One-sided: the true AUC is below the upper bound in so many experiments of a hundred."""


class Classifier(Protocol):
    """Learns from some trials, and scores others: higher means more likely true."""

    def __call__(self, seen_NF: Floats, truth_N: Bools, judged_MF: Floats) -> Floats: ...


@dataclass(frozen=True, slots=True)
class Auc:
    """An estimate, and how far it may be off."""

    value: float
    standard_error: float
    """DeLong's."""

    @property
    def upper(self) -> float:
        return self.value + NormalDist().inv_cdf(CONFIDENCE) * self.standard_error

    @property
    def lower(self) -> float:
        return self.value - NormalDist().inv_cdf(CONFIDENCE) * self.standard_error

    def __str__(self) -> str:
        return f"{self.value:.4f} (95% within {self.lower:.4f} to {self.upper:.4f})"


def auc(scores_N: Floats, truth_N: Bools) -> Auc:
    """Return the AUC with DeLong's standard error: exact for ties, no assumption on the scores.

    With n and m trials of either kind, and placements V (the share of the other kind that a trial is
    ranked above, half for ties), the AUC is the mean of V, its variance var(V_true)/n + var(V_false)/m.
    """
    true_n, false_m = scores_N[truth_N], scores_N[~truth_N]
    assert len(true_n) > 1 and len(false_m) > 1
    placements_n = _share_below(false_m, true_n)
    placements_m = 1 - _share_below(true_n, false_m)
    variance = placements_n.var(ddof=1) / len(true_n) + placements_m.var(ddof=1) / len(false_m)
    return Auc(float(placements_n.mean()), float(np.sqrt(variance)))


def cross_fitted(
    classifier: Classifier, seen_NF: Floats, truth_N: Bools, rng: np.random.Generator
) -> Auc:
    """Judge a classifier by trials that it has not learned from.

    Scores are turned into ranks within their fold: those of two folds come from two classifiers.
    """
    fold_N = rng.permutation(len(truth_N)) % NUM_FOLDS
    rank_N = np.empty(len(truth_N))
    for fold in range(NUM_FOLDS):
        judged = fold_N == fold
        scores_M = classifier(seen_NF[~judged], truth_N[~judged], seen_NF[judged])
        rank_N[judged] = _ranks(scores_M) / judged.sum()
    return auc(rank_N, truth_N)


def best_attack(seen_NF: Floats, truth_N: Bools, *, seed: int = 0) -> dict[str, Auc]:
    """Judge every classifier, each number alone and all of them together."""
    rng = np.random.default_rng(seed)
    attacks: dict[str, Classifier] = {
        f"number {feature} alone": by_feature(feature) for feature in range(seen_NF.shape[1])
    }
    attacks |= {"regression": by_regression, "forest": by_forest(rng)}
    return {name: cross_fitted(each, seen_NF, truth_N, rng) for name, each in attacks.items()}


def by_feature(feature: int) -> Classifier:
    """Rank by one number, in the direction that was right for the trials that were seen."""

    def rank(seen_NF: Floats, truth_N: Bools, judged_MF: Floats) -> Floats:
        is_rising = auc(seen_NF[:, feature], truth_N).value >= 0.5
        return judged_MF[:, feature] * (1 if is_rising else -1)

    return rank


def by_regression(seen_NF: Floats, truth_N: Bools, judged_MF: Floats) -> Floats:
    """Fit a logistic regression by Newton's method, with a small ridge; ranks tame outliers."""
    design_NK = _design(seen_NF, seen_NF)
    weights_K = np.zeros(design_NK.shape[1])
    ridge_KK = np.eye(len(weights_K))
    for _ in range(20):
        chance_N = 1 / (1 + np.exp(-design_NK @ weights_K))
        gradient_K = design_NK.T @ (truth_N - chance_N) - ridge_KK @ weights_K
        curvature_KK = (design_NK.T * (chance_N * (1 - chance_N))) @ design_NK + ridge_KK
        weights_K += np.linalg.solve(curvature_KK, gradient_K)
    scores_M: Floats = _design(seen_NF, judged_MF) @ weights_K
    return scores_M


def by_forest(
    rng: np.random.Generator, *, num_trees: int = 40, depth: int = 3, min_leaf: int = 20
) -> Classifier:
    """Average shallow trees, each grown on a bootstrap sample and trying one number at a split."""

    def vote(seen_NF: Floats, truth_N: Bools, judged_MF: Floats) -> Floats:
        scores_M = np.zeros(len(judged_MF))
        for _ in range(num_trees):
            drawn = rng.integers(len(truth_N), size=len(truth_N))
            tree = _grown(seen_NF[drawn], truth_N[drawn], depth, min_leaf, rng)
            scores_M += tree(judged_MF)
        return scores_M / num_trees

    return vote


_Tree: TypeAlias = Callable[[Floats], Floats]


def _grown(
    seen_NF: Floats, truth_N: Bools, depth: int, min_leaf: int, rng: np.random.Generator
) -> _Tree:
    chance = float(truth_N.mean())
    feature = int(rng.integers(seen_NF.shape[1]))
    cut = None if depth == 0 else _best_cut(seen_NF[:, feature], truth_N, min_leaf)
    if cut is None:
        return lambda judged_MF: np.full(len(judged_MF), chance)
    below_N = seen_NF[:, feature] <= cut
    lower = _grown(seen_NF[below_N], truth_N[below_N], depth - 1, min_leaf, rng)
    upper = _grown(seen_NF[~below_N], truth_N[~below_N], depth - 1, min_leaf, rng)

    def follow(judged_MF: Floats) -> Floats:
        below_M = judged_MF[:, feature] <= cut
        return np.where(below_M, lower(judged_MF), upper(judged_MF))

    return follow


def _best_cut(value_N: Floats, truth_N: Bools, min_leaf: int) -> float | None:
    """Return the value after which to cut for the least Gini impurity; None if there is none."""
    order = np.argsort(value_N, kind="stable")
    value_N, truth_N = value_N[order], truth_N[order]
    num = len(value_N)
    left_C = np.arange(1, num)
    true_C = np.cumsum(truth_N)[:-1]
    right_C, others_C = num - left_C, truth_N.sum() - true_C
    impurity_C = true_C * (left_C - true_C) / left_C + others_C * (right_C - others_C) / right_C
    allowed_C = (value_N[1:] > value_N[:-1]) & (left_C >= min_leaf) & (right_C >= min_leaf)
    if not allowed_C.any():
        return None
    return float(value_N[np.where(allowed_C, impurity_C, np.inf).argmin()])


def _design(seen_NF: Floats, judged_MF: Floats) -> Floats:
    """Return a constant, each number's place among those seen, and the square of that."""
    columns = [np.ones(len(judged_MF))]
    for seen_N, judged_M in zip(seen_NF.T, judged_MF.T, strict=True):
        place_M = _share_below(seen_N, judged_M) - 0.5
        columns += [place_M, place_M**2]
    return np.stack(columns, axis=1)


def _share_below(others: Floats, values: Floats) -> Floats:
    """Return for each value which share of the others is less; equal ones count half."""
    ordered = np.sort(others)
    less = np.searchsorted(ordered, values, "left")
    not_more = np.searchsorted(ordered, values, "right")
    share: Floats = (less + not_more) / (2 * len(ordered))
    return share


def _ranks(scores: Floats) -> Floats:
    return _share_below(scores, scores) * len(scores)
