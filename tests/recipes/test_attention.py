from __future__ import annotations

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

from tenantry_recipes.nano.attention import BLOCK_ROWS, causal_attention


def some_rows(num_rows: int) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(num_rows)
    return [
        torch.randn(2, num_rows, dim, generator=generator, dtype=torch.float64).requires_grad_()
        for dim in (6, 6, 5)
    ]


def values_and_gradients(out: torch.Tensor, rows: list[torch.Tensor]) -> list[torch.Tensor]:
    weights = torch.linspace(-1, 2, out.numel(), dtype=out.dtype).view_as(out)
    return [out, *torch.autograd.grad((out * weights).sum(), rows)]


@pytest.mark.parametrize("num_rows", [1, 7, BLOCK_ROWS, BLOCK_ROWS + 1, 3 * BLOCK_ROWS - 5])
@pytest.mark.parametrize("is_masked", [False, True])
def test_values_and_gradients_are_those_of_pytorch(num_rows: int, is_masked: bool) -> None:
    q, k, v = rows = some_rows(num_rows)
    mask = torch.ones(num_rows, num_rows, dtype=torch.bool).tril()
    if is_masked:
        mask &= torch.rand(mask.shape, generator=torch.Generator().manual_seed(1)) < 0.3
        mask.fill_diagonal_(True)
    expected = scaled_dot_product_attention(q[None], k[None], v[None], attn_mask=mask, scale=0.3)

    found = causal_attention(q, k, v, scale=0.3, mask_nn=mask if is_masked else None)

    for ours, theirs in zip(
        values_and_gradients(found, rows), values_and_gradients(expected[0], rows), strict=True
    ):
        torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-10)
