"""Index scores against the published formula in float64, and choices against a sort."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, strategies as st

from support.examples import examples
from support.latent_pages import DEVICE, noise, random_pages
from tenantry_kernels.gpu.indexer import index_scores, top_positions


# the released heads and widths (GLM: 32 of 128), the nano model's, and what fills no block
@pytest.mark.parametrize(
    ("num_queries", "num_heads", "head_dim"), [(1, 32, 128), (2, 16, 48), (3, 5, 24)]
)
def test_scores_follow_the_formula(num_queries: int, num_heads: int, head_dim: int) -> None:
    lengths = [0, 1, 700]
    pages = random_pages(lengths, head_dim, is_fp8=True)
    query = noise(len(lengths), num_queries, num_heads, head_dim, seed=1).bfloat16()
    weight = noise(len(lengths), num_queries, num_heads, seed=2)
    score = index_scores(
        query.to(DEVICE),
        weight.to(DEVICE),
        pages.pool,
        pages.table_SP,
        torch.tensor(lengths, device=DEVICE),
    ).cpu()
    for sequence, length in enumerate(lengths):
        for token in range(num_queries):
            num_seen = max(0, length - (num_queries - 1 - token))
            key = pages.rows(sequence, torch.arange(num_seen))
            match = torch.relu(query[sequence, token].double() @ key.T)
            expected = weight[sequence, token].double() @ match / math.sqrt(head_dim)
            seen, unseen = score[sequence, token].tensor_split([num_seen])
            torch.testing.assert_close(seen.double(), expected, rtol=1e-4, atol=1e-3)
            assert (unseen == -torch.inf).all()


def best(score: list[float], num_seen: int, num_choices: int) -> list[int]:
    """Return the positions of the best scores, the lower of equal ones first to be taken."""
    order = sorted(range(num_seen), key=lambda position: (-score[position], position))
    chosen = sorted(order[:num_choices])
    return chosen + [-1] * (num_choices - len(chosen))


@examples(0.5)
@given(
    seed=st.integers(0, 1 << 30),
    num_seen=st.integers(0, 9000),
    num_choices=st.sampled_from([1, 7, 256, 2048]),
    # few distinct values make many ties; all sizes of numbers exercise every digit
    kind=st.sampled_from(["ties", "normal", "wide", "zeros"]),
)
def test_choices_are_the_best_and_of_equals_the_first(
    seed: int, num_seen: int, num_choices: int, kind: str
) -> None:
    generator = torch.Generator().manual_seed(seed)
    score = torch.randn(1, 1, 9024, generator=generator)
    if kind == "ties":
        score = (score * 2).round()
    elif kind == "wide":
        score *= 2.0 ** torch.randint(-120, 120, score.shape, generator=generator)
    elif kind == "zeros":
        # as relu and negative weights leave them
        score = torch.where(score > 0.5, score, torch.copysign(torch.tensor(0.0), score))
    chosen = top_positions(
        score.to(DEVICE), torch.tensor([num_seen], device=DEVICE), num_choices
    ).cpu()
    assert chosen[0, 0].tolist() == best(score[0, 0].tolist(), num_seen, num_choices)


def test_each_query_token_chooses_among_what_it_sees() -> None:
    score = noise(2, 3, 64, seed=0)
    chosen = top_positions(score.to(DEVICE), torch.tensor([2, 40], device=DEVICE), 4).cpu()
    for sequence, length in enumerate([2, 40]):
        for token in range(3):
            seen = max(0, length - (2 - token))
            expected = best(score[sequence, token].tolist(), seen, 4)
            assert chosen[sequence, token].tolist() == expected


def test_nan_is_chosen_last() -> None:
    score = torch.tensor([[[1.0, math.nan, -math.inf, -3.0, math.nan, 2.0]]])
    score = torch.nn.functional.pad(score, (0, 58))
    chosen = top_positions(score.to(DEVICE), torch.tensor([6], device=DEVICE), 3).cpu()
    assert chosen[0, 0].tolist() == [0, 3, 5]
