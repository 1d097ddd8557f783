"""FP8 rows against the definition: a power of two over the largest value, e4m3 to nearest even."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, strategies as st

from tenantry_kernels import fp8_rows


def scale_of(amax: float) -> float:
    """Return 2^ceil(log2(amax / 448)) in exact arithmetic."""
    if amax == 0:
        return 1.0
    mantissa, exponent = math.frexp(amax)
    # 448 is 0.875 * 2^9
    return max(2.0 ** (exponent - 9 + (mantissa > 0.875)), 2.0**-126)


@given(amax=st.floats(2.0**-110, 2.0**120, width=32), sign=st.sampled_from([-1, 1]))
def test_the_scale_puts_the_largest_value_at_the_top_of_the_range(amax: float, sign: int) -> None:
    value, scale = fp8_rows.quantise_rows(torch.tensor([[amax * sign, amax / 4, 0.0]]))
    assert scale.item() == scale_of(amax)
    assert 224 <= abs(value.float()[0, 0].item()) <= 448


@pytest.mark.parametrize("amax", [448.0, 448.0 * (1 + 2.0**-23), 447.9, 224.0, 1.0, 0.0, 1e-44])
def test_the_edges_of_a_power_of_two_are_exact(amax: float) -> None:
    _, scale = fp8_rows.quantise_rows(torch.tensor([[0.0, -amax]]))
    assert scale.item() == scale_of(float(torch.tensor(amax)))


def test_values_are_the_nearest_e4m3_and_ties_go_to_even() -> None:
    row = torch.randn(40, 96, generator=torch.Generator().manual_seed(0)) * 3
    row[0, :3] = torch.tensor([448.0, 232.0, 248.0])
    value, scale = fp8_rows.quantise_rows(row)
    codes = torch.arange(127, dtype=torch.uint8).view(torch.float8_e4m3fn).double()
    every = torch.cat([-codes.flip(0), codes])
    exact = row.double() / scale.double()[:, None]
    best = (exact[..., None] - every).abs().amin(-1)
    assert torch.equal((exact - value.double()).abs(), best)
    # 232 lies between 224 and 240, 248 between 240 and 256: the even mantissas are 224 and 256
    assert value.float()[0, :3].tolist() == [448.0, 224.0, 256.0]


def test_rows_survive_a_second_trip_unchanged() -> None:
    row = torch.randn(10, 64, generator=torch.Generator().manual_seed(0)).bfloat16()
    once = fp8_rows.dequantise_rows(*fp8_rows.quantise_rows(row))
    again = fp8_rows.dequantise_rows(*fp8_rows.quantise_rows(once))
    assert torch.equal(once, again)
    assert ((once - row.float()).abs() <= row.float().abs().amax(-1, keepdim=True) / 16).all()


def test_nan_stays_and_infinity_saturates() -> None:
    value, scale = fp8_rows.quantise_rows(torch.tensor([[1.0, math.nan], [-math.inf, 1.0]]))
    assert value.float()[0].isnan().tolist() == [False, True]
    assert value.float()[1, 0].item() == -448 and scale.isfinite().all()


def test_a_page_is_its_rows_and_then_their_scales() -> None:
    row = torch.randn(2, 64, 24, generator=torch.Generator().manual_seed(0))
    pool = fp8_rows.pack_pages(row)
    value, scale = fp8_rows.quantise_rows(row)
    assert pool.shape == (2, 64 * 24 + 256) == (2, fp8_rows.page_bytes(24))
    assert pool[1, : 64 * 24].tolist() == value[1].view(torch.uint8).flatten().tolist()
    assert torch.equal(pool[1, 64 * 24 :].view(torch.float32), scale[1])
    assert torch.equal(fp8_rows.unpack_pages(pool), fp8_rows.dequantise_rows(value, scale))


def test_released_models_have_aligned_pages() -> None:
    assert fp8_rows.page_bytes(576) == 37_120 == 290 * 128
    assert fp8_rows.page_bytes(128) == 64 * 132
    assert fp8_rows.page_width(37_120) == 576


@pytest.mark.parametrize("num_bytes", [37_121, 256, 0])
def test_bytes_that_are_no_page_are_refused(num_bytes: int) -> None:
    with pytest.raises(ValueError, match=str(num_bytes)):
        fp8_rows.page_width(num_bytes)


def test_appended_rows_are_gathered_and_the_rest_is_left_alone() -> None:
    pool = torch.zeros(4, fp8_rows.page_bytes(16), dtype=torch.uint8)
    row = torch.randn(3, 16, generator=torch.Generator().manual_seed(0))
    none = torch.iinfo(torch.int64).max
    fp8_rows.append_rows(pool, torch.tensor([64 + 5, none, 130]), row)
    expected = fp8_rows.dequantise_rows(*fp8_rows.quantise_rows(row))
    assert torch.equal(fp8_rows.gather_rows(pool, torch.tensor([[69], [130]]))[:, 0], expected[::2])
    # the row without a slot went to the sink
    assert torch.equal(fp8_rows.gather_rows(pool, torch.tensor([192])), expected[1:2])
    assert int((fp8_rows.unpack_pages(pool).abs().amax(-1) > 0).sum()) == 3
