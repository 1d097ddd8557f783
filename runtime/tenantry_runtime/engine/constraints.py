"""Constrained decoding: which tokens may come next of each sequence that has a grammar.

R rows that are sampled, W words of 64 tokens.
"""

from __future__ import annotations

import os
from collections.abc import Sequence as ListLike
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from .guide import Guide

if TYPE_CHECKING:
    from llguidance import LLExecutor, LLMatcher

MAX_THREADS = 8
"""That find the masks of one step: more bring nothing to so short a work."""

WORD_TOKENS = 64


@dataclass(frozen=True, slots=True)
class Masks:
    """The tokens that may come next, of those rows of a step that have a grammar."""

    rows: tuple[int, ...]
    """Among those that are sampled."""
    words: NDArray[np.int64]
    """[len(rows), W]; bit by bit, the lowest first, one for each token."""


class MaskFinder:
    """Finds the masks of a step, several at once."""

    def __init__(self, num_tokens: int) -> None:
        """`num_tokens`: ids from there on are never drawn."""
        self._num_words = -(-num_tokens // WORD_TOKENS)
        self._executor: LLExecutor | None = None

    def find(self, guides_R: ListLike[Guide | None]) -> Masks | None:
        """Return the masks; of a guide that goes wrong nothing may come. None: all rows are free."""
        rows = tuple(row for row, guide in enumerate(guides_R) if guide is not None)
        if not rows:
            return None
        guides = [guide for guide in guides_R if guide is not None]
        # as the library has it: as many words as the vocabulary has tokens, of 32
        num_half_words = -(-guides[0].vocab_size // (WORD_TOKENS // 2))
        found = np.zeros((len(rows), num_half_words), np.int32)
        self._fill(found, [(g.matcher, n) for n, g in enumerate(guides) if g.problem is None])
        for place, guide in enumerate(guides):
            guide.check()
            if guide.problem is not None:
                # the library lets the answer end there, as if it were whole
                found[place] = 0
        words = np.zeros((len(rows), self._num_words), np.int64)
        num_kept = min(num_half_words, 2 * self._num_words)
        words.view(np.int32)[:, :num_kept] = found[:, :num_kept]
        return Masks(rows, words)

    def _fill(self, found: NDArray[np.int32], matchers: list[tuple[LLMatcher, int]]) -> None:
        num_bytes = found.strides[0]
        if len(matchers) == 1:
            [(matcher, place)] = matchers
            matcher.unsafe_compute_mask_ptr(found[place].ctypes.data, num_bytes)
        elif matchers:
            self._threads().unsafe_compute_mask_ptr(
                matchers, found.ctypes.data, num_bytes, len(found)
            )

    def _threads(self) -> LLExecutor:
        if self._executor is None:
            from llguidance import LLExecutor

            self._executor = LLExecutor(min(len(os.sched_getaffinity(0)), MAX_THREADS))
        return self._executor
