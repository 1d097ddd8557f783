"""An independent sampler: one row at a time, in float64, with sets instead of thresholds."""

from __future__ import annotations

import numpy as np

from tenantry_runtime.core import Sampling

_MASK = (1 << 64) - 1


def uniform(seed: int, position: int) -> float:
    """SplitMix64 (Vigna's C version, transliterated) seeded with a hash of the seed."""
    return (_splitmix64(_finalized(seed), position) >> 11) / (1 << 53)


def adjusted(
    logits_V: np.ndarray, sampling: Sampling, prompt: list[int], answer: list[int]
) -> np.ndarray:
    """Return what bias and penalties make of a row, token by token."""
    logits_V = logits_V.astype(np.float64)
    for token, bias in sampling.logit_bias:
        logits_V[token] += bias
    for token in {*prompt, *answer}:
        is_likely = logits_V[token] > 0
        factor = 1 / sampling.repetition_penalty if is_likely else sampling.repetition_penalty
        logits_V[token] *= factor
    for token in answer:
        logits_V[token] -= sampling.frequency_penalty
    for token in set(answer):
        logits_V[token] -= sampling.presence_penalty
    return logits_V


def logprobs(logits_V: np.ndarray) -> np.ndarray:
    """Return the natural logarithm of each token's probability."""
    logits_V = logits_V.astype(np.float64)
    centered_V = logits_V - logits_V.max()
    logprobs_V: np.ndarray = centered_V - np.log(np.exp(centered_V).sum())
    return logprobs_V


def distribution(logits_V: np.ndarray, sampling: Sampling) -> np.ndarray:
    """Return the exact probabilities from which a row's token is to be drawn."""
    logits_V = logits_V.astype(np.float64)
    if sampling.temperature == 0:
        certain_V = np.zeros_like(logits_V)
        certain_V[np.argmax(logits_V)] = 1.0
        return certain_V
    weights_V = np.exp((logits_V - logits_V.max()) / sampling.temperature)
    probs_V = weights_V / weights_V.sum()
    by_rank = sorted(range(len(probs_V)), key=lambda token: -probs_V[token])
    if sampling.top_k is not None:
        by_rank = by_rank[: sampling.top_k]
    if sampling.top_p < 1:
        needed = sampling.top_p * sum(probs_V[token] for token in by_rank)
        held, num_kept = 0.0, 0
        while held < needed and num_kept < len(by_rank):
            held += probs_V[by_rank[num_kept]]
            num_kept += 1
        by_rank = by_rank[:num_kept]
    least = sampling.min_p * probs_V.max()
    kept_V = np.zeros_like(probs_V)
    for token in by_rank:
        if probs_V[token] >= least:
            kept_V[token] = probs_V[token]
    normalized: np.ndarray = kept_V / kept_V.sum()
    return normalized


def draw(logits_V: np.ndarray, sampling: Sampling, position: int) -> int:
    """Return the token at `position`."""
    remaining = uniform(sampling.seed, position)
    probs_V = distribution(logits_V, sampling)
    for token, probability in enumerate(probs_V):
        if remaining < probability:
            return token
        remaining -= probability
    return int(np.flatnonzero(probs_V)[-1])


def chi_square(observed_N: np.ndarray, probs_N: np.ndarray) -> float:
    expected_N = probs_N * observed_N.sum()
    possible_N = expected_N > 0
    assert not observed_N[~possible_N].any(), "something impossible was drawn"
    deviation_N = (observed_N - expected_N)[possible_N]
    return float((deviation_N**2 / expected_N[possible_N]).sum())


def chi_square_limit(num_outcomes: int) -> float:
    """Return what a chi-square statistic exceeds once in 10,000 times (Wilson and Hilferty, 1931)."""
    freedom = num_outcomes - 1
    quantile = 3.719  # of the normal distribution, at 1 - 1e-4
    spread = 2 / (9 * freedom)
    return float(freedom * (1 - spread + quantile * np.sqrt(spread)) ** 3)


def _splitmix64(state: int, num_skipped: int) -> int:
    for _ in range(num_skipped + 1):
        state = (state + 0x9E3779B97F4A7C15) & _MASK
    return _finalized(state)


def _finalized(z: int) -> int:
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
    return z ^ (z >> 31)
