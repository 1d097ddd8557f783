"""Cache rows in FP8 with one power-of-two scale each, and pages of such rows.

A row of W values becomes W e4m3 bytes and a float32 scale: value = e4m3 * scale. With amax the
row's largest magnitude, scale = 2^ceil(log2(amax / 448)), so that the largest value lands in
(224, 448] and dividing by the scale is exact. It is found from amax's bits, the same way on every
device:

| amax | exponent field of the scale |
|---|---|
| 0 | 127 (the scale is 1) |
| mantissa at most 1.75 (448 = 1.75 * 2^8) | amax's - 8, at least 1 |
| mantissa above 1.75 | amax's - 7, at least 1 |

A page is one run of bytes, data first, so that both parts stay aligned:

| bytes of a page | what |
|---|---|
| [0, 64 * W) | 64 rows of W e4m3 values |
| [64 * W, 64 * W + 256) | 64 float32 scales, little-endian |

W is the latent plus the rotated key (576 in the released models: 37,120 bytes a page) or the index
head (128: 8,448 bytes). T rows, W values, P pages, B the bytes of a page.
"""

from __future__ import annotations

import torch

PAGE_TOKENS = 64
SCALE_BYTES = 4

# 1.75 without its leading one, as a float32's 23 mantissa bits
_MANTISSA_OF_448 = 0x600000
_EXPONENT_OF_448 = 8


def page_bytes(width: int) -> int:
    """Return the bytes of one page of rows of `width` values."""
    return PAGE_TOKENS * (width + SCALE_BYTES)


def page_width(num_bytes: int) -> int:
    """Return the width of the rows of a page of `num_bytes`."""
    width, rest = divmod(num_bytes, PAGE_TOKENS)
    if rest or width <= SCALE_BYTES:
        raise ValueError(
            f"a page of FP8 rows has {PAGE_TOKENS} * (width + {SCALE_BYTES}) bytes, not {num_bytes}"
        )
    return width - SCALE_BYTES


def quantise_rows(row_TW: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return e4m3 values [..., W] and float32 scales [...] of rows [..., W] of any float dtype.

    NaNs stay, infinities saturate.
    """
    row = row_TW.float()
    # the order of magnitudes is the order of their bits; NaN comes last and cannot be missed
    amax = (row.view(torch.int32) & 0x7FFFFFFF).amax(-1)
    scale_bits = _scale_bits(amax)
    inverse_bits: torch.Tensor = (254 << 23) - scale_bits
    inverse = inverse_bits.view(torch.float32)
    value = (row * inverse[..., None]).clamp(-448, 448).to(torch.float8_e4m3fn)
    return value, scale_bits.view(torch.float32)


def dequantise_rows(value_TW: torch.Tensor, scale_T: torch.Tensor) -> torch.Tensor:
    """Return float32 rows [..., W] of e4m3 values (or their bytes) and their scales [...]."""
    return value_TW.view(torch.float8_e4m3fn).float() * scale_T[..., None]


def page_values(pool_PB: torch.Tensor) -> torch.Tensor:
    """Return the e4m3 values [P, 64, W] of a pool uint8 [P, B]: a view."""
    width = page_width(pool_PB.shape[-1])
    data = pool_PB[..., : PAGE_TOKENS * width]
    row_PTW: torch.Tensor = data.unflatten(-1, (PAGE_TOKENS, width))
    return row_PTW.view(torch.float8_e4m3fn)


def page_scales(pool_PB: torch.Tensor) -> torch.Tensor:
    """Return the float32 scales [P, 64] of a pool uint8 [P, B]: a view."""
    width = page_width(pool_PB.shape[-1])
    return pool_PB[..., PAGE_TOKENS * width :].view(torch.float32)


def pack_pages(row_PTW: torch.Tensor) -> torch.Tensor:
    """Quantise pages of rows [P, 64, W]; return their bytes, uint8 [P, B]."""
    num_pages, _, width = row_PTW.shape
    pool = torch.empty((num_pages, page_bytes(width)), dtype=torch.uint8, device=row_PTW.device)
    value, scale = quantise_rows(row_PTW)
    page_values(pool).copy_(value)
    page_scales(pool).copy_(scale)
    return pool


def unpack_pages(pool_PB: torch.Tensor) -> torch.Tensor:
    """Return the float32 rows [P, 64, W] of a pool uint8 [P, B]."""
    return dequantise_rows(page_values(pool_PB), page_scales(pool_PB))


def append_rows(pool_PB: torch.Tensor, slot_T: torch.Tensor, row_TW: torch.Tensor) -> None:
    """Quantise each row into its slot; slots past the pool go to the sink, the last page.

    pool: uint8 [pages + 1, B]; slot: int64 [T], page * 64 + token; row: [T, W].
    """
    sink = (pool_PB.shape[0] - 1) * PAGE_TOKENS
    slot = slot_T.clamp(max=sink)
    page, token = slot // PAGE_TOKENS, slot % PAGE_TOKENS
    value, scale = quantise_rows(row_TW)
    # bytes, because indexed stores of e4m3 are not available on every device
    page_values(pool_PB).view(torch.uint8)[page, token] = value.view(torch.uint8)
    page_scales(pool_PB)[page, token] = scale


def gather_rows(pool_PB: torch.Tensor, slot: torch.Tensor) -> torch.Tensor:
    """Return the rows at int64 slots [...] as float32 [..., W]."""
    page, token = slot // PAGE_TOKENS, slot % PAGE_TOKENS
    value = page_values(pool_PB).view(torch.uint8)[page, token]
    return dequantise_rows(value, page_scales(pool_PB)[page, token])


def _scale_bits(amax_bits: torch.Tensor) -> torch.Tensor:
    """Return the bits of the scale of rows whose largest magnitude has these bits, both int32."""
    carry = ((amax_bits & 0x7FFFFF) > _MANTISSA_OF_448).int()
    field = ((amax_bits >> 23) - _EXPONENT_OF_448 + carry).clamp(min=1)
    return field.masked_fill(amax_bits == 0, 127).bitwise_left_shift(23)
