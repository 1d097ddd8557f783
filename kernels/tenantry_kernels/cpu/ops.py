"""The compiled loops as ops on CPU tensors in inference mode: float32 or BF16 in and out.

T rows, H hidden values, O outputs, E experts, K choices, I values inside an expert, N heads,
d values of a head's query, R rows of a head's matrix, C cached values, L latent values, J index
heads, D values per index head, S sequences, P page-table columns.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

from tenantry_kernels.choice import HAS_COMPILER

if HAS_COMPILER:
    from . import index_choice, kernels

Floats: TypeAlias = NDArray[np.float32]
Bits: TypeAlias = NDArray[np.float32] | NDArray[np.uint16]
Integers: TypeAlias = NDArray[np.int64]


def linear(x_TH: torch.Tensor, weight_OH: torch.Tensor) -> torch.Tensor:
    """Return x @ weight.T [T, O]."""
    out = x_TH.new_empty((x_TH.shape[0], weight_OH.shape[0]))
    kernels.product(_beside(x_TH, weight_OH), _bits(weight_OH), _bits(out))
    return out


def absorb_heads(q_TNd: torch.Tensor, weight_NRL: torch.Tensor) -> torch.Tensor:
    """Return q[t, n] @ (the first d rows of weight[n]) [T, N, L]."""
    out = q_TNd.new_empty((*q_TNd.shape[:2], weight_NRL.shape[2]))
    kernels.absorb_heads(_bits(q_TNd), _bits(weight_NRL), _bits(out))
    return out


def expand_heads(latent_TNL: torch.Tensor, weight_NRL: torch.Tensor, first: int) -> torch.Tensor:
    """Return (the rows of weight[n] from `first` on) @ latent[t, n] [T, N, R - first]."""
    out = latent_TNL.new_empty((*latent_TNL.shape[:2], weight_NRL.shape[1] - first))
    kernels.expand_heads(_beside(latent_TNL, weight_NRL), _bits(weight_NRL), first, _bits(out))
    return out


def swiglu(gate_up: torch.Tensor) -> torch.Tensor:
    """`experts.swiglu` of [T, gate | up]."""
    out = gate_up.new_empty((gate_up.shape[0], gate_up.shape[1] // 2))
    kernels.swiglu(_bits(gate_up), _bits(out))
    return out


def routed_experts(
    x_TH: torch.Tensor,
    expert_TK: torch.Tensor,
    weight_TK: torch.Tensor,
    gate_up_EJH: torch.Tensor,
    down_EHI: torch.Tensor,
) -> torch.Tensor:
    """`experts.route_to_experts` over SwiGLU experts [T, H]; J = gate | up, 2 I."""
    out = torch.empty_like(x_TH)
    kernels.routed_experts(
        _beside(x_TH, gate_up_EJH),
        expert_TK.contiguous().numpy(),
        _floats(weight_TK),
        _bits(gate_up_EJH),
        _bits(down_EHI),
        _bits(out),
    )
    return out


def route(
    x_TH: torch.Tensor,
    weight_EH: torch.Tensor,
    bias_E: torch.Tensor,
    num_choices: int,
    *,
    num_groups: int = 1,
    num_groups_kept: int = 1,
    is_normalized: bool,
    scaling: float,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the experts of highest sigmoid score plus bias, int64 [T, K], and float32 weights.

    Those of `num_groups_kept` groups only: where the two best sum highest.
    """
    expert = np.empty((x_TH.shape[0], num_choices), np.int64)
    factor = np.empty(expert.shape, np.float32)
    kernels.route(
        _bits(x_TH),
        _floats(weight_EH),
        _floats(bias_E),
        num_groups,
        num_groups_kept,
        np.float32(scaling),
        is_normalized,
        expert,
        factor,
    )
    return torch.from_numpy(expert), torch.from_numpy(factor)


