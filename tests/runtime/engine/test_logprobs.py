"""Log probabilities against arithmetic in float64."""

from __future__ import annotations

import numpy as np
import torch
from hypothesis import given, strategies as st

from support.sampler_reference import logprobs
from tenantry_runtime.core import Sampling, TokenLogprob
from tenantry_runtime.engine.logprobs import (
    MAX_TOP,
    likelihoods,
    num_words,
    packed,
    told,
    unpacked,
)


@given(st.integers(1, 5), st.integers(1, 60), st.integers(0, 1 << 20), st.booleans())
def test_they_are_those_of_the_models_distribution(
    num_rows: int, num_tokens: int, seed: int, is_coarse: bool
) -> None:
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(num_rows, num_tokens, generator=generator) * 5
    if is_coarse:
        # many are equal
        logits = logits.round()
    tokens = torch.randint(num_tokens, (num_rows,), generator=generator)
    rows = told(
        likelihoods(logits, tokens),
        tokens.tolist(),
        [Sampling(seed=0, top_logprobs=MAX_TOP)] * num_rows,
    )
    for row, token, found in zip(logits.numpy(), tokens.tolist(), rows, strict=True):
        expected = logprobs(row)
        order = sorted(range(num_tokens), key=lambda id_: (-row[id_], id_))[:MAX_TOP]
        assert found is not None
        assert found.chosen.token_id == token
        np.testing.assert_allclose(found.chosen.logprob, expected[token], atol=1e-9)
        assert [each.token_id for each in found.top] == order
        np.testing.assert_allclose([each.logprob for each in found.top], expected[order], atol=1e-9)


def test_a_row_is_told_as_many_as_it_asks_for() -> None:
    found = likelihoods(torch.tensor([[0.0, 1.0, 2.0]] * 4), torch.tensor([0, 1, 2, 0]))
    samplings = [Sampling(seed=0, top_logprobs=n) for n in (None, 0, 2, 3)]
    rows = told(found, [0, 1, 2, None], samplings)
    assert [None if row is None else len(row.top) for row in rows] == [None, 0, 2, None]


def test_the_impossible_is_no_alternative() -> None:
    logits = torch.tensor([[-torch.inf, 0.0, -torch.inf]])
    [row] = told(likelihoods(logits, torch.tensor([1])), [1], [Sampling(seed=0, top_logprobs=20)])
    assert row is not None and row.top == (TokenLogprob(1, 0.0),)


def test_they_survive_the_way_from_the_device() -> None:
    logits = torch.randn(3, 50, generator=torch.Generator().manual_seed(1))
    found = likelihoods(logits, torch.tensor([4, 5, 6]))
    words = packed(found)
    assert len(words) == num_words(3, 50)
    for ours, theirs in zip(unpacked(words, 3), found, strict=True):
        assert torch.equal(ours, theirs)
