"""The mended interpreter against torch's own small floats."""

from __future__ import annotations

import pytest
import torch
import triton
import triton.language as tl

pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="a GPU interprets nothing")

SMALL = [torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2]


@triton.jit
def cast_kernel(source, target, SIZE: tl.constexpr):
    o_value = tl.arange(0, SIZE)
    value = tl.load(source + o_value)
    tl.store(target + o_value, value.to(target.dtype.element_ty))


@triton.jit
def arithmetic_kernel(x, y, total, product, largest, SIZE: tl.constexpr):
    o_value = tl.arange(0, SIZE)
    b_x = tl.load(x + o_value)
    b_y = tl.load(y + o_value)
    tl.store(total + o_value, b_x + b_y)
    tl.store(product + o_value, b_x * b_y)
    tl.store(largest, tl.max(b_x, 0))


@triton.jit
def dot_kernel(x, y, out, SIZE: tl.constexpr):
    o_row = tl.arange(0, SIZE)[:, None] * SIZE + tl.arange(0, SIZE)[None, :]
    tl.store(out + o_row, tl.dot(tl.load(x + o_row), tl.load(y + o_row)))


@triton.jit
def histogram_kernel(values, counts, SIZE: tl.constexpr, BINS: tl.constexpr, LIMIT: tl.constexpr):
    o_value = tl.arange(0, SIZE)
    count = tl.histogram(tl.load(values + o_value), BINS, mask=o_value < LIMIT)
    tl.store(counts + tl.arange(0, BINS), count)


def spread(size: int) -> torch.Tensor:
    """Values of all magnitudes: subnormal in every small type, ties, and some that overflow."""
    generator = torch.Generator().manual_seed(0)
    exponent = torch.randint(-20, 20, (size,), generator=generator)
    value = torch.randn(size, generator=generator) * 2.0**exponent
    value[:64] = torch.arange(64) / 16
    value[64], value[65] = 0.0, torch.nan
    return value


def bits(value: torch.Tensor) -> torch.Tensor:
    return value.float().nan_to_num(nan=12345.0)


@pytest.mark.parametrize("kind", SMALL)
def test_casts_round_to_nearest_even_and_saturate(kind: torch.dtype) -> None:
    source = spread(4096)
    target = torch.empty(4096, dtype=kind)
    cast_kernel[(1,)](source, target, SIZE=4096)
    limit = torch.finfo(kind).max if kind != torch.bfloat16 else torch.inf
    assert torch.equal(bits(target), bits(source.clamp(-limit, limit).to(kind)))


@pytest.mark.parametrize("kind", SMALL)
def test_every_code_widens_to_its_value(kind: torch.dtype) -> None:
    size = 256 if kind.itemsize == 1 else 65536
    storage = torch.uint8 if kind.itemsize == 1 else torch.int16
    source = torch.arange(size).to(storage).view(kind)
    target = torch.empty(size)
    cast_kernel[(1,)](source, target, SIZE=size)
    assert torch.equal(bits(target), bits(source))


def test_bf16_arithmetic_is_rounded_float32_arithmetic() -> None:
    x, y = spread(512).bfloat16(), spread(1024)[512:].bfloat16()
    total, product, largest = torch.empty_like(x), torch.empty_like(x), torch.empty(1).bfloat16()
    arithmetic_kernel[(1,)](x, y, total, product, largest, SIZE=512)
    assert torch.equal(bits(total), bits(x + y))
    assert torch.equal(bits(product), bits(x * y))
    assert largest.item() == x.nan_to_num(-torch.inf).max().item()


@pytest.mark.parametrize("kind", SMALL)
def test_dots_multiply_values(kind: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(1)
    x, y = (torch.randn(32, 32, generator=generator).to(kind) for _ in range(2))
    out = torch.empty(32, 32)
    dot_kernel[(1,)](x, y, out, SIZE=32)
    torch.testing.assert_close(out.double(), x.double() @ y.double(), rtol=0, atol=1e-5)


def test_histograms_count_what_the_mask_leaves() -> None:
    values = torch.randint(
        0, 16, (64,), dtype=torch.int32, generator=torch.Generator().manual_seed(2)
    )
    counts = torch.empty(16, dtype=torch.int32)
    histogram_kernel[(1,)](values, counts, SIZE=64, BINS=16, LIMIT=40)
    assert counts.tolist() == [int((values[:40] == value).sum()) for value in range(16)]
