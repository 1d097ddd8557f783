"""Pages that came from elsewhere, into memory of one's own and from there into pools, on a CPU.

A page is digested where it has been copied to: what is verified is the copy that is written,
whatever becomes of the memory that it came in. One call does all pages, wherever each of them lies.

S pages, K pools, n words of 8 bytes of a page, B bytes.
"""

# what numba compiles has the types of its first call
# mypy: allow-untyped-defs, allow-untyped-calls, allow-untyped-decorators

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from tenantry_kernels.page_digest import WORD_BYTES

from .compiler import compiled
from .page_digest import digest_pages
from .shares import matrix_at

_WORD_BYTES = np.int64(WORD_BYTES)
_LIKE = np.empty(0, np.uint64)


class PageCopies:
    """Brings pages into the pools that they are written to; a page is one of each pool, in order."""

    def __init__(self, pools: Sequence[torch.Tensor]) -> None:
        """`pools` [P, ...] are contiguous, and stay where they are; a page of each is of whole words."""
        assert all(pool.is_contiguous() for pool in pools)
        # held: the addresses are theirs
        self._pools = tuple(pools)
        self._address_K = np.array([pool.data_ptr() for pool in pools], np.int64)
        self._words_K = np.array([pool[0].nbytes // WORD_BYTES for pool in pools], np.int64)
        # kept: fresh memory costs ten times as much as the copy
        self._copy_SB = torch.empty((0, int(self._words_K.sum()) * WORD_BYTES), dtype=torch.uint8)

    def gather(self, pages: Sequence[memoryview]) -> tuple[torch.Tensor, list[int]]:
        """Return copies [S, B] of pages and their digests (`page_digest`).

        The copies are valid until the next call. All pages have B bytes, as many as are written.
        """
        sources = [np.frombuffer(page, np.uint64) for page in pages]
        if len(sources) > len(self._copy_SB):
            self._copy_SB = self._copy_SB.new_empty((len(sources), self._copy_SB.shape[1]))
        data_SB = self._copy_SB[: len(sources)]
        data_Sn = data_SB.numpy().view(np.uint64)
        assert {len(source) for source in sources} <= {data_Sn.shape[1]}, "pages of another size"
        digest_S = np.empty(len(sources), np.uint64)
        address_S = np.array([_address(source) for source in sources], np.int64)
        _gather(address_S, _LIKE, data_Sn, digest_S)
        found: list[int] = digest_S.view(np.int64).tolist()
        return data_SB, found

    def scatter(self, data_SB: torch.Tensor, page_S: NDArray[np.int64]) -> None:
        """Write whole pages [S, B] as those of these numbers."""
        assert data_SB.shape == (len(page_S), self._copy_SB.shape[1])
        assert page_S.min(initial=0) >= 0 and page_S.max(initial=0) < len(self._pools[0])
        data_Sn = data_SB.numpy().view(np.uint64)
        _scatter(data_Sn, page_S, self._address_K, self._words_K, _LIKE)


@compiled
def _gather(address_S, like, data_Sn, digest_S):
    for page in range(address_S.shape[0]):
        # one page after the other: its copy is still in the cache when it is digested
        data_Sn[page] = matrix_at(address_S[page], 1, data_Sn.shape[1], like)[0]
        digest_pages(data_Sn[page : page + 1], digest_S[page : page + 1])


@compiled
def _scatter(data_Sn, page_S, address_K, words_K, like):
    for page in range(page_S.shape[0]):
        at = np.int64(0)
        for k in range(address_K.shape[0]):
            num_words = words_K[k]
            start = address_K[k] + page_S[page] * num_words * _WORD_BYTES
            target = matrix_at(start, 1, num_words, like)
            for i in range(num_words):
                target[0, i] = data_Sn[page, at + i]
            at += num_words


def _address(array: NDArray[np.uint64]) -> int:
    address: int = array.__array_interface__["data"][0]
    return address
