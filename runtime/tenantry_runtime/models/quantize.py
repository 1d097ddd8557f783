"""The two weight formats of released checkpoints, both ways.

INT4 `pack-quantized` (compressed-tensors), matrix [out, in], group of 32 input columns:

| tensor | dtype | shape | what |
|---|---|---|---|
| weight_packed | int32 | [out, in / 8] | column j is nibble j % 8 of word j // 8, lowest first, stored as q + 8 |
| weight_scale | bf16 | [out, in / 32] | w = q * scale, q in -8..7 |
| weight_shape | int32 or int64 | [2] | (out, in) |

FP8 blocks, matrix [out, in]:

| tensor | dtype | shape | what |
|---|---|---|---|
| weight | float8_e4m3fn | [out, in] | |
| weight_scale_inv | float32 | [ceil(out / 128), ceil(in / 128)] | w = q * scale_inv, despite the name |

The last block of an axis may be partial. A block may straddle two heads of kv_b_proj: dequantize
before splitting.
"""

from __future__ import annotations

from typing import NamedTuple

import torch

INT4_GROUP = 32
INT4_PER_WORD = 8
FP8_BLOCK = 128
FP8_MAX = 448.0
"""Largest finite float8_e4m3fn."""

# candidates around max/7.5, the plain min-max scale, each fitted to what it rounds to: the error on
# Gaussian weights falls from 9.5 to 8.6 percent RMS
_INT4_DIVISORS = (6.5, 7.0, 7.5, 8.0, 8.75)

# with all candidates this stays in a core's cache: ten times as fast as a whole expert at once
_VALUES_AT_ONCE = 1 << 16


class Int4Matrix(NamedTuple):
    """One INT4 matrix as it stands in a file, less its shape."""

    packed: torch.Tensor
    scale: torch.Tensor


class Fp8Matrix(NamedTuple):
    """One FP8 matrix as it stands in a file."""

    weight: torch.Tensor
    scale_inv: torch.Tensor


def unpack_int4(packed: torch.Tensor) -> torch.Tensor:
    """Return int8 [out, in] in -8..7 of int32 words [out, in / 8]."""
    shift = torch.arange(0, 32, 4, dtype=torch.int32, device=packed.device)
    nibbles: torch.Tensor = (packed[..., None] >> shift) & 0xF
    return (nibbles - 8).to(torch.int8).flatten(-2)


def pack_int4(q: torch.Tensor) -> torch.Tensor:
    """Return int32 words [out, in / 8] of integers [out, in] in -8..7."""
    nibbles: torch.Tensor = (q.to(torch.int64) + 8).unflatten(-1, (-1, INT4_PER_WORD))
    shift = torch.arange(0, 32, 4, dtype=torch.int64, device=q.device)
    # int64 keeps the top nibble's sign bit out of the sum; the cast wraps it back into an int32
    words: torch.Tensor = (nibbles << shift).sum(-1)
    return words.to(torch.int32)


def dequantize_int4(matrix: Int4Matrix) -> torch.Tensor:
    """Return float32 [out, in]."""
    groups: torch.Tensor = unpack_int4(matrix.packed).float().unflatten(-1, (-1, INT4_GROUP))
    return (groups * matrix.scale.float()[..., None]).flatten(-2)


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


def dequantize_fp8(matrix: Fp8Matrix) -> torch.Tensor:
    """Return float32 [out, in]."""
    num_rows, num_columns = matrix.weight.shape
    scale = matrix.scale_inv.repeat_interleave(FP8_BLOCK, 0)[:num_rows]
    scale = scale.repeat_interleave(FP8_BLOCK, 1)[:, :num_columns]
    return matrix.weight.float() * scale


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
