"""The next token of each row: a pure function of its logits, its parameters, its state and its tokens.

In this order, as in most engines: `logit_bias` is added to the logits; `repetition_penalty` divides
those above 0, and multiplies the others, of tokens that prompt or answer have; `frequency_penalty`
is subtracted for each time that the answer has the token, and `presence_penalty` once if it has it
at all (`penalties.py`); the logits are divided by `temperature`; `top_k` keeps the k most
likely tokens; `top_p` keeps of those the smallest set of most likely ones that holds at least that
part of their probability; `min_p` keeps tokens at least that probable relative to the most likely.
Tokens exactly as probable as the last one kept are kept too, so that no order among equals
matters. The token is drawn by inverting the cumulative distribution of what is kept, in order of
token id. Temperature 0 takes the most likely token, the lowest id among equals.

R rows, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from tenantry_kernels.choice import kind_of
from tenantry_runtime.core import Sampling

from .penalties import adjust_rows

_WORD = (1 << 64) - 1
# SplitMix64: Steele, Lea, Flood, "Fast splittable pseudorandom number generators" (OOPSLA 2014),
# with the mixer "variant 13" of David Stafford, as in Java's SplittableRandom
_GAMMA = 0x9E3779B97F4A7C15


def mix64(word: int) -> int:
    """Return a bijective hash of a 64-bit word."""
    word = (word ^ word >> 30) * 0xBF58476D1CE4E5B9 & _WORD
    word = (word ^ word >> 27) * 0x94D049BB133111EB & _WORD
    return word ^ word >> 31


COLDEST = torch.finfo(torch.float32).tiny
"""Lower temperatures are 0 to the float32 that logits are divided in, and so to the answer."""


@dataclass(frozen=True, slots=True)
class SamplerState:
    """Where a sequence's noise stands; all of it, so that it can go on elsewhere."""

    seed: int
    position: int
    """Of the token to be drawn, in prompt and answer together."""

    def uniform(self) -> float:
        """Return the position's number in [0, 1): 53 bits of a hash of seed and position."""
        # the seed is hashed first, so that neighboring seeds do not give shifted copies of one stream
        word = mix64((mix64(self.seed) + (self.position + 1) * _GAMMA) & _WORD)
        return (word >> 11) * 2.0**-53


class Sampled(NamedTuple):
    """Of each row its token, which means nothing where the logits were not finite."""

    tokens_R: torch.Tensor
    is_finite_R: torch.Tensor


def sample(
    logits_RV: torch.Tensor,
    samplings_R: Sequence[Sampling],
    states_R: Sequence[SamplerState],
    *,
    vocab_limit: int | None = None,
    tables_R: Sequence[NDArray[np.int64] | None] = (),
) -> Sampled:
    """Draw one token per row; ids from `vocab_limit` on are never drawn.

    `tables_R`: of each row what it has (`penalties.table_of`); empty where none asks for it.
    """
    logits_RV = logits_RV[:, :vocab_limit]
    if tables_R:
        logits_RV = adjust_rows(logits_RV, samplings_R, tables_R)
    highest_R, tokens_R, is_finite_R = most_likely(logits_RV)
    drawn = [row for row, sampling in enumerate(samplings_R) if sampling.temperature >= COLDEST]
    if drawn:
        rows = slice(None) if len(drawn) == len(tokens_R) else drawn
        tokens_R[rows] = _draw(
            logits_RV[rows],
            highest_R[rows],
            [samplings_R[row] for row in drawn],
            [states_R[row].uniform() for row in drawn],
        )
    return Sampled(tokens_R, is_finite_R)


class Filters(NamedTuple):
    """What rows keep of their tokens, each [R, 1]; a row may filter nothing."""

    top_k: torch.Tensor
    """int64, at most V."""
    top_p: torch.Tensor
    """float64."""
    min_p: torch.Tensor
    """float32."""


