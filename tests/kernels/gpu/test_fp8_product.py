"""A product with FP8 blocks gives what the dequantized matrix gives, partial blocks too."""

from __future__ import annotations

import pytest
import torch

from tenantry_kernels.gpu.fp8_product import Fp8Stored, fp8_product, fp8_product_reference
from tenantry_runtime.models.quantize import Fp8Matrix, dequantize_fp8, quantize_fp8

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
BF16_STEP = 2**-8


def noise(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def a_matrix(num_outputs: int, num_columns: int) -> Fp8Stored:
    # blocks of very different sizes, so that a scale of the wrong block shows
    weight = noise(num_outputs, num_columns, seed=1)
    weight *= (torch.arange(num_outputs)[:, None] // 128 + 1) * 3.0 ** (
        torch.arange(num_columns) // 128
    )
    stored = quantize_fp8(weight)
    return Fp8Stored(stored.weight.to(DEVICE), stored.scale_inv.to(DEVICE))


def some_rows(num_rows: int, width: int) -> torch.Tensor:
    return noise(num_rows, width, seed=2).bfloat16().to(DEVICE)


@pytest.mark.parametrize(
    ("rows", "outputs", "columns"),
    [
        pytest.param(1, 64, 128, id="one row, half a block of outputs"),
        pytest.param(3, 192, 256, id="a block and a half of outputs"),
        pytest.param(17, 100, 200, id="nothing even"),
        pytest.param(40, 64, 72, id="less than a block of columns"),
        pytest.param(130, 130, 128, id="more rows than a tile"),
    ],
)
def test_rows_are_multiplied_by_the_dequantized_matrix(
    rows: int, outputs: int, columns: int
) -> None:
    x, matrix = some_rows(rows, columns), a_matrix(outputs, columns)
    expected = fp8_product_reference(x, matrix)
    torch.testing.assert_close(
        fp8_product(x, matrix).float(),
        expected,
        rtol=BF16_STEP,
        atol=1e-3 * expected.abs().max().item(),
    )


@pytest.mark.parametrize("parts", [1, 2, 3, 5])
def test_parts_of_a_long_row_add_up(parts: int) -> None:
    x, matrix = some_rows(2, 600), a_matrix(64, 600)
    expected = fp8_product_reference(x, matrix)
    torch.testing.assert_close(
        fp8_product(x, matrix, num_parts=parts).float(),
        expected,
        rtol=BF16_STEP,
        atol=1e-3 * expected.abs().max().item(),
    )


def test_every_e4m3_value_is_exact() -> None:
    """Rows of ones in one place each pick one column of every finite code."""
    codes = torch.arange(256, dtype=torch.uint8)
    codes = codes[codes & 0x7F != 0x7F]
    weight = codes.view(torch.float8_e4m3fn)[:, None].repeat(1, 16)
    matrix = Fp8Stored(weight.to(DEVICE), torch.ones(2, 1, device=DEVICE))
    x = torch.eye(16, dtype=torch.bfloat16, device=DEVICE)
    assert torch.equal(fp8_product(x, matrix).T.float(), matrix.weight.float())


def test_a_rows_bits_do_not_depend_on_its_company() -> None:
    x, matrix = some_rows(5, 256), a_matrix(64, 256)
    together = fp8_product(x, matrix, num_parts=2)
    for row in range(5):
        one = slice(row, row + 1)
        assert torch.equal(fp8_product(x[one], matrix, num_parts=2), together[one])


def test_rows_may_be_columns_of_something_wider() -> None:
    wide, matrix = some_rows(3, 300), a_matrix(64, 128)
    assert torch.equal(
        fp8_product(wide[:, 100:228], matrix), fp8_product(wide[:, 100:228].contiguous(), matrix)
    )


def test_no_rows_give_no_rows() -> None:
    assert fp8_product(some_rows(0, 128), a_matrix(64, 128)).shape == (0, 64)


def test_the_reference_dequantizes_as_the_runtime_does() -> None:
    matrix = a_matrix(130, 150)
    x = torch.eye(150, dtype=torch.bfloat16, device=DEVICE)
    stored = Fp8Matrix(matrix.weight.cpu(), matrix.scale_inv.cpu())
    assert torch.equal(fp8_product_reference(x, matrix).T.cpu(), dequantize_fp8(stored))


def test_mismatched_shapes_are_refused() -> None:
    with pytest.raises(ValueError, match="128 columns, the rows 256"):
        fp8_product(some_rows(1, 256), a_matrix(64, 128))
    matrix = a_matrix(130, 128)
    with pytest.raises(ValueError, match=r"\(2, 1\) blocks"):
        fp8_product(some_rows(1, 128), matrix._replace(scale_inv=matrix.scale_inv[:1]))
