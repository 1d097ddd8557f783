"""Products with weights as stored, against the same weights decoded apart and multiplied in float64."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn.functional import linear

from support.quantized_copies import e4m3_value, fp8_values, int4_values
from tenantry_kernels import stored
from tenantry_kernels.choice import HAS_COMPILER
from tenantry_kernels.cpu import blocks, compiler, packed, packed_ops
from tenantry_kernels.fp8_matrix import Fp8Matrix
from tenantry_kernels.int4_matrix import Int4Matrix
from tenantry_kernels.stored import (
    StoredDense,
    StoredFp8,
    StoredInt4,
    StoredMatrix,
    stored_product,
)

DTYPES = pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["f32", "bf16"])
# one row, fewer than a block, one row more, too many for the loops of either dtype
ROWS = pytest.mark.parametrize("num_rows", [1, 3, 5, 65])
# too few outputs for the loops, a block of them, a rest, a second block of 128 and its rest
OUTPUTS = (1, 4, 37, 130)
# within a block of 128, at its edge, past it
INT4_WIDTHS = (32, 128, 160)
# of no whole vectors too
FP8_WIDTHS = (40, 128, 192, 264)


def noise(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def int4_matrix(outputs: int, width: int, seed: int = 1) -> StoredInt4:
    generator = torch.Generator().manual_seed(seed)
    words = torch.randint(-(2**31), 2**31, (outputs, width // 8), generator=generator)
    scale = (0.01 + 0.1 * torch.rand(outputs, width // 32, generator=generator)).bfloat16()
    return StoredInt4(Int4Matrix(words.to(torch.int32), scale))


def fp8_matrix(outputs: int, width: int, seed: int = 1) -> StoredFp8:
    blocks_of = (-(-outputs // 128), -(-width // 128))
    scale = 0.01 + noise(*blocks_of, seed=seed).abs()
    weight = (20 * noise(outputs, width, seed=seed + 1)).to(torch.float8_e4m3fn)
    return StoredFp8(Fp8Matrix(weight, scale))


def decoded(matrix: StoredMatrix) -> torch.Tensor:
    """Return float32 weights, by code that shares nothing with what is tested."""
    match matrix:
        case StoredInt4(Int4Matrix(words, scale)):
            factor = np.repeat(scale.float().numpy(), 32, 1)
            return torch.from_numpy(int4_values(words.numpy()) * factor)
        case StoredFp8(Fp8Matrix(weight, scale_inv)):
            return torch.from_numpy(fp8_values(weight, scale_inv))
    (weight,) = matrix.tensors()
    return weight.float()


MATRICES: list[StoredMatrix] = [
    *[int4_matrix(outputs, width) for outputs in OUTPUTS for width in INT4_WIDTHS],
    *[fp8_matrix(outputs, width) for outputs in OUTPUTS for width in FP8_WIDTHS],
    *[StoredDense(noise(outputs, 40).bfloat16()) for outputs in OUTPUTS],
]
EVERY_MATRIX = pytest.mark.parametrize(
    "matrix", MATRICES, ids=[f"{m.format}-{m.shape[0]}x{m.shape[1]}" for m in MATRICES]
)


def assert_close(actual: torch.Tensor, x: torch.Tensor, weight: torch.Tensor) -> None:
    """Compare relative to the sums' terms: float32's rounding, or two BF16 roundings (weight, result)."""
    exact = x.double() @ weight.double().T
    size = x.double().abs() @ weight.double().abs().T
    share = 2**-20 if x.dtype == torch.float32 else 2**-8
    assert ((actual.double() - exact).abs() <= share * size).all()


@DTYPES
@ROWS
@EVERY_MATRIX
@torch.inference_mode()
def test_a_product_is_that_of_the_decoded_weights(
    matrix: StoredMatrix, num_rows: int, dtype: torch.dtype
) -> None:
    x = noise(num_rows, matrix.shape[1], seed=7).to(dtype)
    assert_close(stored_product(x, [matrix]), x, decoded(matrix))


@pytest.mark.parametrize("num_rows", [1, 2, 5])
@pytest.mark.parametrize("matrix", [int4_matrix(37, 160), fp8_matrix(130, 192)])
@torch.inference_mode()
def test_few_bfloat16_rows_meet_weights_that_are_not_rounded(
    matrix: StoredMatrix, num_rows: int
) -> None:
    x = noise(num_rows, matrix.shape[1], seed=7).bfloat16()
    out = torch.empty(num_rows, matrix.shape[0])
    assert matrix.multiply(x, out, 0, deterministic=False)
    # float32 out: nothing but sums is rounded
    size = x.double().abs() @ decoded(matrix).double().abs().T
    exact = x.double() @ decoded(matrix).double().T
    assert ((out.double() - exact).abs() <= 2**-20 * size).all()


@DTYPES
@EVERY_MATRIX
@torch.inference_mode()
def test_a_deterministic_product_has_the_bits_of_the_dense_one(
    matrix: StoredMatrix, dtype: torch.dtype
) -> None:
    x = noise(5, matrix.shape[1], seed=7).to(dtype)
    expected = linear(x, decoded(matrix).to(dtype))
    assert torch.equal(stored_product(x, [matrix], deterministic=True), expected)


@DTYPES
@EVERY_MATRIX
@torch.inference_mode()
def test_a_row_is_the_same_whatever_rows_are_with_it(
    matrix: StoredMatrix, dtype: torch.dtype
) -> None:
    x = noise(9, matrix.shape[1], seed=7).to(dtype)
    whole = torch.empty(9, matrix.shape[0], dtype=dtype)
    if matrix.multiply(x, whole, 0, deterministic=False):
        for last in range(1, 9):
            part = torch.empty(last, matrix.shape[0], dtype=dtype)
            assert matrix.multiply(x[:last], part, 0, deterministic=False)
            assert torch.equal(part, whole[:last])


@DTYPES
@torch.inference_mode()
def test_few_rows_widen_nothing(dtype: torch.dtype) -> None:
    def refuse(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        raise AssertionError("widened")

    matrices: list[StoredMatrix] = [int4_matrix(8, 256), fp8_matrix(130, 256)]
    x = noise(8, 256).to(dtype)
    joint = stored_product(x, matrices, dense=refuse)
    assert_close(joint[:, :8], x, decoded(matrices[0]))
    assert_close(joint[:, 8:], x, decoded(matrices[1]))


@DTYPES
@pytest.mark.parametrize("tile_values", [1, 700, 192 * 128, 192 * 300])
@torch.inference_mode()
def test_weights_are_widened_a_tile_at_a_time(
    monkeypatch: pytest.MonkeyPatch, dtype: torch.dtype, tile_values: int
) -> None:
    monkeypatch.setattr(stored, "TILE_VALUES", tile_values)
    sizes = []

    def dense(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        sizes.append(weight.numel())
        return linear(x, weight)

    matrices: list[StoredMatrix] = [fp8_matrix(300, 192), int4_matrix(70, 192)]
    x = noise(80, 192).to(dtype)
    joint = stored_product(x, matrices, dense=dense)
    assert_close(joint, x, torch.cat([decoded(matrix) for matrix in matrices]))
    assert sum(sizes) == 370 * 192
    assert max(sizes) <= max(tile_values, 192)


@DTYPES
@EVERY_MATRIX
def test_widened_rows_are_the_decoded_ones_wherever_they_begin(
    matrix: StoredMatrix, dtype: torch.dtype
) -> None:
    height, width = matrix.shape
    for first in (0, height // 2, height - 1):
        out = torch.empty(height - first, width, dtype=dtype)
        matrix.widen(first, out)
        assert torch.equal(out, decoded(matrix)[first:].to(dtype))


@EVERY_MATRIX
@torch.inference_mode()
def test_without_a_compiler_the_results_are_the_same(
    matrix: StoredMatrix, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = noise(3, matrix.shape[1], seed=7)
    expected = stored_product(x, [matrix], deterministic=True)
    monkeypatch.setattr(stored, "HAS_COMPILER", False)
    assert torch.equal(stored_product(x, [matrix], deterministic=True), expected)


@pytest.mark.parametrize("matrix", [int4_matrix(37, 160), fp8_matrix(130, 192)])
@torch.inference_mode()
def test_float16_has_no_loops_and_is_right(matrix: StoredMatrix) -> None:
    x = noise(3, matrix.shape[1], seed=7).half()
    expected = linear(x, decoded(matrix).half())
    assert torch.equal(stored_product(x, [matrix]), expected)


@pytest.mark.parametrize(
    "matrix", [int4_matrix(300, 512), fp8_matrix(300, 520), StoredDense(noise(300, 40))]
)
def test_a_part_is_those_blocks_in_memory_of_its_own(matrix: StoredMatrix) -> None:
    height, width = matrix.shape
    rows = slice(2 * matrix.row_block, height)
    columns = slice(matrix.column_block, width)
    part = matrix.part(rows, columns)
    assert torch.equal(decoded(part), decoded(matrix)[rows, columns])
    assert all(
        tensor.is_contiguous() and tensor.untyped_storage().nbytes() == tensor.nbytes
        for tensor in part.tensors()
    )


@pytest.mark.skipif(not HAS_COMPILER, reason="the loops need numba")
@DTYPES
@torch.inference_mode()
def test_every_e4m3_byte_and_every_nibble_is_what_it_says(dtype: torch.dtype) -> None:
    x = torch.eye(32).to(dtype)
    byte = torch.arange(256, dtype=torch.uint8).view(8, 32)
    out = torch.empty(32, 8)
    fp8 = Fp8Matrix(byte.view(torch.float8_e4m3fn), torch.ones(1, 1))
    packed_ops.fp8_product(x, fp8, out, 0)
    expected = torch.tensor([e4m3_value(code) for code in range(256)]).view(8, 32)
    # not a number times nothing is not a number either
    broken = expected.isnan().any(1)
    assert out.T[broken].isnan().all()
    assert torch.equal(out.T[~broken], expected[~broken])
    words = torch.tensor([0x76543210, -0x01234568, 0x76543210, -0x01234568]).expand(4, 4)
    int4 = Int4Matrix(words.to(torch.int32), torch.full((4, 1), 0.5).bfloat16())
    out = torch.empty(32, 4)
    packed_ops.int4_product(x, int4, out, 0)
    assert out[:, 0].tolist() == [0.5 * q for q in range(-8, 8)] * 2


@pytest.mark.skipif(not HAS_COMPILER, reason="the loops need numba")
def test_bytes_become_bfloat16_by_arithmetic_where_there_are_no_permutes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from numba import njit

    monkeypatch.setattr(packed, "_has_permutes", lambda context: False)
    byte = torch.arange(256, dtype=torch.uint8).view(8, 32)
    out = torch.empty(8, 32)

    @njit  # type: ignore[untyped-decorator]  # numba is not annotated
    def widen(weight: Any, scale: Any, out: Any) -> None:
        for n in range(out.shape[0]):
            packed._widen_fp8(weight, scale, n, out, n)

    widen(byte.numpy(), np.ones((1, 1), np.float32), out.numpy())
    expected = torch.tensor([e4m3_value(code) for code in range(256)]).view(8, 32)
    torch.testing.assert_close(out, expected, rtol=0, atol=0, equal_nan=True)


def test_the_loops_file_names_the_content_of_the_blocks_it_is_made_of() -> None:
    # numba's cache of a loop looks at the loops' own file: change this name with the blocks
    sources = (Path(str(module.__file__)) for module in (blocks, compiler))
    digest = hashlib.sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()
    assert packed.BLOCKS == digest[: len(digest) // 2]
