"""INT4 experts give what their dequantized weights give, whoever chose whom."""

from __future__ import annotations

import pytest
import torch

from tenantry_kernels.experts import route_to_experts, swiglu
from tenantry_kernels.gpu.expert_sort import expert_sort
from tenantry_kernels.gpu.int4_experts import (
    TILE_ROWS,
    Int4Experts,
    Int4Stack,
    choose_tile_rows,
    in_product_order,
    int4_experts,
    int4_experts_reference,
    int4_product,
)
from tenantry_runtime.models.quantize import Int4Matrix, dequantize_int4, pack_int4, quantize_int4

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def noise(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def a_stack(num_experts: int, num_outputs: int, num_columns: int, *, seed: int = 0) -> Int4Stack:
    weights = noise(num_experts, num_outputs, num_columns, seed=seed) * num_columns**-0.5
    matrices = [quantize_int4(weight) for weight in weights]
    return Int4Stack(
        torch.stack([matrix.packed for matrix in matrices]).to(DEVICE),
        torch.stack([matrix.scale for matrix in matrices]).to(DEVICE),
    )


def some_experts(num_experts: int, hidden_dim: int, inner_dim: int) -> Int4Experts:
    return Int4Experts(
        gate_up=a_stack(num_experts, 2 * inner_dim, hidden_dim, seed=1),
        down=a_stack(num_experts, hidden_dim, inner_dim, seed=2),
    )


def some_choices(
    num_rows: int, num_choices: int, num_experts: int
) -> tuple[torch.Tensor, torch.Tensor]:
    top = noise(num_rows, num_experts, seed=3).sigmoid().topk(num_choices, -1)
    return top.indices.to(DEVICE), (top.values / top.values.sum(-1, keepdim=True)).to(DEVICE)


def some_rows(num_rows: int, width: int) -> torch.Tensor:
    return noise(num_rows, width, seed=4).bfloat16().to(DEVICE)


def assert_close(actual: torch.Tensor, expected: torch.Tensor) -> None:
    """Compare relative to the largest value: weights, inner values and outputs are rounded to BF16."""
    error = (actual.float() - expected).abs().max() / expected.abs().max()
    assert error < 1e-2, f"relative error {error:.2e}"


@pytest.mark.parametrize(
    ("rows", "choices", "experts", "hidden", "inner"),
    [
        pytest.param(1, 2, 4, 256, 128, id="one row, unsorted"),
        pytest.param(2, 2, 4, 256, 64, id="inner narrower than a block"),
        pytest.param(7, 3, 5, 288, 96, id="partial blocks of columns and of outputs"),
        pytest.param(40, 3, 3, 160, 32, id="full tiles"),
        pytest.param(3, 1, 16, 1184, 32, id="long rows, most experts empty"),
    ],
)
def test_rows_get_the_weighted_sum_of_their_experts(
    rows: int, choices: int, experts: int, hidden: int, inner: int
) -> None:
    x, weights = some_rows(rows, hidden), some_experts(experts, hidden, inner)
    chosen, factor = some_choices(rows, choices, experts)
    assert_close(
        int4_experts(x, chosen, factor, weights), int4_experts_reference(x, chosen, factor, weights)
    )


@pytest.mark.parametrize("tile_rows", TILE_ROWS)
def test_every_tile_gives_the_same(tile_rows: int) -> None:
    x, weights = some_rows(19, 256), some_experts(2, 256, 64)
    chosen, factor = some_choices(19, 1, 2)
    assert_close(
        int4_experts(x, chosen, factor, weights, tile_rows=tile_rows),
        int4_experts_reference(x, chosen, factor, weights),
    )


@pytest.mark.parametrize("parts", [1, 2, 3, 5])
def test_parts_of_a_long_row_add_up(parts: int) -> None:
    x, weights = some_rows(2, 1312), some_experts(3, 1312, 32)
    chosen, factor = some_choices(2, 2, 3)
    assert_close(
        int4_experts(x, chosen, factor, weights, num_parts=parts),
        int4_experts_reference(x, chosen, factor, weights),
    )


@pytest.mark.parametrize("rows", [1, 4])
def test_a_row_that_failed_takes_no_place_and_gets_zeros(rows: int) -> None:
    x, weights = some_rows(rows, 128), some_experts(4, 128, 32)
    chosen, factor = some_choices(rows, 2, 4)
    expected = int4_experts_reference(x, chosen, factor, weights)
    chosen[-1], x[-1], factor[-1] = -1, torch.nan, torch.nan
    expected[-1] = 0
    result = int4_experts(x, chosen, factor, weights)
    assert torch.equal(result[-1].float(), expected[-1])
    if rows > 1:
        assert_close(result, expected)


def test_no_rows_give_no_rows() -> None:
    x, weights = some_rows(0, 128), some_experts(2, 128, 32)
    nothing = torch.zeros(0, 2, device=DEVICE)
    assert int4_experts(x, nothing.int(), nothing, weights).shape == (0, 128)


def test_a_rows_bits_do_not_depend_on_its_company() -> None:
    x, weights = some_rows(6, 256), some_experts(4, 256, 64)
    chosen, factor = some_choices(6, 2, 4)
    together = int4_experts(x, chosen, factor, weights, num_parts=1)
    for row in range(6):
        one = slice(row, row + 1)
        alone = int4_experts(x[one], chosen[one], factor[one], weights, num_parts=1)
        assert torch.equal(alone, together[one])


def test_weights_are_exactly_the_files_rounded_once() -> None:
    """Each row of x picks one column, so that the products are the weights themselves."""
    q = torch.arange(256).reshape(2, 128) % 16 - 8
    # scales from 2^-30 to 2^9, none a power of two
    scale = (1.3 * 2.0 ** torch.arange(-30, 10, 5)).reshape(2, 4).bfloat16()
    matrix = Int4Matrix(pack_int4(q), scale)
    stack = Int4Stack(matrix.packed[None].to(DEVICE), matrix.scale[None].to(DEVICE))
    x = in_product_order(torch.eye(128, dtype=torch.bfloat16, device=DEVICE))
    tiles = expert_sort(torch.zeros(128, 1, dtype=torch.int64, device=DEVICE), 1, 64)
    product = int4_product(x, stack, tiles, 128)[0]
    assert torch.equal(product.T.cpu(), dequantize_int4(matrix).bfloat16().float())


def test_the_reference_is_the_routed_experts_of_the_runtime() -> None:
    x, weights = some_rows(5, 64), some_experts(3, 64, 32)
    chosen, factor = some_choices(5, 2, 3)

    def expert(number: int, rows: torch.Tensor) -> torch.Tensor:
        gate_up, down = (
            dequantize_int4(Int4Matrix(stack.packed[number].cpu(), stack.scale[number].cpu()))
            for stack in weights
        )
        return swiglu(rows @ gate_up.T) @ down.T

    expected = route_to_experts(x.float().cpu(), chosen.cpu(), factor.cpu(), 3, expert)
    result = int4_experts_reference(x, chosen, factor, weights)
    torch.testing.assert_close(result.cpu(), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("slots", "experts", "rows"),
    [(8, 384, 16), (512 * 8, 384, 16), (512 * 8, 256, 32), (2048 * 8, 256, 64)],
)
def test_tiles_grow_with_the_average_experts_slots(slots: int, experts: int, rows: int) -> None:
    assert choose_tile_rows(slots, experts) == rows


def test_mismatched_shapes_are_refused() -> None:
    x, weights = some_rows(2, 96), some_experts(2, 128, 32)
    chosen, factor = some_choices(2, 1, 2)
    with pytest.raises(ValueError, match="16 words per row for 96 columns"):
        int4_experts(x, chosen, factor, weights)
    with pytest.raises(ValueError, match="BF16"):
        int4_experts(x.float(), chosen, factor, weights)
