"""`page_digest` in a compiled loop: one pass over the bytes instead of fifteen.

B pages, n words of 8 bytes each.
"""

# what numba compiles has the types of its first call
# mypy: allow-untyped-defs, allow-untyped-calls, allow-untyped-decorators

from __future__ import annotations

import numpy as np
import torch

from tenantry_kernels.page_digest import FIRST_FACTOR, SECOND_FACTOR, SHIFT, STEP, WORD_BYTES

from .compiler import compiled

_STEP, _SHIFT = np.uint64(STEP), np.uint64(SHIFT)
_FIRST, _SECOND = np.uint64(FIRST_FACTOR), np.uint64(SECOND_FACTOR)
_WORD_BYTES = np.uint64(WORD_BYTES)


def page_digests(pages: torch.Tensor) -> torch.Tensor:
    """As `tenantry_kernels.page_digest.page_digests`, on a CPU."""
    word_Bn = pages.flatten(1).view(torch.uint8).view(torch.int64)
    digest_B = np.empty(word_Bn.shape[0], np.uint64)
    digest_pages(word_Bn.numpy().view(np.uint64), digest_B)
    return torch.from_numpy(digest_B.view(np.int64))


@compiled
def digest_pages(word_Bn, digest_B):
    num_words = word_Bn.shape[1]
    for page in range(word_Bn.shape[0]):
        total = np.uint64(0)
        place = np.uint64(0)
        for i in range(num_words):
            place += _STEP
            total += mix(word_Bn[page, i] + place)
        digest_B[page] = mix(total + _WORD_BYTES * np.uint64(num_words))


@compiled
def mix(word):
    word = (word ^ (word >> _SHIFT)) * _FIRST
    word = (word ^ (word >> _SHIFT)) * _SECOND
    return word ^ (word >> _SHIFT)
