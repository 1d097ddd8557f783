"""The weight formats against the published examples and the package that defines INT4."""

from __future__ import annotations

import pytest
import torch
from compressed_tensors.compressors.pack_quantized import (
    PackedQuantizationCompressor,
    pack_to_int32,
    unpack_from_int32,
)
from hypothesis import given, strategies as st

from support.quantized_copies import INT4_SCHEME, e4m3_value, fp8_values, int4_values
from tenantry_runtime.models.quantize import (
    Int4Matrix,
    dequantize_fp8,
    dequantize_int4,
    pack_int4,
    quantize_fp8,
    quantize_int4,
    unpack_int4,
)


def noise(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def rms_error(approximate: torch.Tensor, exact: torch.Tensor) -> float:
    return float((approximate - exact).square().mean().sqrt() / exact.square().mean().sqrt())


@pytest.mark.parametrize(
    ("q", "word"),
    [
        (range(-8, 0), 0x76543210),
        (range(8), 0xFEDCBA98),
        ([7, -8, -8, -8, -8, -8, -8, -8], 0x0000000F),
        ([-8, -8, -8, -8, -8, -8, -8, 7], 0xF0000000),
    ],
)
def test_eight_columns_are_one_word_lowest_nibble_first(q: list[int], word: int) -> None:
    packed = pack_int4(torch.tensor([list(q)]))
    assert packed.dtype == torch.int32
    assert int(packed.item()) & 0xFFFFFFFF == word
    assert unpack_int4(packed).tolist() == [list(q)]


@given(st.lists(st.lists(st.integers(-8, 7), min_size=64, max_size=64), min_size=1, max_size=3))
def test_words_are_those_of_compressed_tensors(rows: list[list[int]]) -> None:
    q = torch.tensor(rows, dtype=torch.int8)
    packed = pack_int4(q)
    assert torch.equal(packed, pack_to_int32(q, 4))
    assert torch.equal(unpack_int4(packed), q)
    assert torch.equal(unpack_from_int32(packed, 4, q.shape), q)
    assert int4_values(packed.numpy()).tolist() == rows


@pytest.mark.parametrize("shape", [(1, 32), (7, 96), (64, 128)])
def test_int4_means_what_compressed_tensors_decompresses(shape: tuple[int, int]) -> None:
    matrix = quantize_int4(noise(*shape))
    files = {
        "weight_packed": matrix.packed,
        "weight_scale": matrix.scale,
        "weight_shape": torch.tensor(shape),
    }
    theirs = PackedQuantizationCompressor.decompress(files, INT4_SCHEME)["weight"]
    assert theirs.dtype == torch.bfloat16
    assert torch.equal(dequantize_int4(matrix).bfloat16(), theirs)


def test_int4_as_compressed_tensors_writes_it_is_read() -> None:
    weight = noise(24, 64).bfloat16()
    scale = (weight.float().unflatten(1, (-1, 32)).abs().amax(-1) / 7.5).bfloat16()
    files = PackedQuantizationCompressor.compress(
        {"weight": weight, "weight_scale": scale}, INT4_SCHEME
    )
    ours = dequantize_int4(Int4Matrix(files["weight_packed"], files["weight_scale"]))
    theirs = PackedQuantizationCompressor.decompress(dict(files), INT4_SCHEME)["weight"]
    assert torch.equal(ours.bfloat16(), theirs)
    assert rms_error(ours, weight.float()) < 0.11


def test_int4_rounds_gaussian_weights_better_than_min_max() -> None:
    weight = noise(512, 512)
    groups = weight.unflatten(1, (-1, 32))
    scale = groups.abs().amax(-1, keepdim=True) / 7.5
    min_max = ((groups / scale).round().clamp(-8, 7) * scale).flatten(1)
    assert rms_error(min_max, weight) == pytest.approx(0.095, abs=0.001)
    error = rms_error(dequantize_int4(quantize_int4(weight)), weight)
    assert error == pytest.approx(0.086, abs=0.0005)


def test_int4_of_a_large_matrix_is_that_of_its_rows() -> None:
    # more values than are rounded at once, and rows longer than that
    for shape in ((97, 1536), (3, 40_000)):
        weight = noise(*shape)
        whole = quantize_int4(weight)
        for row, packed, scale in zip(weight, *whole, strict=True):
            alone = quantize_int4(row[None])
            assert torch.equal(alone.packed[0], packed)
            assert torch.equal(alone.scale[0], scale)


@pytest.mark.parametrize("size", [1e-6, 1.0, 1e6])
def test_int4_keeps_its_relative_error_at_any_size(size: float) -> None:
    weight = noise(32, 64) * size
    assert rms_error(dequantize_int4(quantize_int4(weight)), weight) < 0.1


def test_int4_of_zeros_is_zeros() -> None:
    assert not dequantize_int4(quantize_int4(torch.zeros(3, 32))).any()


def test_e4m3_bytes_mean_what_torch_says() -> None:
    codes = torch.arange(256, dtype=torch.uint8)
    theirs = codes.view(torch.float8_e4m3fn).float()
    ours = torch.tensor([e4m3_value(code) for code in range(256)])
    torch.testing.assert_close(ours, theirs, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("shape", [(1, 1), (144, 192), (128, 256), (1792, 130), (129, 127)])
def test_fp8_blocks_may_be_partial(shape: tuple[int, int]) -> None:
    weight = noise(*shape)
    matrix = quantize_fp8(weight)
    assert matrix.weight.shape == shape
    assert matrix.scale_inv.shape == (-(-shape[0] // 128), -(-shape[1] // 128))
    dense = dequantize_fp8(matrix)
    assert torch.equal(dense, torch.from_numpy(fp8_values(*matrix)))
    # three mantissa bits: half a step is one sixteenth
    torch.testing.assert_close(dense, weight, rtol=1 / 16, atol=1e-4)


def test_each_fp8_block_has_a_scale_of_its_own() -> None:
    weight = torch.ones(256, 256)
    weight[:128, 128:] = 1e-3
    weight[128:, :128] = 1e3
    matrix = quantize_fp8(weight)
    expected = torch.tensor([[1.0, 1e-3], [1e3, 1.0]]) / 448
    torch.testing.assert_close(matrix.scale_inv, expected)
    torch.testing.assert_close(dequantize_fp8(matrix), weight)


def test_fp8_of_zeros_is_zeros() -> None:
    assert not dequantize_fp8(quantize_fp8(torch.zeros(130, 3))).any()
