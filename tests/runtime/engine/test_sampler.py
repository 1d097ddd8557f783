"""The sampler against an independent one, and against the distributions that it promises."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st

from support.sampler_reference import (
    chi_square,
    chi_square_limit,
    distribution,
    draw,
    uniform,
)
from tenantry_runtime.core import Sampling
from tenantry_runtime.engine.sampler import SamplerState, mix64, sample

GREEDY = Sampling(seed=0, temperature=0.0)
LOGITS = [2.0, 1.5, 1.0, 0.9, 0.3, -0.2, -1.0, -1.1, -3.0, -6.0]


def drawn(logits_V: list[float], sampling: Sampling, positions: range) -> np.ndarray:
    """Return how often each token is drawn at these positions."""
    logits_RV = torch.tensor(logits_V).repeat(len(positions), 1)
    states_R = [SamplerState(sampling.seed, position) for position in positions]
    tokens_R, _ = sample(logits_RV, [sampling] * len(positions), states_R)
    return np.bincount(tokens_R.numpy(), minlength=len(logits_V))


class AlmostOne(SamplerState):
    """The greatest noise there is."""

    def uniform(self) -> float:
        return 1 - 2.0**-53


class Zero(SamplerState):
    """The least."""

    def uniform(self) -> float:
        return 0.0


def test_the_hash_is_splitmix64() -> None:
    # the published outputs for seed 1234567 (rosettacode.org, "Pseudo-random numbers/Splitmix64")
    published = [
        6457827717110365317,
        3203168211198807973,
        9817491932198370423,
        4593380528125082431,
        16408922859458223821,
    ]
    gamma = 0x9E3779B97F4A7C15
    assert [mix64((1234567 + n * gamma) % 2**64) for n in range(1, 6)] == published


@given(st.integers(0, 2**63 - 1), st.integers(0, 300))
def test_noise_is_a_function_of_seed_and_position(seed: int, position: int) -> None:
    noise = SamplerState(seed, position).uniform()
    assert 0 <= noise < 1
    assert noise == uniform(seed, position)


@pytest.mark.parametrize("axis", ["position", "seed"])
def test_noise_is_uniform_and_neighbors_are_independent(axis: str) -> None:
    steps = range(40_000)
    states = (SamplerState(7, n) if axis == "position" else SamplerState(n, 7) for n in steps)
    noise = np.array([state.uniform() for state in states])

    singles = np.bincount((noise * 64).astype(int), minlength=64)
    assert chi_square(singles, np.full(64, 1 / 64)) < chi_square_limit(64)
    bins = (noise * 8).astype(int)
    for lag in (1, 2, 64):
        pairs = np.bincount(bins[:-lag] * 8 + bins[lag:], minlength=64)
        assert chi_square(pairs, np.full(64, 1 / 64)) < chi_square_limit(64)


@pytest.mark.parametrize(
    "sampling",
    [
        Sampling(seed=11),
        Sampling(seed=12, temperature=0.6),
        Sampling(seed=13, temperature=2.5),
        Sampling(seed=14, top_k=4),
        Sampling(seed=15, top_p=0.8),
        Sampling(seed=16, min_p=0.2),
        Sampling(seed=17, temperature=1.4, top_k=7, top_p=0.9, min_p=0.05),
    ],
    ids=["plain", "cold", "hot", "top_k", "top_p", "min_p", "all"],
)
def test_tokens_follow_the_exact_distribution(sampling: Sampling) -> None:
    counts = drawn(LOGITS, sampling, range(20_000))
    exact = distribution(np.array(LOGITS), sampling)
    assert chi_square(counts, exact) < chi_square_limit(int((exact > 0).sum()))


def test_tokens_of_different_seeds_at_one_position_follow_the_distribution_too() -> None:
    samplings = [Sampling(seed=seed) for seed in range(20_000)]
    states = [SamplerState(seed, 3) for seed in range(20_000)]
    tokens_R, _ = sample(torch.tensor(LOGITS).repeat(20_000, 1), samplings, states)
    counts = np.bincount(tokens_R.numpy(), minlength=len(LOGITS))
    exact = distribution(np.array(LOGITS), Sampling(seed=0))
    assert chi_square(counts, exact) < chi_square_limit(len(LOGITS))


SAMPLINGS = st.builds(
    Sampling,
    seed=st.integers(0, 2**63 - 1),
    temperature=st.sampled_from([0.0, 0.05, 0.7, 1.0, 3.0]),
    top_p=st.sampled_from([0.01, 0.3, 0.95, 1.0]),
    top_k=st.sampled_from([None, 1, 3, 40, 5000]),
    min_p=st.sampled_from([0.0, 0.02, 0.5, 1.0]),
)


@given(st.lists(SAMPLINGS, min_size=1, max_size=8), st.integers(0, 1000), st.integers(0, 2**32 - 1))
def test_every_row_gets_the_token_of_the_reference_and_of_a_batch_of_its_own(
    samplings: list[Sampling], first_position: int, logits_seed: int
) -> None:
    num_rows, vocab_size = len(samplings), 300
    generator = torch.Generator().manual_seed(logits_seed)
    logits_RV = torch.randn(num_rows, vocab_size, generator=generator) * 3
    before_RV = logits_RV.clone()
    states = [SamplerState(s.seed, first_position + row) for row, s in enumerate(samplings)]

    tokens_R, is_finite_R = sample(logits_RV, samplings, states)

    alone = [
        int(sample(logits_RV[row : row + 1], [samplings[row]], [states[row]]).tokens_R)
        for row in range(num_rows)
    ]
    reference = [
        draw(logits_RV[row].numpy(), samplings[row], states[row].position)
        for row in range(num_rows)
    ]
    assert tokens_R.tolist() == alone == reference
    assert is_finite_R.all()
    assert torch.equal(logits_RV, before_RV)


def test_temperature_0_takes_the_lowest_of_equally_likely_ids() -> None:
    logits_RV = torch.full((3, 4000), -1.0)
    logits_RV[0, [17, 900, 3999]] = 2.0
    logits_RV[1, [3998, 3999]] = 2.0
    tokens_R, _ = sample(logits_RV, [GREEDY] * 3, [SamplerState(0, 0)] * 3)
    assert tokens_R.tolist() == [17, 3998, 0]


@pytest.mark.parametrize("temperature", [1e-37, 1e-39, 1e-46, 1e-300, 5e-324])
def test_a_temperature_that_float32_cannot_hold_is_greedy(temperature: float) -> None:
    counts = drawn([1.0, 3.0, 2.0], Sampling(seed=5, temperature=temperature), range(50))
    assert counts.tolist() == [0, 50, 0]


def test_a_tiny_temperature_is_greedy_and_does_not_overflow() -> None:
    counts = drawn([80.0, 79.9, -80.0], Sampling(seed=5, temperature=1e-6), range(500))
    assert counts.tolist() == [500, 0, 0]


def test_tokens_as_probable_as_the_last_one_kept_are_kept_too() -> None:
    counts = drawn([0.0, 1.0, 0.0, -1.0], Sampling(seed=5, top_k=2), range(3000))
    assert (counts > 0).tolist() == [True, True, True, False]


@pytest.mark.parametrize("state", [Zero(0, 0), AlmostOne(0, 0)], ids=["zero", "almost one"])
def test_extreme_noise_never_leaves_what_the_filters_keep(state: SamplerState) -> None:
    logits_RV = torch.randn(200, 1000, generator=torch.Generator().manual_seed(1))
    logits_RV[:, [0, -1]] = -100.0
    sampling = Sampling(seed=0, top_p=0.9)
    tokens_R, _ = sample(logits_RV, [sampling] * 200, [state] * 200)
    for row, token in zip(logits_RV, tokens_R.tolist(), strict=True):
        assert distribution(row.numpy(), sampling)[token] > 0


def test_a_row_without_filters_loses_nothing_to_the_filters_of_another() -> None:
    logits_RV = torch.tensor([[-50.0, 0.0, 0.0]]).repeat(2, 1)
    plain, filtered = Sampling(seed=0), Sampling(seed=0, top_p=0.5)
    tokens_R, _ = sample(logits_RV, [plain, filtered], [Zero(0, 0), Zero(0, 0)])
    assert tokens_R.tolist() == [0, 1]


def test_ids_from_the_vocabulary_limit_on_are_never_drawn() -> None:
    logits_RV = torch.zeros(2000, 10)
    logits_RV[:, 6:] = 5.0
    samplings = [GREEDY, *[Sampling(seed=1, top_p=0.99)] * 1999]
    states = [SamplerState(1, position) for position in range(2000)]
    tokens_R, _ = sample(logits_RV, samplings, states, vocab_limit=6)
    assert set(tokens_R.tolist()) == set(range(6))


@pytest.mark.parametrize("sampling", [GREEDY, Sampling(seed=2, top_p=0.5)], ids=["greedy", "drawn"])
def test_logits_that_are_not_finite_are_reported_and_disturb_no_other_row(
    sampling: Sampling,
) -> None:
    generator = torch.Generator().manual_seed(2)
    logits_RV = torch.randn(5, 50, generator=generator)
    states = [SamplerState(2, position) for position in range(5)]
    healthy_R, _ = sample(logits_RV, [sampling] * 5, states)
    logits_RV[1, 30] = torch.nan
    logits_RV[3] = -torch.inf
    tokens_R, is_finite_R = sample(logits_RV, [sampling] * 5, states)
    assert is_finite_R.tolist() == [True, False, True, False, True]
    assert tokens_R[is_finite_R].tolist() == healthy_R[is_finite_R].tolist()
