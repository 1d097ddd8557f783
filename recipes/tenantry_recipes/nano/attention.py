"""Causal attention with gradients, one block of query rows at a time.

PyTorch's fused CPU kernel takes two to three times as long on documents of a hundred rows, and on
long ones it scores rows that lie in the future.

N heads, n rows of one document, d query and V value columns per head; a block's rows x to y see
keys 0 to y.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

BLOCK_ROWS = 256
"""Query rows scored at a time: half of a long document's scores are never made."""


def causal_attention(
    q_Nnd: torch.Tensor,
    k_Nnd: torch.Tensor,
    v_NnV: torch.Tensor,
    *,
    scale: float,
    mask_nn: torch.Tensor | None = None,
) -> torch.Tensor:
    """Return softmax(scale * q k') v [N, n, V], where row i sees rows up to i.

    `mask_nn` is true where a row sees another; it replaces the triangle and must stay inside it.
    """
    apply: Callable[..., torch.Tensor] = _CausalAttention.apply
    return apply(q_Nnd, k_Nnd, v_NnV, scale, mask_nn)


class _CausalAttention(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        scale: float,
        mask: torch.Tensor | None,
    ) -> torch.Tensor:
        probabilities, outputs = [], []
        for start, stop in _blocks(q.shape[1]):
            bias = _bias(q, start, stop, mask)
            keys = k[:, :stop].transpose(1, 2)
            scores = torch.baddbmm(bias.expand(len(q), -1, -1), q[:, start:stop], keys, alpha=scale)
            probabilities.append(scores.softmax(-1))
            outputs.append(probabilities[-1] @ v[:, :stop])
        ctx.save_for_backward(q, k, v, *probabilities)
        ctx.scale = scale
        return torch.cat(outputs, 1)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        q, k, v, *probabilities = ctx.saved_tensors
        d_k, d_v, d_q = torch.zeros_like(k), torch.zeros_like(v), []
        blocks = _blocks(q.shape[1])
        for (start, stop), p in zip(blocks, probabilities, strict=True):
            d_out = grads[0][:, start:stop]
            d_v[:, :stop].baddbmm_(p.transpose(1, 2), d_out)
            d_p = d_out @ v[:, :stop].transpose(1, 2)
            d_scores = torch._softmax_backward_data(d_p, p, -1, p.dtype).mul_(ctx.scale)
            d_q.append(d_scores @ k[:, :stop])
            d_k[:, :stop].baddbmm_(d_scores.transpose(1, 2), q[:, start:stop])
        return torch.cat(d_q, 1), d_k, d_v, None, None


def _blocks(num_rows: int) -> list[tuple[int, int]]:
    return [(start, min(start + BLOCK_ROWS, num_rows)) for start in range(0, num_rows, BLOCK_ROWS)]


def _bias(q: torch.Tensor, start: int, stop: int, mask: torch.Tensor | None) -> torch.Tensor:
    if mask is None:
        never = torch.full((stop - start, stop), -torch.inf, dtype=q.dtype)
        return never.triu_(1 + start)
    return torch.zeros((stop - start, stop), dtype=q.dtype).masked_fill_(
        ~mask[start:stop, :stop], -torch.inf
    )
