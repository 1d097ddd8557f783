"""SwiGLU experts applied to the rows that chose them.

T rows, H hidden values, E experts, K choices per row, I values inside an expert.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import torch
from torch.nn.functional import silu

ExpertMlp: TypeAlias = Callable[[int, torch.Tensor], torch.Tensor]
"""Expert number and its rows [M, H] to their outputs [M, H]."""


def swiglu(gate_up: torch.Tensor) -> torch.Tensor:
    """Return silu(gate) * up of [..., gate | up]."""
    gate, up = gate_up.chunk(2, -1)
    return silu(gate) * up


def route_to_experts(
    x_TH: torch.Tensor,
    expert_TK: torch.Tensor,
    weight_TK: torch.Tensor,
    num_experts: int,
    apply: ExpertMlp,
) -> torch.Tensor:
    """Return sum over k of weight[t, k] * expert[t, k](x[t]), in x's dtype [T, H].

    The sum over a row's choices runs in the order of k, whatever other rows there are.
    """
    if len(x_TH) == 1:
        outputs_TKH = torch.cat([apply(expert, x_TH) for expert in expert_TK[0].tolist()])[None]
    else:
        outputs_TKH = _outputs(x_TH, expert_TK, num_experts, apply)
    # one row passes the same product as many: another form of it would sum in another order
    return torch.bmm(weight_TK.to(outputs_TKH.dtype)[:, None], outputs_TKH).squeeze(1)


def _outputs(
    x_TH: torch.Tensor, expert_TK: torch.Tensor, num_experts: int, apply: ExpertMlp
) -> torch.Tensor:
    """Return expert[t, k](x[t]) [T, K, H], each expert applied once."""
    num_rows, num_choices = expert_TK.shape
    flat_expert = expert_TK.flatten()
    order = flat_expert.argsort(stable=True)
    counts: Sequence[int] = torch.bincount(flat_expert, minlength=num_experts).tolist()
    rows = x_TH[order // num_choices]
    outputs = [
        apply(expert, part) for expert, part in enumerate(rows.split(list(counts))) if part.shape[0]
    ]
    # back to the order of (row, choice), so that weighting and summing are dense
    return torch.cat(outputs)[order.argsort()].view(num_rows, num_choices, -1)
