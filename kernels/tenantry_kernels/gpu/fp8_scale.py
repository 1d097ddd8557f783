"""The power-of-two scale of `fp8_rows`, inside a kernel: from bits to bits, as the CPU finds it."""

from __future__ import annotations

import triton
import triton.language as tl

MANTISSA_OF_448 = tl.constexpr(0x600000)
EXPONENT_OF_448 = tl.constexpr(8)


@triton.jit
def quantise_block(b_row):
    """Return e4m3 values and float32 scales [T] of float32 rows [T, W]; zeros may pad them."""
    # the order of magnitudes is the order of their bits
    b_amax = tl.max(b_row.to(tl.int32, bitcast=True) & 0x7FFFFFFF, 1)
    b_carry = ((b_amax & 0x7FFFFF) > MANTISSA_OF_448).to(tl.int32)
    b_field = tl.maximum((b_amax >> 23) - EXPONENT_OF_448 + b_carry, 1)
    b_field = tl.where(b_amax == 0, 127, b_field)
    b_inverse = ((254 - b_field) << 23).to(tl.float32, bitcast=True)
    b_scale = (b_field << 23).to(tl.float32, bitcast=True)
    # the conversion rounds to nearest even and saturates
    return (b_row * b_inverse[:, None]).to(tl.float8e4nv), b_scale
