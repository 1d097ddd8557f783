"""FP8 matrices of released checkpoints, in blocks of 128x128.

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

FP8_BLOCK = 128


class Fp8Matrix(NamedTuple):
    """One FP8 matrix as it stands in a file."""

    weight: torch.Tensor
    scale_inv: torch.Tensor


def dequantize_fp8(matrix: Fp8Matrix) -> torch.Tensor:
    """Return float32 [out, in]."""
    num_rows, num_columns = matrix.weight.shape
    scale = matrix.scale_inv.repeat_interleave(FP8_BLOCK, 0)[:num_rows]
    scale = scale.repeat_interleave(FP8_BLOCK, 1)[:, :num_columns]
    return matrix.weight.float() * scale