def draw(
    logits_RV: torch.Tensor,
    highest_R: torch.Tensor,
    temperature_R1: torch.Tensor,
    uniform_R1: torch.Tensor,
    filters: Filters | None,
) -> torch.Tensor:
    """Return a token of each row by its noise in [0, 1), float64. Temperatures are not 0."""
    # centered first: a tiny temperature must not overflow
    probs_RV = (logits_RV - highest_R[:, None]).div_(temperature_R1).softmax(dim=-1)
    if filters is not None:
        probs_RV.masked_fill_(probs_RV < _threshold(probs_RV, filters), 0)

    cumulative_RV = probs_RV.double().cumsum_(dim=-1)
    # below the total even after rounding, as noise is at most 1 - 2**-53: what is found is possible
    target_R1 = cumulative_RV[:, -1:] * uniform_R1
    return torch.searchsorted(cumulative_RV, target_R1, right=True)[:, 0]


def is_filtering(sampling: Sampling) -> bool:
    """Return whether some tokens can be kept from being drawn."""
    return sampling.top_k is not None or sampling.top_p < 1 or sampling.min_p > 0


def most_likely(logits_RV: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return each row's highest logit, its token, the first of equals, and whether it is finite.

    Not-a-number is higher than all else.
    """
    if kind_of(logits_RV.device) == "cpu":
        # numpy's search is vectorized; torch's takes up to ten times as long
        logits = logits_RV.numpy()
        tokens = logits.argmax(axis=-1)
        highest = logits[np.arange(len(tokens)), tokens]
        is_finite = np.isfinite(highest)
        return torch.from_numpy(highest), torch.from_numpy(tokens), torch.from_numpy(is_finite)
    highest_R, tokens_R = logits_RV.max(dim=-1)
    return highest_R, tokens_R, highest_R.isfinite()


def _draw(
    logits_RV: torch.Tensor,
    highest_R: torch.Tensor,
    samplings_R: Sequence[Sampling],
    uniforms_R: Sequence[float],
) -> torch.Tensor:
    temperature_R1 = logits_RV.new_tensor([[sampling.temperature] for sampling in samplings_R])
    uniform_R1 = logits_RV.new_tensor(uniforms_R, dtype=torch.float64)[:, None]
    filters = None
    if any(map(is_filtering, samplings_R)):
        num_tokens = logits_RV.shape[-1]
        top_k_R1 = [[min(s.top_k or num_tokens, num_tokens)] for s in samplings_R]
        filters = Filters(
            top_k=torch.tensor(top_k_R1, device=logits_RV.device),
            top_p=logits_RV.new_tensor([[s.top_p] for s in samplings_R], dtype=torch.float64),
            min_p=logits_RV.new_tensor([[s.min_p] for s in samplings_R]),
        )
    return draw(logits_RV, highest_R, temperature_R1, uniform_R1, filters)


def _threshold(probs_RV: torch.Tensor, filters: Filters) -> torch.Tensor:
    """Return [R, 1]: the least probability that each row's filters keep."""
    descending_RV = _sorted_descending(probs_RV)
    cumulative_RV = descending_RV.double().cumsum_(dim=-1)
    least_by_k = descending_RV.gather(-1, filters.top_k - 1)

    mass_R1 = cumulative_RV.gather(-1, filters.top_k - 1) * filters.top_p
    rank_R1 = (cumulative_RV < mass_R1).sum(dim=-1, keepdim=True)
    # 1 keeps everything, however little it adds to the sum
    least_by_p = torch.where(filters.top_p < 1, descending_RV.gather(-1, rank_R1), 0)

    least_by_min_p = descending_RV[:, :1] * filters.min_p
    return torch.maximum(torch.maximum(least_by_k, least_by_p), least_by_min_p)


def _sorted_descending(values_RV: torch.Tensor) -> torch.Tensor:
    if kind_of(values_RV.device) == "cpu":
        # numpy's vectorized sort of values alone is 30 times as fast as torch's, which carries indices
        return torch.from_numpy(np.sort(values_RV.numpy(), axis=-1)).flip(-1)
    return values_RV.sort(dim=-1, descending=True).values
