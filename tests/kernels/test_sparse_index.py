"""Index scores against the published formula, written out in float64."""

from __future__ import annotations

import pytest
import torch

from tenantry_kernels.sparse_index import index_scores, index_scores_batch

# rows, heads, values, keys
SIZES = [(1, 1, 1, 1), (3, 16, 32, 70), (7, 5, 11, 13)]


def noise(*shape: int, seed: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def scores_of_one(q_JD: torch.Tensor, weight_J: torch.Tensor, key_KD: torch.Tensor) -> list[float]:
    """Return head_dim^-0.5 * sum_j w_j * relu(q_j . k) for each key."""
    return [
        sum(
            float(weight) * max(float(q.double() @ key.double()), 0.0)
            for q, weight in zip(q_JD, weight_J, strict=True)
        )
        / q_JD.shape[1] ** 0.5
        for key in key_KD
    ]


@pytest.mark.parametrize(("rows", "heads", "values", "keys"), SIZES)
def test_rows_of_one_sequence_score_its_keys(rows: int, heads: int, values: int, keys: int) -> None:
    q = noise(rows, heads, values, seed=0)
    weight, key = noise(rows, heads, seed=1), noise(keys, values, seed=2)
    expected = torch.tensor([scores_of_one(q[t], weight[t], key) for t in range(rows)])
    torch.testing.assert_close(index_scores(q, weight, key), expected, rtol=0, atol=2e-5)


@pytest.mark.parametrize(("rows", "heads", "values", "keys"), SIZES)
def test_one_row_of_each_sequence_scores_its_own_keys(
    rows: int, heads: int, values: int, keys: int
) -> None:
    q = noise(rows, heads, values, seed=0)
    weight, key = noise(rows, heads, seed=1), noise(rows, keys, values, seed=2)
    expected = torch.tensor([scores_of_one(q[s], weight[s], key[s]) for s in range(rows)])
    torch.testing.assert_close(index_scores_batch(q, weight, key), expected, rtol=0, atol=2e-5)


def test_scores_are_float32_whatever_the_queries_are() -> None:
    q, weight = noise(2, 4, 8, seed=0).bfloat16(), noise(2, 4, seed=1).bfloat16()
    key = noise(2, 3, 8, seed=2)
    single = index_scores(q[:1], weight[:1], key[0])
    batch = index_scores_batch(q, weight, key)
    assert single.dtype == batch.dtype == torch.float32
    torch.testing.assert_close(batch[:1], single)


def test_a_poisoned_key_spoils_its_own_score_only() -> None:
    q, weight, key = noise(2, 4, 8, seed=0), noise(2, 4, seed=1), noise(2, 3, 8, seed=2)
    clean = index_scores_batch(q, weight, key)
    key[1, 2] = torch.nan
    spoiled = index_scores_batch(q, weight, key)
    assert spoiled[1, 2].isnan()
    clean[1, 2] = spoiled[1, 2] = 0.0
    assert torch.equal(spoiled, clean)
