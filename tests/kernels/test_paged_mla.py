"""Paged latent attention against sums written out in float64."""

from __future__ import annotations

import math

import pytest
import torch

from tenantry_kernels.paged_mla import (
    append_rows,
    decode_attention,
    gather_rows,
    prefill_attention,
    slots_of,
)

# sequences or rows, keys, heads, latent, rope: ones, primes, and a head count that no tile has
SIZES = [(1, 1, 1, 4, 2), (3, 7, 5, 11, 6), (2, 129, 8, 40, 16), (17, 64, 20, 33, 4)]
NOWHERE = torch.iinfo(torch.int64).max


def noise(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def bias_of(is_read: torch.Tensor) -> torch.Tensor:
    return torch.where(is_read, 0.0, -torch.inf)


def one_query(
    q_NC: torch.Tensor, kv_KC: torch.Tensor, is_read_K: torch.Tensor, scale: float, latent_dim: int
) -> torch.Tensor:
    """Return the latent sums [N, L] of one query, key by key."""
    keys = [kv.double() for kv, is_read in zip(kv_KC, is_read_K.tolist(), strict=True) if is_read]
    sums = torch.zeros(q_NC.shape[0], latent_dim, dtype=torch.float64)
    for head, q in enumerate(q_NC.double()):
        scores = [math.exp(scale * float(q @ key)) for key in keys]
        for score, key in zip(scores, keys, strict=True):
            sums[head] += score / sum(scores) * key[:latent_dim]
    return sums.float()


@pytest.mark.parametrize(("rows", "keys", "heads", "latent", "rope"), SIZES)
def test_decode_attends_over_each_sequences_own_keys(
    rows: int, keys: int, heads: int, latent: int, rope: int
) -> None:
    q = noise(rows, heads, latent + rope)
    kv = noise(rows, keys, latent + rope, seed=1)
    is_read = torch.arange(keys) <= torch.arange(rows)[:, None] * keys // rows
    expected = [one_query(*one, 0.3, latent) for one in zip(q, kv, is_read, strict=True)]
    sums = decode_attention(q, kv, bias_of(is_read), 0.3, latent)
    torch.testing.assert_close(sums, torch.stack(expected), rtol=0, atol=1e-5)


@pytest.mark.parametrize(("rows", "keys", "heads", "latent", "rope"), SIZES)
def test_prefill_attends_each_row_over_what_it_may_see(
    rows: int, keys: int, heads: int, latent: int, rope: int
) -> None:
    q = noise(rows, heads, latent + rope)
    kv = noise(keys, latent + rope, seed=1)
    is_read = noise(rows, keys, seed=2) > 0
    is_read[:, 0] = True
    expected = [one_query(q[t], kv, is_read[t], 0.3, latent) for t in range(rows)]
    sums = prefill_attention(q, kv, bias_of(is_read), 0.3, latent)
    torch.testing.assert_close(sums, torch.stack(expected), rtol=0, atol=1e-5)


def test_keys_that_do_not_count_do_not_reach_the_sums() -> None:
    q, kv = noise(2, 3, 6), noise(2, 5, 6, seed=1)
    bias = bias_of(
        torch.tensor([[True, True, False, False, False], [True, True, True, True, False]])
    )
    expected = decode_attention(q, kv, bias, 1.0, 4)
    kv[bias.isinf()] = 1e30
    assert torch.equal(decode_attention(q, kv, bias, 1.0, 4), expected)


def test_large_scores_do_not_overflow() -> None:
    kv = torch.tensor([[[1.0, 0.0, 500.0], [2.0, 0.0, 499.0]]])
    q = torch.tensor([[[0.0, 0.0, 500.0]]])
    sums = decode_attention(q, kv, torch.zeros(1, 2), 1.0, 2)
    assert torch.equal(sums, torch.tensor([[[1.0, 0.0]]]))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_rows_are_written_at_their_slots_and_nowhere_else(dtype: torch.dtype) -> None:
    pool = torch.full((4, 8, 3), torch.nan, dtype=dtype)
    rows = noise(4, 3)
    append_rows(pool, torch.tensor([17, NOWHERE, 0, NOWHERE]), rows)
    written = pool.flatten(0, 1).isfinite().all(-1).nonzero().flatten().tolist()
    # 24 is the sink page's first slot
    assert written == [0, 17, 24]
    assert torch.equal(pool[2, 1], rows[0].to(dtype)) and torch.equal(pool[0, 0], rows[2].to(dtype))


def test_positions_are_read_through_their_own_page_table() -> None:
    pool = torch.arange(4 * 2, dtype=torch.bfloat16).view(4, 2, 1)
    page_table = torch.tensor([[2, 0], [1, 1]])
    position = torch.tensor([[3, 0, 1], [0, 2, 3]])
    slot = slots_of(page_table, position, 2)
    assert slot.tolist() == [[1, 4, 5], [2, 2, 3]]
    assert slots_of(page_table[0], position[0], 2).tolist() == [1, 4, 5]
    gathered = gather_rows(pool, slot)
    assert gathered.dtype == torch.float32
    assert gathered[..., 0].tolist() == [[1.0, 4.0, 5.0], [2.0, 2.0, 3.0]]
    assert gather_rows(pool, slot[0, :0]).shape == (0, 1)
