"""The compiled loops over FP8 pages as ops on CPU tensors in inference mode (letters: `ops.py`).

B bytes of a page.
"""

from __future__ import annotations

import numpy as np
import torch

from tenantry_kernels.choice import HAS_COMPILER
from tenantry_kernels.fp8_rows import page_width

from .ops import DecodeRows, _bits, _floats, _require_pages

if HAS_COMPILER:
    from . import fp8_pages


def append_rows(pool_PB: torch.Tensor, slot_T: torch.Tensor, row_TC: torch.Tensor) -> None:
    """`fp8_rows.append_rows`, the same bits."""
    fp8_pages.write_rows(_bits(row_TC), slot_T.numpy(), pool_PB.numpy())


def gather_rows(pool_PB: torch.Tensor, slot: torch.Tensor) -> torch.Tensor:
    """`fp8_rows.gather_rows`, the same bits."""
    out = np.empty((slot.numel(), page_width(pool_PB.shape[1])), np.float32)
    _require_pages(fp8_pages.read_rows(pool_PB.numpy(), slot.flatten().numpy(), out))
    return torch.from_numpy(out).view(*slot.shape, out.shape[1])


def decode_attention(
    q_TNC: torch.Tensor,
    pool_PB: torch.Tensor,
    rows: DecodeRows,
    position_TK: torch.Tensor | None,
    scale: float,
    out_TNL: torch.Tensor,
) -> None:
    """`ops.decode_attention` over FP8 pages."""
    num_rows = q_TNC.shape[0]
    is_done = fp8_pages.decode_attention(
        _bits(q_TNC),
        pool_PB.numpy(),
        rows.row_S,
        rows.page_table_SP,
        rows.read_len_S,
        np.empty((num_rows, 0), np.int64) if position_TK is None else position_TK.numpy(),
        np.float32(scale),
        _bits(out_TNL),
    )
    _require_pages(is_done)


def index_scores(
    q_TJD: torch.Tensor, weight_TJ: torch.Tensor, pool_PB: torch.Tensor, rows: DecodeRows
) -> torch.Tensor:
    """`ops.index_scores` over FP8 pages."""
    out = np.empty((len(rows.row_S), rows.read_len_S.max()), np.float32)
    is_done = fp8_pages.index_scores(
        _bits(q_TJD),
        _floats(weight_TJ) * np.float32(q_TJD.shape[-1] ** -0.5),
        pool_PB.numpy(),
        rows.row_S,
        rows.page_table_SP,
        rows.read_len_S,
        out,
    )
    _require_pages(is_done)
    return torch.from_numpy(out)
