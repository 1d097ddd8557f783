"""Adjusts logits by what a sequence has (`history.py`), and by biases of tokens.

First the bias is added; then `repetition_penalty` divides what is above 0, and multiplies what is
not, of tokens that prompt or answer have; then `frequency_penalty` is subtracted for each time that
the answer has the token, and `presence_penalty` once if it has it at all.

R rows, V vocabulary, K tokens of a table.
"""

from __future__ import annotations

from collections.abc import Sequence as ListLike

import numpy as np
import torch
from numpy.typing import NDArray

from tenantry_runtime.core import Sampling

from .history import IS_SEEN, ONE_TIME, TokenHistory, penalties_of

NUM_COLUMNS = 3
"""Of a table: token, times, and the bits of a float64, the bias."""
NUM_PENALTIES = 3
"""Of a row: repetition, frequency, presence."""


def table_of(history: TokenHistory) -> NDArray[np.int64]:
    """Return what is known of a sequence's tokens, [`NUM_COLUMNS`, K]."""
    columns = (history.token_ids, history.times, history.bias)
    return np.stack([np.frombuffer(each, np.int64)[: history.num_tokens] for each in columns])


def adjust_rows(
    logits_RV: torch.Tensor,
    samplings_R: ListLike[Sampling],
    tables_R: ListLike[NDArray[np.int64] | None],
) -> torch.Tensor:
    """Return what rows that have a table make of their logits; without one, the logits themselves."""
    adjusting = [row for row, table in enumerate(tables_R) if table is not None]
    if not adjusting:
        return logits_RV
    tables = [table for table in tables_R if table is not None]
    num_places = [table.shape[1] for table in tables]
    table = np.concatenate(tables, axis=1)
    penalties = np.array([penalties_of(samplings_R[row]) for row in adjusting])
    columns = (
        np.repeat(adjusting, num_places),
        *table,
        *np.repeat(penalties, num_places, axis=0).T,
    )
    # a prompt may have what is never drawn
    is_drawn = table[0] < logits_RV.shape[-1]
    row_K, token_K, times_K, bias_K, *each = (
        torch.from_numpy(column[is_drawn]).to(logits_RV.device) for column in columns
    )
    adjusted_RV = logits_RV.clone()
    values_K = logits_RV[row_K, token_K]
    penalties_K = [column.to(logits_RV.dtype) for column in each]
    adjusted_RV[row_K, token_K] = _adjusted(values_K, times_K, bias_K, penalties_K)
    return adjusted_RV


def adjust_on_device(
    logits_RV: torch.Tensor,
    words_RCK: torch.Tensor,
    penalties_RN: torch.Tensor,
    last_R1: torch.Tensor,
    is_answer_R1: torch.Tensor,
) -> torch.Tensor:
    """Do the same for all rows at once, with what is on the device.

    words: tables of the tokens before the last, whose padding is token V. last: each row's last
    token, which the host may not have seen yet. penalties: the bits of float64.
    """
    num_tokens = logits_RV.shape[-1]
    token_RK, times_RK, bias_RK = words_RCK.unbind(1)
    last_R1 = last_R1.clamp(max=num_tokens)
    one_R1 = ONE_TIME * is_answer_R1
    is_last_RK = token_RK == last_R1
    times_RK = torch.where(is_last_RK, times_RK + one_R1 | IS_SEEN, times_RK)
    # the last token has a place of its own, which is padding where the table has the token
    is_listed_R1 = is_last_RK.any(dim=-1, keepdim=True)
    token_RK = torch.cat([token_RK, last_R1.masked_fill(is_listed_R1, num_tokens)], dim=-1)
    times_RK = torch.cat([times_RK, one_R1 | IS_SEEN], dim=-1)
    bias_RK = torch.cat([bias_RK, torch.zeros_like(one_R1)], dim=-1)
    padded_RV = torch.cat([logits_RV, torch.zeros_like(logits_RV[:, :1])], dim=-1)
    penalties = penalties_RN.view(torch.float64).to(logits_RV.dtype).unbind(-1)
    values_RK = _adjusted(
        padded_RV.gather(-1, token_RK), times_RK, bias_RK, [each[:, None] for each in penalties]
    )
    return padded_RV.scatter(-1, token_RK, values_RK)[:, :num_tokens]


def _adjusted(
    values_K: torch.Tensor,
    times_K: torch.Tensor,
    bias_K: torch.Tensor,
    penalties: ListLike[torch.Tensor] | torch.Tensor,
) -> torch.Tensor:
    repetition, frequency, presence = penalties
    dtype = values_K.dtype
    values_K = values_K + bias_K.view(torch.float64).to(dtype)
    repeated_K = torch.where(values_K > 0, values_K / repetition, values_K * repetition)
    values_K = torch.where((times_K & IS_SEEN).bool(), repeated_K, values_K)
    count_K = times_K // ONE_TIME
    return values_K - frequency * count_K.to(dtype) - presence * (count_K > 0).to(dtype)
