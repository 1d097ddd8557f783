"""The compiled loops over stored matrices as ops on CPU tensors (letters: `ops.py`)."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from tenantry_kernels.choice import HAS_COMPILER
from tenantry_kernels.fp8_matrix import Fp8Matrix
from tenantry_kernels.int4_matrix import Int4Matrix

from .ops import _bits

if HAS_COMPILER:
    from . import packed

LEAST_OUTPUTS = 4
"""Of a matrix that the products take: they compute as many at a time."""
STEP = 32
"""What a matrix's columns must be a multiple of (`blocks.STEP`)."""


def int4_product(x_TH: torch.Tensor, matrix: Int4Matrix, out_TO: torch.Tensor, column: int) -> None:
    """Write x @ matrix.T into `out` from `column` on."""
    packed.int4_product(
        _bits(x_TH), _bytes(matrix.packed), _bits(matrix.scale), _bits(out_TO), column
    )


def fp8_product(x_TH: torch.Tensor, matrix: Fp8Matrix, out_TO: torch.Tensor, column: int) -> None:
    """Write x @ matrix.T into `out` from `column` on."""
    packed.fp8_product(
        _bits(x_TH), _bytes(matrix.weight), _bits(matrix.scale_inv), _bits(out_TO), column
    )


def widen_int4(matrix: Int4Matrix, first: int, out_NH: torch.Tensor) -> None:
    """Write the rows from `first` on into `out`, float32 or BF16."""
    packed.widen_int4(_bytes(matrix.packed), _bits(matrix.scale), first, _bits(out_NH))


def widen_fp8(matrix: Fp8Matrix, first: int, out_NH: torch.Tensor) -> None:
    """Write the rows from `first` on into `out`, float32 or BF16."""
    packed.widen_fp8(_bytes(matrix.weight), _bits(matrix.scale_inv), first, _bits(out_NH))


def _bytes(weight: torch.Tensor) -> NDArray[np.uint8]:
    content: NDArray[np.uint8] = weight.view(torch.uint8).numpy()
    return content
