"""Pages of random latent rows, and attention over the rows in them by the textbook, in float64."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from tenantry_kernels.fp8_rows import PAGE_TOKENS, pack_pages, unpack_pages

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def noise(*shape: int, seed: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


@dataclass(frozen=True, slots=True)
class Pages:
    """A pool, the tables of some sequences into it, and what its rows are worth."""

    pool: torch.Tensor
    table_SP: torch.Tensor
    row_PTW: torch.Tensor
    """float64 [pages + 1, 64, W], as the pool represents them."""

    def rows(self, sequence: int, positions: torch.Tensor) -> torch.Tensor:
        """Return the rows at logical positions of a sequence, float64 [K, W]."""
        page = self.table_SP[sequence].cpu()[positions // PAGE_TOKENS]
        return self.row_PTW[page, positions % PAGE_TOKENS]


def random_pages(
    lengths: list[int],
    width: int,
    *,
    is_fp8: bool,
    seed: int = 0,
    poison: bool = True,
    exponents: tuple[int, int] = (-4, 5),
) -> Pages:
    """Return pages for sequences of these lengths, in random order, each page its own.

    poison: rows that no sequence has are NaN, so that reading one shows. exponents: the range of
    powers of two that rows are multiplied by.
    """
    columns = max(1, *(-(-length // PAGE_TOKENS) for length in lengths))
    num_pages = columns * len(lengths) + 3
    generator = torch.Generator().manual_seed(seed)
    order = torch.randperm(num_pages, generator=generator)
    table = order[: columns * len(lengths)].view(len(lengths), columns)
    row = torch.randn(num_pages + 1, PAGE_TOKENS, width, generator=generator)
    # magnitudes differ from token to token, as those of real caches do
    row *= 2.0 ** torch.randint(*exponents, row.shape[:2], generator=generator)[..., None]
    is_read = torch.zeros(row.shape[:2], dtype=torch.bool)
    for pages, length in zip(table, lengths, strict=True):
        position = torch.arange(length)
        is_read[pages[position // PAGE_TOKENS], position % PAGE_TOKENS] = True
    if poison:
        row[~is_read] = torch.nan
    pool = pack_pages(row) if is_fp8 else row.bfloat16()
    worth = unpack_pages(pool).double() if is_fp8 else pool.double()
    return Pages(pool.to(DEVICE), table.to(DEVICE), worth)


def attention(
    query_NC: torch.Tensor, row_KC: torch.Tensor, scale: float, latent_dim: int
) -> torch.Tensor:
    """Return one query token's float64 latent sums [N, L] over K rows; 0 over none."""
    if not len(row_KC):
        return torch.zeros(len(query_NC), latent_dim, dtype=torch.float64)
    weight_NK = torch.softmax(query_NC.double() @ row_KC.T * scale, -1)
    return weight_NK @ row_KC[:, :latent_dim]
