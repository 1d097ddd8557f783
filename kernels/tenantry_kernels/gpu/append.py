"""Write a step's new rows into their slots, as BF16 or quantised to FP8, and count what landed.

| tensor | shape | dtype |
|---|---|---|
| pool | [pages + 1, 64, W], or [pages + 1, 64 * (W + 4)] as in `fp8_rows` | BF16, or uint8 |
| slot | [T]: page * 64 + token; slots that no pool has are not written | int64 |
| row | [T, W] | BF16 or float32 |
| landed | [T]: how many of the step's appends have written the row; 0 between steps | int32 |
| fill | [pages + 1] as in `page_check` | int64 |

Every layer's append (latent, and index keys where a layer has them) adds 1 to `landed` of the rows
that it wrote, after their data. The step's last one, told how many there are, adds a row to its
page's fill only if all of them wrote it. So the check of fills after the step fails if any layer's
append is lost; `landed` is back at 0 then. Rows of one page land in any order, and are counted.

T rows, W values.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl

from tenantry_kernels.fp8_rows import PAGE_TOKENS, page_width

from .fp8_scale import quantise_block


@dataclass(frozen=True, slots=True, kw_only=True)
class LastAppend:
    """What the last append of a step needs to complete its pages' fills."""

    fill_P: torch.Tensor
    position_T: torch.Tensor
    """int64, from 0 in each sequence."""
    num_appends: int
    """Of one step: the layers, and those with index keys once more."""


@triton.jit(do_not_specialize=["num_slots", "num_appends"])
def _append_kernel(
    pool, slot, row, landed, fill, position, num_slots, row_stride, num_appends,
    W: tl.constexpr, PAGE: tl.constexpr, BLOCK: tl.constexpr,
    IS_FP8: tl.constexpr, COUNTS: tl.constexpr, IS_LAST: tl.constexpr,
):  # fmt: skip
    i_t = tl.program_id(0).to(tl.int64)
    i_slot = tl.load(slot + i_t)
    is_written = (i_slot >= 0) & (i_slot < num_slots)
    i_page = i_slot // 64
    i_token = i_slot % 64
    o_w = tl.arange(0, BLOCK)
    m_w = o_w < W
    m_store = m_w & is_written
    b_row = tl.load(row + i_t * row_stride + o_w, mask=m_w, other=0.0)
    if IS_FP8:
        # [1, BLOCK], [1]
        b_value, b_scale = quantise_block(b_row.to(tl.float32)[None, :])
        p_page = pool + i_page * PAGE
        b_byte = tl.reshape(b_value, [BLOCK]).to(tl.uint8, bitcast=True)
        tl.store(p_page + i_token * W + o_w, b_byte, mask=m_store)
        p_scale = (p_page + 64 * W).to(tl.pointer_type(tl.float32)) + i_token
        tl.store(p_scale + tl.arange(0, 1), b_scale, mask=is_written)
    else:
        tl.store(pool + i_slot * W + o_w, b_row.to(pool.dtype.element_ty), mask=m_store)
    if COUNTS:
        # the row's bytes are out before it counts
        tl.debug_barrier()
        count = tl.load(landed + i_t) + 1
        if IS_LAST:
            tl.store(landed + i_t, 0)
            i_position = tl.load(position + i_t)
            # the first row of a page brings its logical index along
            first = tl.where(i_token == 0, (i_position // 64) << 32, 0)
            is_complete = is_written & (count == num_appends)
            tl.atomic_add(fill + i_page, first + 1, mask=is_complete, sem="release")
        else:
            tl.store(landed + i_t, count, mask=is_written)


def append(
    pool: torch.Tensor,
    slot_T: torch.Tensor,
    row_TW: torch.Tensor,
    *,
    landed_T: torch.Tensor | None = None,
    last: LastAppend | None = None,
) -> None:
    """Write each row at its slot; `last` says that these rows are the step's last.

    Fills must be 0 when their page is allocated, and go back with it when tokens are withdrawn.
    """
    num_rows, width = row_TW.shape
    is_fp8 = pool.dtype == torch.uint8
    pool_width = page_width(pool.shape[-1]) if is_fp8 else pool.shape[-1]
    assert pool_width == width, f"the pool's rows have {pool_width} values, these {width}"
    assert is_fp8 or pool.dtype == torch.bfloat16, f"pages are BF16 or bytes, not {pool.dtype}"
    assert pool.is_contiguous() and row_TW.stride(1) == 1 and slot_T.shape == (num_rows,)
    assert last is None or landed_T is not None, "the last append needs to know what has landed"
    if not num_rows:
        return
    _append_kernel[(num_rows,)](
        pool, slot_T, row_TW, landed_T, last and last.fill_P, last and last.position_T,
        (pool.shape[0] - 1) * PAGE_TOKENS, row_TW.stride(0), last.num_appends if last else 0,
        W=width, PAGE=pool[0].numel(), BLOCK=triton.next_power_of_2(width),
        IS_FP8=is_fp8, COUNTS=landed_T is not None, IS_LAST=last is not None, num_warps=4,
    )  # fmt: skip
