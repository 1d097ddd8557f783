"""Weights as stored go to Triton's products where rows are on a GPU: linears and experts."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from tenantry_kernels import choice
from tenantry_kernels.experts import route_to_experts, swiglu
from tenantry_kernels.stored import StoredFp8, StoredInt4, StoredMatrix, stored_product
from tenantry_runtime.models.quantize import (
    dequantize_fp8,
    dequantize_int4,
    quantize_fp8,
    quantize_int4,
)
from tenantry_runtime.models.stored import (
    Cut,
    ExpertStack,
    StoredExperts,
    StoredLinear,
    grouped_experts,
)

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
BF16_STEP = 2**-8
HIDDEN, INNER, EXPERTS = 128, 64, 3


@pytest.fixture(autouse=True)
def gpu_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choice, "kind_of", lambda device: "cuda")


def noise(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def assert_close(actual: torch.Tensor, expected: torch.Tensor) -> None:
    largest = expected.abs().max().item()
    torch.testing.assert_close(
        actual.float(), expected.float(), rtol=BF16_STEP, atol=2 * BF16_STEP * largest
    )


@pytest.mark.parametrize("deterministic", [False, True])
def test_fp8_matrices_that_share_rows_are_multiplied_in_triton(deterministic: bool) -> None:
    def refuse(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        raise AssertionError("widened")

    # blocks that do not line up one below the other
    stored = [quantize_fp8(noise(rows, 200, seed=rows)) for rows in (72, 130)]
    matrices: list[StoredMatrix] = [
        StoredFp8(matrix._replace(weight=matrix.weight.to(DEVICE))) for matrix in stored
    ]
    x = noise(5, 200).bfloat16().to(DEVICE)
    expected = x.float() @ torch.cat([dequantize_fp8(matrix) for matrix in stored]).T.to(DEVICE)
    actual = stored_product(x, matrices, dense=refuse, deterministic=deterministic)
    assert_close(actual, expected)


def as_int4(weight: torch.Tensor) -> tuple[StoredMatrix, torch.Tensor]:
    matrix = quantize_int4(weight)
    return StoredInt4(matrix), dequantize_int4(matrix)


def as_fp8(weight: torch.Tensor) -> tuple[StoredMatrix, torch.Tensor]:
    matrix = quantize_fp8(weight)
    return StoredFp8(matrix), dequantize_fp8(matrix)


@pytest.mark.parametrize("deterministic", [False, True])
@pytest.mark.parametrize("stored", [as_int4, as_fp8])
def test_experts_of_one_format_are_one_call_in_triton(
    monkeypatch: pytest.MonkeyPatch,
    stored: Callable[[torch.Tensor], tuple[StoredMatrix, torch.Tensor]],
    deterministic: bool,
) -> None:
    stacks: list[ExpertStack] = []
    products = []
    dense: list[tuple[torch.Tensor, torch.Tensor]] = []
    for expert in range(EXPERTS):
        (gate, wide_gate), (up, wide_up), (down, wide_down) = (
            stored(0.2 * noise(*shape, seed=3 * expert + n))
            for n, shape in enumerate(((INNER, HIDDEN), (INNER, HIDDEN), (HIDDEN, INNER)))
        )
        kinds = [[Cut.whole(gate), Cut.whole(up)], [Cut.whole(down)]]
        stacks = stacks or [ExpertStack(EXPERTS, cuts, DEVICE) for cuts in kinds]
        first, second = (
            StoredLinear(stack.put(cuts), deterministic=deterministic)
            for stack, cuts in zip(stacks, kinds, strict=True)
        )
        products.append((first, second))
        dense.append((torch.cat([wide_gate, wide_up]).to(DEVICE), wide_down.to(DEVICE)))
    gate_up_stack, down_stack = stacks
    grouped = grouped_experts(gate_up_stack, down_stack, deterministic=deterministic)
    experts = StoredExperts(products, grouped=grouped, deterministic=deterministic)
    assert experts.is_grouped
    monkeypatch.setattr(experts, "_expert", None)
    x = noise(4, HIDDEN).bfloat16().to(DEVICE)
    chosen = torch.tensor([[0, 1], [2, 0], [1, 2], [0, 2]], device=DEVICE)
    weight = torch.rand(4, 2, generator=torch.Generator().manual_seed(5)).to(DEVICE)

    def apply(expert: int, rows: torch.Tensor) -> torch.Tensor:
        gate_up, down = dense[expert]
        return swiglu(rows @ gate_up.T) @ down.T

    assert_close(
        experts(x, chosen, weight), route_to_experts(x.float(), chosen, weight, EXPERTS, apply)
    )
