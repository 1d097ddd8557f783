"""How likely tokens were to the model itself.

Log probabilities are of its raw logits, cut to what may be drawn: before biases, penalties, masks,
temperature and filters, none of which say what the model thinks. Among tokens of one probability the
lowest id comes first.

R rows, V vocabulary, N alternatives.
"""

from __future__ import annotations

from collections.abc import Sequence as ListLike
from math import isfinite
from typing import NamedTuple

import torch

from tenantry_runtime.core import ChosenLogprob, Sampling, TokenLogprob

MAX_TOP = 20
"""Alternatives of a token at most."""


class Likelihoods(NamedTuple):
    """Of each row its token and the likeliest; float64."""

    chosen_R: torch.Tensor
    top_tokens_RN: torch.Tensor
    top_RN: torch.Tensor


def num_words(num_rows: int, num_tokens: int) -> int:
    """Return how many int64 words `packed` takes."""
    return num_rows * (1 + 2 * min(MAX_TOP, num_tokens))


def likelihoods(logits_RV: torch.Tensor, tokens_R: torch.Tensor) -> Likelihoods:
    """Return how likely each row's token was; asks the device for nothing."""
    num_tokens = logits_RV.shape[-1]
    # float32 in its own order as integers, and the lower of two ids as the greater: no two are equal
    bits_RV = (logits_RV + 0.0).view(torch.int32)
    ordered_RV = (bits_RV ^ (bits_RV >> 31 & 0x7FFFFFFF)).long()
    ids_V = torch.arange(num_tokens, device=logits_RV.device)
    keys_RV = (ordered_RV << 32) + (num_tokens - 1 - ids_V)
    top_RN = keys_RV.topk(min(MAX_TOP, num_tokens), dim=-1).values
    top_tokens_RN = num_tokens - 1 - (top_RN & 0xFFFFFFFF)

    wide_RV = logits_RV.double()
    total_R1 = wide_RV.logsumexp(dim=-1, keepdim=True)
    # of what is not finite a token may be none; it is not told
    chosen_R1 = tokens_R.clamp(0, num_tokens - 1)[:, None]
    return Likelihoods(
        chosen_R=(wide_RV.gather(-1, chosen_R1) - total_R1)[:, 0],
        top_tokens_RN=top_tokens_RN,
        top_RN=wide_RV.gather(-1, top_tokens_RN) - total_R1,
    )


def likelihoods_of(
    logits_RV: torch.Tensor, tokens_R: torch.Tensor, samplings_R: ListLike[Sampling]
) -> Likelihoods:
    """Return the same on a CPU, zeros for rows that do not ask for it.

    Row by row: what is made of one on the way stays in the CPU's cache.
    """
    num_top = min(MAX_TOP, logits_RV.shape[-1])
    blank = Likelihoods(
        torch.zeros(1, dtype=torch.float64),
        torch.zeros(1, num_top, dtype=torch.int64),
        torch.zeros(1, num_top, dtype=torch.float64),
    )
    rows = [
        blank
        if sampling.top_logprobs is None
        else likelihoods(logits_RV[row : row + 1], tokens_R[row : row + 1])
        for row, sampling in enumerate(samplings_R)
    ]
    return Likelihoods(*(torch.cat(column) for column in zip(*rows, strict=True)))


def packed(found: Likelihoods) -> torch.Tensor:
    """Return them as int64 words."""
    return torch.cat(
        [
            found.chosen_R.view(torch.int64),
            found.top_tokens_RN.flatten(),
            found.top_RN.contiguous().view(torch.int64).flatten(),
        ]
    )


def unpacked(words: torch.Tensor, num_rows: int) -> Likelihoods:
    """Return what `packed` took."""
    num_top = (len(words) // num_rows - 1) // 2
    chosen_R, tokens, top = words.split([num_rows, num_rows * num_top, num_rows * num_top])
    return Likelihoods(
        chosen_R.view(torch.float64),
        tokens.view(num_rows, num_top),
        top.view(torch.float64).view(num_rows, num_top),
    )


def told(
    found: Likelihoods, tokens_R: ListLike[int | None], samplings_R: ListLike[Sampling]
) -> list[ChosenLogprob | None]:
    """Return what each row says of its token: None where it is not asked, or has none."""
    chosen_R = found.chosen_R.tolist()
    top_tokens_RN, top_RN = found.top_tokens_RN.tolist(), found.top_RN.tolist()
    rows: list[ChosenLogprob | None] = []
    for row, (token_id, sampling) in enumerate(zip(tokens_R, samplings_R, strict=True)):
        num_top = sampling.top_logprobs
        if token_id is None or num_top is None:
            rows.append(None)
            continue
        top = zip(top_tokens_RN[row][:num_top], top_RN[row][:num_top], strict=True)
        rows.append(
            ChosenLogprob(
                TokenLogprob(token_id, chosen_R[row]),
                # the impossible is no alternative
                tuple(TokenLogprob(*each) for each in top if isfinite(each[1])),
            )
        )
    return rows