def rms_norm(x_TH: torch.Tensor, weight_H: torch.Tensor, eps: float) -> torch.Tensor:
    """Return x / sqrt(mean(x**2) + eps) * weight, rounded once."""
    out = x_TH.new_empty(x_TH.shape)
    kernels.rms_norm(_bits(x_TH), 0, _bits(weight_H), np.float32(eps), _bits(out))
    return out


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
    """Write the latent sums of the sequences' rows; one that reads nothing gets exactly 0.

    position_TK: what each row sees, int64 in any order, -1 for nothing; None for all of `read_len_S`.
    """
    num_rows = q_TNC.shape[0]
    is_done = kernels.decode_attention(
        _beside(q_TNC, pool),
        _slots(pool),
        rows.row_S,
        rows.page_table_SP,
        rows.read_len_S,
        np.empty((num_rows, 0), np.int64) if position_TK is None else position_TK.numpy(),
        pool.shape[1],
        np.float32(scale),
        _bits(out_TNL),
    )
    _require_pages(is_done)


def chunk_attention(
    q_TND: torch.Tensor,
    key_MKD: torch.Tensor,
    value_MKV: torch.Tensor,
    bias_TK: torch.Tensor | None,
    scale: float,
    value_dim: int,
) -> torch.Tensor:
    """`paged_mla.fused_attention`; bias_TK is float32."""
    out = q_TND.new_empty((*q_TND.shape[:2], value_dim))
    bias = np.empty((0, 0), np.float32) if bias_TK is None else _floats(bias_TK)
    kernels.chunk_attention(
        _bits(q_TND), _bits(key_MKD), _bits(value_MKV), bias, np.float32(scale), _bits(out)
    )
    return out


def chosen_attention(
    q_TNC: torch.Tensor,
    kv_KC: torch.Tensor,
    position_TK: torch.Tensor,
    scale: float,
    value_dim: int,
) -> torch.Tensor:
    """`chunk_attention` of heads that share keys and values, by rows that see little of them.

    position_TK: what each row sees, int64 in any order. -1 is nothing; so is what comes after the
    row's own token.
    """
    num_rows, num_tokens = len(q_TNC), len(kv_KC)
    out = q_TNC.new_empty((*q_TNC.shape[:2], value_dim))
    own = np.arange(num_rows)
    is_done = kernels.decode_attention(
        _bits(q_TNC),
        _bits(kv_KC),
        own,
        # the tokens are one page, and every row's
        np.zeros((num_rows, 1), np.int64),
        own + (num_tokens - num_rows + 1),
        position_TK.contiguous().numpy(),
        num_tokens,
        np.float32(scale),
        _bits(out),
    )
    _require_pages(is_done)
    return out


def index_scores(
    q_TJD: torch.Tensor, weight_TJ: torch.Tensor, pool: torch.Tensor, rows: DecodeRows
) -> torch.Tensor:
    """`sparse_index.index_scores` of each sequence's row over its own pages: float32 [S, longest].

    -inf stands past a sequence's end.
    """
    out = np.empty((len(rows.row_S), rows.read_len_S.max()), np.float32)
    is_done = index_choice.index_scores(
        _beside(q_TJD, pool),
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


def chunk_choices(
    q_TJD: torch.Tensor, weight_TJ: torch.Tensor, key_KD: torch.Tensor, num_choices: int
) -> torch.Tensor:
    """Return where the best `sparse_index.index_scores` are: int64 [T, num_choices], -1 for none.

    Of the last T of K tokens, each seeing all up to it. In any order; of equal scores the first.
    """
    chosen = np.empty((len(q_TJD), num_choices), np.int64)
    index_choice.chunk_choices(
        _beside(q_TJD, key_KD),
        _floats(weight_TJ) * np.float32(q_TJD.shape[-1] ** -0.5),
        _bits(key_KD),
        chosen,
    )
    return torch.from_numpy(chosen)


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


def _bits(x: torch.Tensor) -> Bits:
    """Return a float32 or BF16 tensor's memory as the kernels read it; a copy if it has gaps."""
    if x.requires_grad:
        x = x.detach()
    # to the compiler an array with gaps is another type
    x = x.contiguous()
    bits: Bits = (x.view(torch.uint16) if x.dtype == torch.bfloat16 else x).numpy()
    return bits


def _beside(x: torch.Tensor, weight: torch.Tensor) -> Bits:
    """Return `x` as it is multiplied by `weight`: as BF16 only if both are."""
    return _bits(x) if weight.dtype == torch.bfloat16 else _floats(x)


def _slots(pool: torch.Tensor) -> Bits:
    """Return a pool [pages + 1, page size, C] as slots [slots, C]."""
    return _bits(pool.view(-1, pool.shape[-1]))
