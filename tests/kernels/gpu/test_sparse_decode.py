"""MLA decode attention over chosen keys against the textbook's, in float64 over the same values."""

from __future__ import annotations

import pytest
import torch

from support.latent_pages import DEVICE, attention, noise, random_pages
from tenantry_kernels.gpu.mla_decode import mla_decode
from tenantry_kernels.gpu.sparse_decode import sparse_decode

BF16_AND_FP8 = pytest.mark.parametrize("is_fp8", [False, True], ids=["bf16", "fp8"])


def choose(lengths: list[int], num_queries: int, num_choices: int) -> torch.Tensor:
    """Random positions of each query token in random places, -1 between them, some unseen ones."""
    generator = torch.Generator().manual_seed(3)
    chosen = torch.full((len(lengths), num_queries, num_choices), -1)
    for sequence, length in enumerate(lengths):
        for token in range(num_queries):
            # one position past the end is among the candidates
            candidates = torch.randperm(length + 1, generator=generator)[: num_choices * 2 // 3 + 1]
            place = torch.randperm(num_choices, generator=generator)[: len(candidates)]
            chosen[sequence, token, place] = candidates[: len(place)]
    return chosen.int()


# fewer choices than a tile, as many as two tiles, and a tail
@BF16_AND_FP8
@pytest.mark.parametrize(
    ("num_choices", "num_queries", "num_heads"), [(5, 1, 8), (256, 1, 16), (300, 2, 20)]
)
@pytest.mark.parametrize("num_splits", [1, None])
def test_queries_attend_to_what_was_chosen_for_them(
    is_fp8: bool, num_choices: int, num_queries: int, num_heads: int, num_splits: int | None
) -> None:
    lengths = [0, 3, 200, 700]
    pages = random_pages(lengths, 96, is_fp8=is_fp8)
    query = noise(len(lengths), num_queries, num_heads, 96, seed=1).bfloat16()
    chosen = choose(lengths, num_queries, num_choices)
    out = sparse_decode(
        query.to(DEVICE),
        pages.pool,
        pages.table_SP,
        torch.tensor(lengths, device=DEVICE),
        chosen.to(DEVICE),
        scale=0.1,
        latent_dim=64,
        num_splits=num_splits,
    ).cpu()
    for sequence, length in enumerate(lengths):
        for token in range(num_queries):
            position = chosen[sequence, token].long()
            seen = position[(position >= 0) & (position < length - (num_queries - 1 - token))]
            expected = attention(query[sequence, token], pages.rows(sequence, seen), 0.1, 64)
            torch.testing.assert_close(
                out[sequence, token].double(), expected, rtol=8e-3, atol=4e-2
            )
            assert len(seen) or (out[sequence, token] == 0).all()


@BF16_AND_FP8
def test_a_choice_of_everything_in_order_is_dense_attention(is_fp8: bool) -> None:
    pages = random_pages([300], 96, is_fp8=is_fp8)
    query = noise(1, 1, 8, 96, seed=1).bfloat16().to(DEVICE)
    length = torch.tensor([300], device=DEVICE)
    chosen = torch.arange(300, dtype=torch.int32, device=DEVICE).view(1, 1, 300)
    batch = (query, pages.pool, pages.table_SP, length)
    sparse = sparse_decode(*batch, chosen, scale=0.1, latent_dim=64, num_splits=1)
    dense = mla_decode(*batch, scale=0.1, latent_dim=64, num_splits=1)
    torch.testing.assert_close(sparse, dense, rtol=8e-3, atol=4e-2)


@BF16_AND_FP8
def test_a_sequence_of_read_length_zero_reads_no_page(is_fp8: bool) -> None:
    pages = random_pages([64], 96, is_fp8=is_fp8)
    # an index that is in no pool: following it would crash
    table = torch.full_like(pages.table_SP, 1 << 40)
    out = sparse_decode(
        noise(1, 1, 8, 96, seed=1).bfloat16().to(DEVICE),
        pages.pool,
        table,
        torch.tensor([0], device=DEVICE),
        torch.arange(64, dtype=torch.int32, device=DEVICE).view(1, 1, 64),
        scale=0.1,
        latent_dim=64,
    )
    assert (out == 0).all()
