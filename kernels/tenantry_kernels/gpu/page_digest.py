"""The digest of `tenantry_kernels.page_digest` over pages of a pool, on the device.

| tensor | shape | dtype |
|---|---|---|
| pool | [pages, ...], pages of 8 * n bytes | any |
| page | [B]: indices; those outside the pool are digested as pages of zeros | int64 |
| digest | [B] | int64 |
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from tenantry_kernels.page_digest import (
    FIRST_FACTOR,
    SECOND_FACTOR,
    SHIFT,
    STEP,
    WORD_BYTES,
    signed,
)

_BLOCK, _WARPS = 1024, 8


@triton.jit
def _mix(word, FIRST: tl.constexpr, SECOND: tl.constexpr, SHIFT: tl.constexpr):
    word = (word ^ _shifted(word, SHIFT)) * FIRST
    word = (word ^ _shifted(word, SHIFT)) * SECOND
    return word ^ _shifted(word, SHIFT)


@triton.jit
def _shifted(word, SHIFT: tl.constexpr):
    return (word.to(tl.uint64, bitcast=True) >> SHIFT).to(tl.int64, bitcast=True)


@triton.jit(do_not_specialize=["num_pages"])
def _page_digest_kernel(
    pool, page, digest, num_pages,
    WORDS: tl.constexpr, STEP: tl.constexpr, FIRST: tl.constexpr, SECOND: tl.constexpr,
    SHIFT: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    i_b = tl.program_id(0).to(tl.int64)
    i_page = tl.load(page + i_b)
    is_inside = (i_page >= 0) & (i_page < num_pages)
    b_sum = tl.zeros([BLOCK], tl.int64)
    for i_word in range(0, WORDS, BLOCK):
        o_word = i_word + tl.arange(0, BLOCK)
        m_word = o_word < WORDS
        # [BLOCK]
        b_word = tl.load(pool + i_page * WORDS + o_word, mask=m_word & is_inside, other=0)
        b_place = (o_word + 1).to(tl.int64) * STEP
        b_sum += tl.where(m_word, _mix(b_word + b_place, FIRST, SECOND, SHIFT), 0)
    total = tl.sum(b_sum, 0) + 8 * WORDS
    tl.store(digest + i_b, _mix(total, FIRST, SECOND, SHIFT))


def page_digests(pool: torch.Tensor, page_B: torch.Tensor) -> torch.Tensor:
    """Return int64 digests [B] of pages of a pool."""
    assert pool.is_contiguous() and page_B.dtype == torch.int64
    num_bytes = pool[0].numel() * pool.element_size()
    assert num_bytes % WORD_BYTES == 0, f"pages have whole words, not {num_bytes} bytes"
    digest_B = torch.empty_like(page_B)
    if len(page_B):
        _page_digest_kernel[(len(page_B),)](
            pool.flatten(1).view(torch.int64), page_B, digest_B, pool.shape[0],
            WORDS=num_bytes // WORD_BYTES, STEP=signed(STEP), FIRST=signed(FIRST_FACTOR),
            SECOND=signed(SECOND_FACTOR), SHIFT=SHIFT, BLOCK=_BLOCK, num_warps=_WARPS,
        )  # fmt: skip
    return digest_B
