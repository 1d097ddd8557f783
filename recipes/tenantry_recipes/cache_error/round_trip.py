"""Rows as they come back from pages of any row format, served or only planned.

K rows of C values: latent, then rope.
"""

from __future__ import annotations

import torch

from tenantry_kernels.fp8_rows import dequantise_rows, quantise_rows
from tenantry_runtime.cache.formats import RowFormat


def round_trip(row_KC: torch.Tensor, rows: RowFormat, *, rope_dim: int) -> torch.Tensor:
    """Return float64 rows as they are after being kept; all scales are powers of two."""
    if rows.rope_value_bytes is not None:
        latent, rope = row_KC.split([row_KC.shape[1] - rope_dim, rope_dim], -1)
        return torch.cat((_latents(latent, rows), _bf16(rope)), -1)
    match rows.value_bytes:
        case 4:
            return row_KC.float().double()
        case 2:
            return _bf16(row_KC)
        case _:
            return _latents(row_KC, rows)


def _latents(row_KC: torch.Tensor, rows: RowFormat) -> torch.Tensor:
    if not rows.has_scale:
        # one scale for all rows of a layer: no static one could be better for them
        return _fp8(row_KC.flatten()).view_as(row_KC)
    if rows.scale_block is None:
        return _fp8(row_KC)
    return torch.cat([_fp8(block) for block in row_KC.split(rows.scale_block, -1)], -1)


def _fp8(values: torch.Tensor) -> torch.Tensor:
    return dequantise_rows(*quantise_rows(values)).double()


def _bf16(values: torch.Tensor) -> torch.Tensor:
    return values.bfloat16().double()
