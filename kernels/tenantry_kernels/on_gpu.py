"""What layers compute in Triton (`choice.is_triton`); it is imported at the first call, not before.

T rows, H hidden values, E experts, K choices, I values inside an expert.
"""

from __future__ import annotations

import torch

from .fp8_matrix import Fp8Matrix
from .int4_matrix import Int4Matrix


def route(
    x_TH: torch.Tensor,
    weight_EH: torch.Tensor,
    bias_E: torch.Tensor,
    num_choices: int,
    *,
    is_normalized: bool,
    scaling: float,
) -> tuple[torch.Tensor, torch.Tensor]:
    """`gpu.router.route`."""
    from .gpu import router

    return router.route(
        x_TH.contiguous(),
        weight_EH,
        bias_E,
        num_choices,
        is_normalized=is_normalized,
        scaling=scaling,
    )


def routed_experts(
    x_TH: torch.Tensor,
    expert_TK: torch.Tensor,
    weight_TK: torch.Tensor,
    gate_up_EJH: torch.Tensor,
    down_EHI: torch.Tensor,
    *,
    tile_rows: int | None = None,
) -> torch.Tensor:
    """`gpu.dense_experts.dense_experts`."""
    from .gpu import dense_experts

    return dense_experts.dense_experts(
        x_TH, expert_TK, weight_TK, gate_up_EJH, down_EHI, tile_rows=tile_rows
    )


def int4_experts(
    x_TH: torch.Tensor,
    expert_TK: torch.Tensor,
    weight_TK: torch.Tensor,
    *,
    gate_up: Int4Matrix,
    down: Int4Matrix,
    deterministic: bool,
) -> torch.Tensor:
    """`gpu.int4_experts.int4_experts`. gate_up, down: stacks of all experts' matrices."""
    from .gpu.int4_experts import Int4Experts, Int4Stack, int4_experts

    return int4_experts(
        x_TH.contiguous(),
        expert_TK,
        weight_TK.float(),
        Int4Experts(Int4Stack(*gate_up), Int4Stack(*down)),
        # a row's sums depend on it alone
        num_parts=1 if deterministic else None,
    )


def fp8_experts(
    x_TH: torch.Tensor,
    expert_TK: torch.Tensor,
    weight_TK: torch.Tensor,
    *,
    gate_up: Fp8Matrix,
    down: Fp8Matrix,
    deterministic: bool,
) -> torch.Tensor:
    """`gpu.fp8_experts.fp8_experts`. gate_up, down: stacks of all experts' matrices."""
    from .gpu.fp8_experts import Fp8Stack, fp8_experts

    return fp8_experts(
        x_TH,
        expert_TK,
        weight_TK.float(),
        Fp8Stack(*gate_up),
        Fp8Stack(*down),
        # a row's sums depend on it alone
        tile_rows=16 if deterministic else None,
    )


def fp8_product(x_TH: torch.Tensor, matrix: Fp8Matrix, *, deterministic: bool) -> torch.Tensor:
    """`gpu.fp8_product.fp8_product`."""
    from .gpu.fp8_product import Fp8Stored, fp8_product

    # a row's sums depend on the number of parts alone
    num_parts = 1 if deterministic else None
    return fp8_product(x_TH.contiguous(), Fp8Stored(*matrix), num_parts=num_parts)
