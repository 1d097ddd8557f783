"""The two weight formats of released checkpoints, both ways.

Layouts: `tenantry_kernels/int4_matrix.py` and `fp8_matrix.py`, where they are read.
"""

from __future__ import annotations

import torch

from tenantry_kernels.fp8_matrix import (
    FP8_BLOCK as FP8_BLOCK,
    Fp8Matrix as Fp8Matrix,
    dequantize_fp8 as dequantize_fp8,
)
from tenantry_kernels.int4_matrix import (
    INT4_GROUP as INT4_GROUP,
    INT4_PER_WORD as INT4_PER_WORD,
    Int4Matrix as Int4Matrix,
    dequantize_int4 as dequantize_int4,
    unpack_int4 as unpack_int4,
)

FP8_MAX = 448.0
"""Largest finite float8_e4m3fn."""

# candidates around max/7.5, the plain min-max scale, each fitted to what it rounds to: the error on
# Gaussian weights falls from 9.5 to 8.6 percent RMS
_INT4_DIVISORS = (6.5, 7.0, 7.5, 8.0, 8.75)

# with all candidates this stays in a core's cache: ten times as fast as a whole expert at once
_VALUES_AT_ONCE = 1 << 16


def pack_int4(q: torch.Tensor) -> torch.Tensor:
    """Return int32 words [out, in / 8] of integers [out, in] in -8..7."""
    nibbles: torch.Tensor = (q.to(torch.int64) + 8).unflatten(-1, (-1, INT4_PER_WORD))
    shift = torch.arange(0, 32, 4, dtype=torch.int64, device=q.device)
    # int64 keeps the top nibble's sign bit out of the sum; the cast wraps it back into an int32
    words: torch.Tensor = (nibbles << shift).sum(-1)
    return words.to(torch.int32)


def quantize_int4(weight: torch.Tensor) -> Int4Matrix:
    """Round [out, in] to INT4; the scale is the candidate of least squared error in each group."""
    num_rows = max(1, _VALUES_AT_ONCE // weight.shape[1])
    parts = [_quantize_rows(rows) for rows in weight.split(num_rows)]
    return Int4Matrix(*(torch.cat(tensors) for tensors in zip(*parts, strict=True)))


def _quantize_rows(weight: torch.Tensor) -> Int4Matrix:
    groups: torch.Tensor = weight.float().unflatten(-1, (-1, INT4_GROUP))
    scale = int4_scale(groups)
    q = int4_round(groups, scale.float())
    return Int4Matrix(pack_int4(q.flatten(-2)), scale.squeeze(-1))


def int4_scale(groups: torch.Tensor) -> torch.Tensor:
    """Return the bf16 scale [..., 1] of float32 groups [..., 32]."""
    largest = groups.abs().amax(-1, keepdim=True).clamp(min=1e-8)
    first = torch.stack([largest / divisor for divisor in _INT4_DIVISORS])
    q = int4_round(groups, first)
    power = q.square().sum(-1, keepdim=True)
    # least squares for the integers of the first rounding; a group of zeros has none
    fitted = (q * groups).sum(-1, keepdim=True) / power.clamp(min=1.0)
    candidates = torch.where(power > 0, fitted, first).bfloat16()
    wide = candidates.float()
    error = (int4_round(groups, wide) * wide - groups).square().sum(-1, keepdim=True)
    return candidates.gather(0, error.argmin(0, keepdim=True)).squeeze(0)


def int4_round(groups: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    """Return the nearest integers in -8..7, as float32."""
    return (groups / scale).round().clamp(-8, 7)


def quantize_fp8(weight: torch.Tensor) -> Fp8Matrix:
    """Round [out, in] to FP8 with one scale per 128x128 block, the last of an axis perhaps partial."""
    num_rows, num_columns = weight.shape
    padding = (0, -num_columns % FP8_BLOCK, 0, -num_rows % FP8_BLOCK)
    padded = torch.nn.functional.pad(weight.float(), padding)
    blocks = padded.unflatten(0, (-1, FP8_BLOCK)).unflatten(2, (-1, FP8_BLOCK))
    scale_inv = (blocks.abs().amax((1, 3)) / FP8_MAX).clamp(min=1e-12)
    q = (blocks / scale_inv[:, None, :, None]).clamp(-FP8_MAX, FP8_MAX)
    flat = q.flatten(2).flatten(0, 1)[:num_rows, :num_columns]
    return Fp8Matrix(flat.to(torch.float8_e4m3fn).contiguous(), scale_inv)
