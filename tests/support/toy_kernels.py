"""A kernel whose machine code is known, to try the compiling harness on."""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl


@triton.jit  # type: ignore[untyped-decorator] # Triton
def _square_kernel(values, num_values, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def] # Triton
    o_value = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    b_value = tl.load(values + o_value, mask=o_value < num_values, other=0.0)
    b_product = tl.dot(b_value[:, None] * b_value[None, :], b_value[:, None] + b_value[None, :])
    tl.store(values + o_value, tl.sum(b_product, 1), mask=o_value < num_values)


def square(values: torch.Tensor, block: int, **options: Any) -> None:
    """Launch programs of `block` values each; `options` are Triton's (`num_warps`, `maxnreg`)."""
    _square_kernel[(triton.cdiv(values.numel(), block),)](
        values, values.numel(), BLOCK=block, **options
    )
