"""Paged MLA decode attention against the textbook's, in float64 over the same cached values."""

from __future__ import annotations

import pytest
import torch

from support.latent_pages import DEVICE, attention, noise, random_pages
from tenantry_kernels.gpu.mla_decode import mla_decode

# BF16 rounds weights and outputs to 8 bits, FP8 weights to 11; outputs are near 16 at most
TOLERANCE = {False: 6e-2, True: 4e-2}


def check(
    lengths: list[int],
    num_queries: int,
    num_heads: int,
    *,
    is_fp8: bool,
    dims: tuple[int, int] = (64, 32),
    num_splits: int | None = None,
    query_size: float = 1.0,
    exponents: tuple[int, int] = (-4, 5),
) -> None:
    latent_dim, width = dims[0], sum(dims)
    pages = random_pages(lengths, width, is_fp8=is_fp8, exponents=exponents)
    query = noise(len(lengths), num_queries, num_heads, width, seed=1).bfloat16() * query_size
    scale = width**-0.5 / query_size
    out = mla_decode(
        query.to(DEVICE),
        pages.pool,
        pages.table_SP,
        torch.tensor(lengths, device=DEVICE),
        scale=scale,
        latent_dim=latent_dim,
        num_splits=num_splits,
    ).cpu()
    for sequence, length in enumerate(lengths):
        for token in range(num_queries):
            seen = torch.arange(max(0, length - (num_queries - 1 - token)))
            expected = attention(
                query[sequence, token], pages.rows(sequence, seen), scale, latent_dim
            )
            torch.testing.assert_close(
                out[sequence, token].double(), expected, rtol=8e-3, atol=TOLERANCE[is_fp8]
            )


# one key; a page; past a page; past a tile of two pages; several tiles
@pytest.mark.parametrize("is_fp8", [False, True], ids=["bf16", "fp8"])
@pytest.mark.parametrize("num_splits", [1, 3, None])
def test_sequences_of_any_length_attend_to_their_own_pages(
    is_fp8: bool, num_splits: int | None
) -> None:
    check([1, 64, 65, 150, 513], 1, 8, is_fp8=is_fp8, num_splits=num_splits)


# rows that fill the blocks of 8, 16 and 32, overrun the largest, and fall short of each
@pytest.mark.parametrize("is_fp8", [False, True], ids=["bf16", "fp8"])
@pytest.mark.parametrize(
    ("num_queries", "num_heads"), [(4, 8), (3, 7), (2, 8), (3, 3), (2, 1), (1, 64)]
)
def test_query_tokens_see_only_what_precedes_them(
    is_fp8: bool, num_queries: int, num_heads: int
) -> None:
    check([5, 130], num_queries, num_heads, is_fp8=is_fp8, num_splits=2)


@pytest.mark.parametrize("is_fp8", [False, True], ids=["bf16", "fp8"])
@pytest.mark.parametrize("dims", [(512, 64), (48, 16), (96, 8), (33, 16)])
def test_widths_are_parameters(is_fp8: bool, dims: tuple[int, int]) -> None:
    check([70], 1, 8, is_fp8=is_fp8, dims=dims)


@pytest.mark.parametrize("query_size", [2.0**-40, 2.0**40])
def test_queries_of_any_size_fit_the_tiles(query_size: float) -> None:
    check([70], 1, 8, is_fp8=True, query_size=query_size)


@pytest.mark.parametrize("is_fp8", [False, True], ids=["bf16", "fp8"])
def test_a_sequence_that_reads_nothing_gets_exactly_zero(is_fp8: bool) -> None:
    pages = random_pages([0, 3], 96, is_fp8=is_fp8)
    query = noise(2, 2, 8, 96, seed=1).bfloat16()
    out = mla_decode(
        query.to(DEVICE),
        pages.pool,
        pages.table_SP,
        torch.tensor([0, 1], device=DEVICE),
        scale=0.1,
        latent_dim=64,
        num_splits=4,
    ).cpu()
    assert (out[0] == 0).all()
    # of two query tokens, only the second may see the one key
    assert (out[1, 0] == 0).all() and (out[1, 1] != 0).any()


def test_keys_of_very_different_size_keep_their_weights() -> None:
    """A key worth 2^-60 of another still takes its part of the softmax."""
    check([200], 1, 8, is_fp8=True, num_splits=2, exponents=(-60, 1))


@pytest.mark.parametrize("is_fp8", [False, True], ids=["bf16", "fp8"])
def test_other_sequences_change_nothing(is_fp8: bool) -> None:
    pages = random_pages([70, 200], 96, is_fp8=is_fp8)
    query = noise(2, 1, 8, 96, seed=1).bfloat16().to(DEVICE)
    length = torch.tensor([70, 200], device=DEVICE)
    both = mla_decode(
        query, pages.pool, pages.table_SP, length, scale=0.1, latent_dim=64, num_splits=2
    )
    alone = mla_decode(
        query[1:],
        pages.pool,
        pages.table_SP[1:],
        length[1:],
        scale=0.1,
        latent_dim=64,
        num_splits=2,
    )
    assert torch.equal(both[1:], alone)
