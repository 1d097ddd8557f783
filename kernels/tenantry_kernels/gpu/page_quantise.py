"""BF16 pages to the bytes of FP8 pages, for a hand-off from prefill to decode.

| tensor | shape | dtype |
|---|---|---|
| pool | [pages + 1, 64, W] | BF16 |
| page | [B]: indices; those outside the pool give pages of zeros | int64 |
| out | [B, 64 * (W + 4)] as in `fp8_rows` | uint8 |

The reference is `fp8_rows.pack_pages(pool[page])`, equal to the byte.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from tenantry_kernels.fp8_rows import PAGE_TOKENS, page_bytes

from .fp8_scale import quantise_block

# a program's values stay in registers between the search for the largest and the rounding
_ROWS, _WARPS = 8, 4


@triton.jit(do_not_specialize=["num_pages"])
def _page_quantise_kernel(
    pool, page, out, num_pages,
    W: tl.constexpr, PAGE: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    i_b = tl.program_id(0).to(tl.int64)
    i_page = tl.load(page + i_b)
    is_inside = (i_page >= 0) & (i_page < num_pages)
    o_t = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    o_w = tl.arange(0, BLOCK)
    m_w = o_w[None, :] < W
    # [ROWS, BLOCK]
    p_row = pool + i_page * (64 * W) + o_t[:, None] * W + o_w[None, :]
    b_row = tl.load(p_row, mask=m_w & is_inside, other=0.0)
    b_value, b_scale = quantise_block(b_row.to(tl.float32))
    p_page = out + i_b * PAGE
    p_byte = p_page + o_t[:, None] * W + o_w[None, :]
    tl.store(p_byte, b_value.to(tl.uint8, bitcast=True), mask=m_w)
    tl.store((p_page + 64 * W).to(tl.pointer_type(tl.float32)) + o_t, b_scale)


def page_quantise(
    pool_PTW: torch.Tensor, page_B: torch.Tensor, out: torch.Tensor | None = None
) -> torch.Tensor:
    """Return the FP8 pages [B, bytes] of BF16 pages, written to `out` if it is given."""
    width = pool_PTW.shape[2]
    assert pool_PTW.dtype == torch.bfloat16, f"pages are BF16, not {pool_PTW.dtype}"
    assert pool_PTW.shape[1] == PAGE_TOKENS and pool_PTW.is_contiguous()
    if out is None:
        out = pool_PTW.new_empty((len(page_B), page_bytes(width)), dtype=torch.uint8)
    assert out.shape == (len(page_B), page_bytes(width)) and out.is_contiguous()
    if len(page_B):
        _page_quantise_kernel[(len(page_B), PAGE_TOKENS // _ROWS)](
            pool_PTW, page_B, out, pool_PTW.shape[0],
            W=width, PAGE=page_bytes(width), ROWS=_ROWS, BLOCK=triton.next_power_of_2(width),
            num_warps=_WARPS,
        )  # fmt: skip
    return out
