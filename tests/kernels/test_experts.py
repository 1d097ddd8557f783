"""Rows reach the experts that they chose, and their outputs come back weighted."""

from __future__ import annotations

import math

import pytest
import torch

from tenantry_kernels.experts import route_to_experts, swiglu


def noise(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def some_choices(num_rows: int, num_choices: int, num_experts: int) -> torch.Tensor:
    return noise(num_rows, num_experts, seed=3).topk(num_choices, -1).indices


@pytest.mark.parametrize(("rows", "choices", "experts"), [(1, 1, 1), (1, 2, 8), (37, 3, 5)])
def test_each_row_gets_the_weighted_sum_of_its_experts(
    rows: int, choices: int, experts: int
) -> None:
    x, weight = noise(rows, 6), noise(rows, choices, seed=1)
    matrices = noise(experts, 6, 6, seed=2)
    chosen = some_choices(rows, choices, experts)
    expected = torch.zeros(rows, 6)
    for t in range(rows):
        for k in range(choices):
            expected[t] += weight[t, k] * (matrices[chosen[t, k]] @ x[t])
    routed = route_to_experts(x, chosen, weight, experts, lambda e, part: part @ matrices[e].T)
    torch.testing.assert_close(routed, expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["f32", "bf16"])
@pytest.mark.parametrize(("choices", "width"), [(2, 64), (3, 50), (8, 7168)])
def test_a_rows_sum_has_the_same_bits_alone_and_in_company(
    choices: int, width: int, dtype: torch.dtype
) -> None:
    x, weight = noise(5, width).to(dtype), noise(5, choices, seed=1)
    chosen, factor = some_choices(5, choices, 12), noise(12, seed=2).to(dtype)

    def routed(rows: slice) -> torch.Tensor:
        return route_to_experts(
            x[rows], chosen[rows], weight[rows], 12, lambda expert, part: part * factor[expert]
        )

    together = routed(slice(None))
    for row in range(5):
        assert torch.equal(routed(slice(row, row + 1)), together[row : row + 1])


def test_an_expert_that_nobody_chose_is_not_run() -> None:
    ran: list[tuple[int, int]] = []

    def expert(number: int, part: torch.Tensor) -> torch.Tensor:
        ran.append((number, part.shape[0]))
        return part

    chosen = torch.tensor([[3, 1], [1, 3], [1, 0]])
    route_to_experts(noise(3, 4), chosen, noise(3, 2), 6, expert)
    assert ran == [(0, 1), (1, 3), (3, 2)]


def test_the_result_has_the_rows_dtype() -> None:
    x = noise(3, 4).bfloat16()
    routed = route_to_experts(x, some_choices(3, 2, 4), noise(3, 2), 4, lambda _, part: part)
    assert routed.dtype == torch.bfloat16 and routed.shape == x.shape


def test_swiglu_gates_with_the_first_half() -> None:
    gate_up = torch.tensor([[1.0, -2.0, 3.0, 5.0]])
    silu = [1 / (1 + math.exp(-1)), -2 / (1 + math.exp(2))]
    expected = torch.tensor([[silu[0] * 3, silu[1] * 5]])
    torch.testing.assert_close(swiglu(gate_up), expected)
