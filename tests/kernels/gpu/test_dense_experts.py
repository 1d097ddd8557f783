"""BF16 experts on the device against the loop over experts that asks the host."""

from __future__ import annotations

import pytest
import torch
from torch.nn.functional import linear

from support.latent_pages import DEVICE, noise
from tenantry_kernels.experts import route_to_experts, swiglu
from tenantry_kernels.gpu.dense_experts import dense_experts

# sums of BF16 products, rounded once more on the way
TOLERANCE = 2e-2


def some_experts(num_experts: int, hidden: int, inner: int) -> tuple[torch.Tensor, torch.Tensor]:
    gate_up = noise(num_experts, 2 * inner, hidden, seed=1) * hidden**-0.5
    down = noise(num_experts, hidden, inner, seed=2) * inner**-0.5
    return gate_up.bfloat16().to(DEVICE), down.bfloat16().to(DEVICE)


def choices(num_rows: int, num_experts: int, num_choices: int) -> torch.Tensor:
    order = noise(num_rows, num_experts, seed=3).argsort(-1)
    return order[:, :num_choices].to(DEVICE)


def expected(
    x: torch.Tensor, chosen: torch.Tensor, weight: torch.Tensor, *stacks: torch.Tensor
) -> torch.Tensor:
    gate_up, down = (stack.float().cpu() for stack in stacks)

    def expert(number: int, rows: torch.Tensor) -> torch.Tensor:
        return linear(swiglu(linear(rows, gate_up[number])), down[number])

    rows = x.float().cpu()
    return route_to_experts(rows, chosen.cpu(), weight.cpu(), len(gate_up), expert)


# one row, which is not sorted; tiles that are full, not full and several to an expert; widths that
# fill no block
@pytest.mark.parametrize("num_rows", [1, 3, 40])
@pytest.mark.parametrize("tile_rows", [None, 16, 64])
@pytest.mark.parametrize(("hidden", "inner"), [(128, 64), (72, 40)])
def test_experts_are_applied_to_the_rows_that_chose_them(
    num_rows: int, tile_rows: int | None, hidden: int, inner: int
) -> None:
    x = noise(num_rows, hidden, seed=4).bfloat16().to(DEVICE)
    stacks = some_experts(5, hidden, inner)
    chosen, weight = choices(num_rows, 5, 2), noise(num_rows, 2, seed=5).abs().to(DEVICE)
    out = dense_experts(x, chosen.int(), weight, *stacks, tile_rows=tile_rows)
    reference = expected(x, chosen, weight, *stacks)
    torch.testing.assert_close(out.float().cpu(), reference, rtol=TOLERANCE, atol=TOLERANCE)


def test_choices_of_no_expert_add_exactly_nothing() -> None:
    x = noise(3, 64, seed=4).bfloat16().to(DEVICE)
    stacks = some_experts(4, 64, 32)
    chosen = torch.tensor([[-1, -1], [2, -1], [0, 4]], device=DEVICE)
    weight = torch.full((3, 2), torch.nan, device=DEVICE)
    weight[1, 0], weight[2, 0] = 0.5, 0.25
    out = dense_experts(x, chosen, weight, *stacks).float().cpu()
    assert (out[0] == 0).all()
    alone = torch.tensor([[0, 0], [2, 2], [0, 0]])
    halves = torch.tensor([[0.0, 0.0], [0.5, 0.0], [0.25, 0.0]])
    reference = expected(x, alone, halves, *stacks)
    torch.testing.assert_close(out, reference, rtol=TOLERANCE, atol=TOLERANCE)


def test_with_a_given_tile_a_rows_bits_do_not_depend_on_its_company() -> None:
    x = noise(9, 128, seed=4).bfloat16().to(DEVICE)
    stacks = some_experts(4, 128, 64)
    chosen, weight = choices(9, 4, 2), noise(9, 2, seed=5).to(DEVICE)
    together = dense_experts(x, chosen, weight, *stacks, tile_rows=16)
    for row in range(9):
        only = slice(row, row + 1)
        alone = dense_experts(x[only], chosen[only], weight[only], *stacks, tile_rows=16)
        assert torch.equal(alone[0], together[row])
