"""Masks of tokens on logits: what may not come next becomes impossible.

R rows, V vocabulary, W words of 64 tokens.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from .constraints import WORD_TOKENS, Masks

_BYTE = 8


def masked(logits_RV: torch.Tensor, words_RW: torch.Tensor) -> torch.Tensor:
    """Return logits that are -inf where a row's bit is not set; asks the device for nothing."""
    bytes_RB = words_RW.contiguous().view(torch.uint8)
    shifts = torch.arange(_BYTE, dtype=torch.uint8, device=logits_RV.device)
    bits_RV = (bytes_RB[:, :, None] >> shifts & 1).flatten(1)[:, : logits_RV.shape[-1]]
    return logits_RV.masked_fill(bits_RV == 0, -torch.inf)


def masked_rows(logits_RV: torch.Tensor, masks: Masks | None) -> torch.Tensor:
    """Return logits with those rows masked that have a grammar; the others cost nothing."""
    if masks is None:
        return logits_RV
    rows, words = list(masks.rows), torch.from_numpy(masks.words).to(logits_RV.device)
    if len(rows) == len(logits_RV):
        return masked(logits_RV, words)
    logits_RV = logits_RV.clone()
    logits_RV[rows] = masked(logits_RV[rows], words)
    return logits_RV


def num_mask_words(num_tokens: int) -> int:
    """Return W."""
    return -(-num_tokens // WORD_TOKENS)


def mask_words(masks: Masks | None, num_rows: int, num_words: int) -> NDArray[np.int64]:
    """Return [R, W]: the masks of all rows; those without a grammar, and padding, may have anything."""
    words_RW = np.full((num_rows, num_words), -1, np.int64)
    if masks is not None:
        words_RW[list(masks.rows)] = masks.words
    return words_RW
