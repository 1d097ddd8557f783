"""What works on pages on a GPU: Triton's kernels, as the table in `ops.py` has them.

Float32 pages, which are for tests, are served by torch's operators, with lengths from the host.
Computation in another dtype than the kernels' is brought into it and back.

T rows, S sequences, Q query tokens, N heads, J index heads, C cached values, P pages.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from tenantry_kernels import fp8_rows, paged_mla
from tenantry_kernels.gpu import (
    append as appending,
    indexer,
    mla_decode,
    page_check,
    page_digest,
    page_quantise,
    sparse_decode,
)

from .checked import AppendCount
from .formats import RowName
from .ops import CheckOps, DeviceOps, PageOps, wire_as_kept, wire_quantised


def append(
    pool: torch.Tensor,
    slot_T: torch.Tensor,
    row_TC: torch.Tensor,
    count: AppendCount | None = None,
    /,
) -> None:
    """`ops.CountedAppend`."""
    last = None
    if count is not None and count.is_last:
        last = appending.LastAppend(
            fill_P=count.fill_P, position_T=count.position_T, num_appends=count.num_appends
        )
    landed_T = None if count is None else count.landed_T
    appending.append(pool, slot_T, row_TC.contiguous(), landed_T=landed_T, last=last)


def attend(
    q_SQNC: torch.Tensor, pool: torch.Tensor, *batch: torch.Tensor, **how: Any
) -> torch.Tensor:
    """`ops.PageAttention`."""
    sums = mla_decode.mla_decode(_rows(q_SQNC), pool, *batch, **how)
    return sums.to(q_SQNC.dtype)


def attend_chosen(
    q_SQNC: torch.Tensor, pool: torch.Tensor, *batch: torch.Tensor, **how: Any
) -> torch.Tensor:
    """`ops.SparsePageAttention`."""
    sums = sparse_decode.sparse_decode(_rows(q_SQNC), pool, *batch, **how)
    return sums.to(q_SQNC.dtype)


def choose(
    q_SQJD: torch.Tensor,
    weight_SQJ: torch.Tensor,
    pool: torch.Tensor,
    page_table_SP: torch.Tensor,
    read_len_S: torch.Tensor,
    num_choices: int,
    /,
) -> torch.Tensor:
    """`ops.IndexChoice`."""
    score_SQT = indexer.index_scores(
        _rows(q_SQJD), weight_SQJ.contiguous(), pool, page_table_SP, read_len_S
    )
    return indexer.top_positions(score_SQT, read_len_S, num_choices)


def _rows(x: torch.Tensor) -> torch.Tensor:
    return x.to(torch.bfloat16).contiguous()


_ON_DEVICE = DeviceOps(append=append, attend=attend, attend_chosen=attend_chosen, choose=choose)

PAGE_OPS: Mapping[RowName, PageOps] = {
    "float32": PageOps(
        append=paged_mla.append_rows,
        read=paged_mla.gather_rows,
        wire={"float32": wire_as_kept, "fp8": wire_quantised},
        digest=page_digest.page_digests,
    ),
    "bf16": PageOps(
        append=append,
        read=paged_mla.gather_rows,
        wire={"bf16": wire_as_kept, "fp8": page_quantise.page_quantise},
        digest=page_digest.page_digests,
        on_device=_ON_DEVICE,
    ),
    "fp8": PageOps(
        append=append,
        read=fp8_rows.gather_rows,
        wire={"fp8": wire_as_kept},
        digest=page_digest.page_digests,
        on_device=_ON_DEVICE,
    ),
}

CHECK_OPS = CheckOps(check=page_check.check_pages, mask=page_check.mask_batch)
