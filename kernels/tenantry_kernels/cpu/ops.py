"""The compiled loops as ops on CPU tensors in inference mode: float32 or BF16 in and out.

T rows, H hidden values, O outputs, E experts, K choices, I values inside an expert, N heads,
C cached values, L latent values, J index heads, D values per index head, S sequences, P page-table
columns.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

from tenantry_kernels.choice import HAS_COMPILER

if HAS_COMPILER:
    from . import kernels

Floats: TypeAlias = NDArray[np.float32]
Integers: TypeAlias = NDArray[np.int64]


def linear(x_TH: torch.Tensor, weight_OH: torch.Tensor) -> torch.Tensor:
    """Return x @ weight.T [T, O]."""
    out = np.empty((x_TH.shape[0], weight_OH.shape[0]), np.float32)
    kernels.product(_floats(x_TH), _bits(weight_OH), out)
    return _tensor(out, x_TH.dtype)


def swiglu(gate_up: torch.Tensor) -> torch.Tensor:
    """`experts.swiglu` of [T, gate | up]."""
    out = np.empty((gate_up.shape[0], gate_up.shape[1] // 2), np.float32)
    kernels.swiglu(_floats(gate_up), out)
    return _tensor(out, gate_up.dtype)


def routed_experts(
    x_TH: torch.Tensor,
    expert_TK: torch.Tensor,
    weight_TK: torch.Tensor,
    gate_up_EJH: torch.Tensor,
    down_EHI: torch.Tensor,
) -> torch.Tensor:
    """`experts.route_to_experts` over SwiGLU experts [T, H]; J = gate | up, 2 I."""
    out = np.empty(x_TH.shape, np.float32)
    kernels.routed_experts(
        _floats(x_TH),
        expert_TK.contiguous().numpy(),
        _floats(weight_TK),
        _bits(gate_up_EJH),
        _bits(down_EHI),
        out,
    )
    return _tensor(out, x_TH.dtype)


def route(
    x_TH: torch.Tensor,
    weight_EH: torch.Tensor,
    bias_E: torch.Tensor,
    num_choices: int,
    *,
    is_normalized: bool,
    scaling: float,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the experts of highest sigmoid score plus bias, int64 [T, K], and float32 weights."""
    expert = np.empty((x_TH.shape[0], num_choices), np.int64)
    factor = np.empty(expert.shape, np.float32)
    kernels.route(
        _floats(x_TH),
        _floats(weight_EH),
        _floats(bias_E),
        np.float32(scaling),
        is_normalized,
        expert,
        factor,
    )
    return torch.from_numpy(expert), torch.from_numpy(factor)


def rms_norm(x_TH: torch.Tensor, weight_H: torch.Tensor, eps: float) -> torch.Tensor:
    """Return x / sqrt(mean(x**2) + eps) * weight, rounded once."""
    out = np.empty(x_TH.shape, np.float32)
    kernels.rms_norm(_floats(x_TH), _bits(weight_H), np.float32(eps), out)
    return _tensor(out, x_TH.dtype)


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodeRows:
    """Sequences with one row each: which row, and where what it sees is."""

    row_S: Integers
    page_table_SP: Integers
    read_len_S: Integers


def decode_attention(
    q_TNC: torch.Tensor,
    pool: torch.Tensor,
    rows: DecodeRows,
    position_TK: torch.Tensor | None,
    scale: float,
    out_TNL: torch.Tensor,
) -> None:
    """Write the float32 latent sums of the sequences' rows; one that reads nothing gets exactly 0.

    position_TK: what each row sees, int64 in any order, -1 for nothing; None for all of `read_len_S`.
    """
    num_rows = q_TNC.shape[0]
    is_done = kernels.decode_attention(
        _floats(q_TNC),
        _slots(pool),
        rows.row_S,
        rows.page_table_SP,
        rows.read_len_S,
        np.empty((num_rows, 0), np.int64) if position_TK is None else position_TK.numpy(),
        pool.shape[1],
        np.float32(scale),
        out_TNL.numpy(),
    )
    _require_pages(is_done)


def index_scores(
    q_TJD: torch.Tensor, weight_TJ: torch.Tensor, pool: torch.Tensor, rows: DecodeRows
) -> torch.Tensor:
    """`sparse_index.index_scores` of each sequence's row over its own pages: float32 [S, longest].

    -inf stands past a sequence's end.
    """
    out = np.empty((len(rows.row_S), rows.read_len_S.max()), np.float32)
    is_done = kernels.index_scores(
        _floats(q_TJD),
        _floats(weight_TJ) * np.float32(q_TJD.shape[-1] ** -0.5),
        _slots(pool),
        rows.row_S,
        rows.page_table_SP,
        rows.read_len_S,
        pool.shape[1],
        out,
    )
    _require_pages(is_done)
    return torch.from_numpy(out)


def _require_pages(is_done: bool) -> None:
    if not is_done:
        raise IndexError(
            "a page table names fewer tokens than are read, or a page outside the pool"
        )


def _floats(x: torch.Tensor) -> Floats:
    if x.requires_grad:
        x = x.detach()
    floats: Floats = x.float().contiguous().numpy()
    return floats


def _bits(weight: torch.Tensor) -> NDArray[np.float32] | NDArray[np.uint16]:
    """Return a float32 or BF16 tensor's memory as the kernels read it."""
    if weight.dtype == torch.bfloat16:
        bits: NDArray[np.uint16] = weight.detach().contiguous().view(torch.uint16).numpy()
        return bits
    return _floats(weight)


def _slots(pool: torch.Tensor) -> NDArray[np.float32] | NDArray[np.uint16]:
    """Return a pool [pages + 1, page size, C] as slots [slots, C]."""
    return _bits(pool.view(-1, pool.shape[-1]))


def _tensor(out: Floats, dtype: torch.dtype) -> torch.Tensor:
    tensor = torch.from_numpy(out)
    return tensor if dtype == torch.float32 else tensor.to(dtype)
