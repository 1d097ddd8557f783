"""Rows choose the experts of highest score plus bias, the lower number of equals."""

from __future__ import annotations

import pytest
import torch

from tenantry_kernels.gpu.router import route, route_reference
from tenantry_runtime.models.config import MoeConfig
from tenantry_runtime.models.layers import Router

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def noise(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def a_router(
    num_experts: int, width: int, dtype: torch.dtype = torch.bfloat16
) -> tuple[torch.Tensor, torch.Tensor]:
    weight = (noise(num_experts, width, seed=1) * width**-0.5).to(dtype)
    return weight.to(DEVICE), (noise(num_experts, seed=2) * 0.1).to(DEVICE)


def some_rows(num_rows: int, width: int) -> torch.Tensor:
    return noise(num_rows, width, seed=3).bfloat16().to(DEVICE)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=["bf16", "f32"])
@pytest.mark.parametrize(
    ("rows", "experts", "width", "choices"),
    [
        pytest.param(1, 8, 128, 2, id="one row"),
        pytest.param(5, 72, 200, 8, id="nothing even"),
        pytest.param(70, 65, 64, 3, id="more rows than a tile"),
        pytest.param(2, 6, 1100, 6, id="a long row in parts, every expert chosen"),
    ],
)
def test_the_choice_is_the_references(
    rows: int, experts: int, width: int, choices: int, dtype: torch.dtype
) -> None:
    x, (weight, bias) = some_rows(rows, width), a_router(experts, width, dtype)
    chosen, factor = route(x, weight, bias, choices, scaling=2.5)
    expected, expected_factor = route_reference(x, weight, bias, choices, scaling=2.5)
    assert torch.equal(chosen, expected)
    torch.testing.assert_close(factor, expected_factor, rtol=1e-4, atol=1e-6)
    assert torch.allclose(factor.sum(-1), torch.tensor(2.5, device=DEVICE))


def test_ties_go_to_the_lower_number() -> None:
    weight = torch.zeros(12, 32, dtype=torch.bfloat16, device=DEVICE)
    bias = torch.zeros(12, device=DEVICE)
    bias[[3, 7, 9]] = 1.0
    chosen, factor = route(some_rows(2, 32), weight, bias, 5, is_normalized=False)
    assert chosen.tolist() == [[3, 7, 9, 0, 1]] * 2
    # the bias takes part in the choice alone
    assert factor.tolist() == [[0.5] * 5] * 2


def test_a_row_that_failed_chooses_nobody() -> None:
    x, (weight, bias) = some_rows(3, 64), a_router(8, 64)
    x[1] = torch.nan
    ok = torch.tensor([True, False, True], device=DEVICE)
    chosen, factor = route(x, weight, bias, 2, ok_T=ok)
    expected, expected_factor = route_reference(x, weight, bias, 2, ok_T=ok)
    assert torch.equal(chosen, expected) and chosen[1].tolist() == [-1, -1]
    torch.testing.assert_close(factor, expected_factor)
    assert factor[1].tolist() == [0, 0]


def test_scores_that_are_no_numbers_still_choose_experts_that_exist() -> None:
    (weight, bias), x = a_router(8, 64), some_rows(1, 64)
    x[0] = torch.nan
    chosen, _ = route(x, weight, bias, 3)
    assert chosen.tolist() == [[0, 1, 2]]


def test_the_reference_is_the_models_router() -> None:
    x, (weight, bias) = some_rows(9, 64), a_router(16, 64, torch.float32)
    config = MoeConfig(
        num_experts=16,
        num_experts_per_token=4,
        num_shared_experts=1,
        intermediate_dim=32,
        num_groups=1,
        num_groups_per_token=1,
        normalize_weights=True,
        routed_scaling=2.827,
    )
    expected, expected_factor = Router(weight, bias, config)(x)
    chosen, factor = route_reference(x, weight, bias, 4, scaling=2.827)
    assert torch.equal(chosen.long(), expected)
    torch.testing.assert_close(factor, expected_factor)


def test_no_rows_choose_nothing() -> None:
    chosen, factor = route(some_rows(0, 64), *a_router(8, 64), 2)
    assert chosen.shape == factor.shape == (0, 2)


def test_more_choices_than_experts_are_refused() -> None:
    with pytest.raises(ValueError, match="9 choices of 8 experts"):
        route(some_rows(1, 64), *a_router(8, 64), 9)
