"""INT4 `pack-quantized` matrices of released checkpoints (compressed-tensors), group of 32 input columns.

| tensor | dtype | shape | what |
|---|---|---|---|
| weight_packed | int32 | [out, in / 8] | column j is nibble j % 8 of word j // 8, lowest first, stored as q + 8 |
| weight_scale | bf16 | [out, in / 32] | w = q * scale, q in -8..7 |

Matrices of one layer's experts are stacked: both tensors then have an axis more in front.
"""

from __future__ import annotations

from typing import NamedTuple

import torch

INT4_GROUP = 32
INT4_PER_WORD = 8


class Int4Matrix(NamedTuple):
    """One INT4 matrix as it stands in a file, less its shape."""

    packed: torch.Tensor
    scale: torch.Tensor


def unpack_int4(packed: torch.Tensor) -> torch.Tensor:
    """Return int8 [out, in] in -8..7 of int32 words [out, in / 8]."""
    shift = torch.arange(0, 32, 4, dtype=torch.int32, device=packed.device)
    nibbles: torch.Tensor = (packed[..., None] >> shift) & 0xF
    return (nibbles - 8).to(torch.int8).flatten(-2)


def dequantize_int4(matrix: Int4Matrix) -> torch.Tensor:
    """Return float32 [out, in]."""
    groups: torch.Tensor = unpack_int4(matrix.packed).float().unflatten(-1, (-1, INT4_GROUP))
    return (groups * matrix.scale.float()[..., None]).flatten(-2)
