"""Sampling inside a step: the same draws as `sampler.sample`, with parameters that are on the device.

What a step computes must not depend on values that the host does not have, so each kind of step
takes all its rows the same way, and a row of temperature 0 keeps its most likely token:

| kind | if a row of the step | computes |
|---|---|---|
| greedy | none draws | the most likely token |
| drawing | draws | a draw from all tokens |
| filtering | draws and filters | a draw from what is kept, for which it sorts the vocabulary |

Beside that, a step in which a row asks for penalties or biases adjusts the logits of all rows, those
of the others by nothing, and one in which a row asks for log probabilities finds those of all. A step
of which no row asks does neither.

R rows, V vocabulary, K tokens that a row's penalties and biases are about.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from tenantry_runtime.core import Sampling

from .history import penalties_of
from .penalties import NUM_COLUMNS, NUM_PENALTIES, adjust_on_device
from .sampler import COLDEST, Filters, Sampled, SamplerState, draw, is_filtering, most_likely


class SamplingKind(IntEnum):
    """Kinds of the table above, each able to do what those before it do."""

    GREEDY = 0
    DRAWING = 1
    FILTERING = 2


_PLAIN = Sampling(seed=0)


class AdjustedRow(NamedTuple):
    """A row that asks for penalties or biases."""

    sampling: Sampling
    table: NDArray[np.int64]
    """Of the tokens before the last."""
    is_answer: bool
    """Whether the last is one of the answer."""


def kind_for(samplings_R: Sequence[Sampling]) -> SamplingKind:
    """Return the least that serves these rows."""
    return max(map(_kind_of, samplings_R), default=SamplingKind.GREEDY)


class SamplingForm(NamedTuple):
    """What is fixed in a captured step's sampling."""

    kind: SamplingKind
    num_adjusted: int = 0
    """K; 0 where no row asks for penalties or biases."""
    has_logprobs: bool = False
    num_mask_words: int = 0
    """Of each row (`masks.py`); 0 where no row has a grammar."""


def sampling_shapes(num_rows: int, num_adjusted: int = 0) -> dict[str, tuple[int, ...]]:
    """Return the shapes of the parameters' fields, for a `cache.words.Layout`.

    `top_k` is an integer, the others are the bits of float64. Where K is not 0: each row's table,
    its penalties, and whether its last token is one of the answer (`penalties.py`).
    """
    names = ("temperature", "uniform", "top_k", "top_p", "min_p")
    shapes: dict[str, tuple[int, ...]] = dict.fromkeys(names, (num_rows, 1))
    if num_adjusted:
        shapes["adjusted"] = (num_rows, NUM_COLUMNS, num_adjusted)
        shapes["penalties"] = (num_rows, NUM_PENALTIES)
        shapes["is_answer"] = (num_rows, 1)
    return shapes


def write_sampling(
    host: Mapping[str, NDArray[np.int64]],
    samplings_R: Sequence[Sampling],
    states_R: Sequence[SamplerState],
    num_tokens: int,
) -> None:
    """Fill the fields, zeros before; rows left over are padding, of temperature 0."""
    num_rows = len(samplings_R)
    floats = {
        "temperature": [s.temperature for s in samplings_R],
        "uniform": [
            state.uniform() if s.temperature >= COLDEST else 0.0
            for s, state in zip(samplings_R, states_R, strict=True)
        ],
        "top_p": [s.top_p for s in samplings_R],
        "min_p": [s.min_p for s in samplings_R],
    }
    for name, values in floats.items():
        host[name][:num_rows, 0] = np.array(values, np.float64).view(np.int64)
    # padding too: none is not a place in the order of tokens
    host["top_k"][:] = num_tokens
    host["top_k"][:num_rows, 0] = [min(s.top_k or num_tokens, num_tokens) for s in samplings_R]


def write_adjusted(
    host: Mapping[str, NDArray[np.int64]],
    rows: Sequence[AdjustedRow | None],
    num_tokens: int,
) -> None:
    """Fill the fields of what is adjusted, if the form has them."""
    if "adjusted" not in host:
        return
    # token `num_tokens` is none
    host["adjusted"][:, 0] = num_tokens
    host["penalties"][:] = np.array(penalties_of(_PLAIN), np.float64).view(np.int64)
    for row, adjusted in enumerate(rows):
        if adjusted is None:
            continue
        num_own = adjusted.table.shape[1]
        host["adjusted"][row, :, :num_own] = adjusted.table
        np.minimum(host["adjusted"][row, 0], num_tokens, out=host["adjusted"][row, 0])
        penalties = np.array(penalties_of(adjusted.sampling), np.float64)
        host["penalties"][row] = penalties.view(np.int64)
        host["is_answer"][row] = adjusted.is_answer


def adjusted_on_device(
    logits_RV: torch.Tensor, views: Mapping[str, torch.Tensor], last_R: torch.Tensor
) -> torch.Tensor:
    """Return what biases and penalties make of the logits; `last` are the rows' last tokens."""
    if "adjusted" not in views:
        return logits_RV
    return adjust_on_device(
        logits_RV, views["adjusted"], views["penalties"], last_R[:, None], views["is_answer"]
    )


def sample_on_device(
    logits_RV: torch.Tensor, views: Mapping[str, torch.Tensor], kind: SamplingKind
) -> Sampled:
    """Draw one token per row of logits that are cut to what may be drawn, and adjusted."""
    highest_R, tokens_R, is_finite_R = most_likely(logits_RV)
    if kind is SamplingKind.GREEDY:
        return Sampled(tokens_R, is_finite_R)
    temperature_R1 = views["temperature"].view(torch.float64).to(logits_RV.dtype)
    is_drawn_R1 = temperature_R1 >= COLDEST
    filters = None
    if kind is SamplingKind.FILTERING:
        filters = Filters(
            top_k=views["top_k"],
            top_p=views["top_p"].view(torch.float64),
            min_p=views["min_p"].view(torch.float64).to(logits_RV.dtype),
        )
    drawn_R = draw(
        logits_RV,
        highest_R,
        torch.where(is_drawn_R1, temperature_R1, 1),
        views["uniform"].view(torch.float64),
        filters,
    )
    tokens_R = torch.where(is_drawn_R1[:, 0], drawn_R, tokens_R)
    # a draw among what is not a number may be no token, and the next step may read it before it is known
    return Sampled(tokens_R.where(is_finite_R, 0), is_finite_R)


def _kind_of(sampling: Sampling) -> SamplingKind:
    if sampling.temperature < COLDEST:
        return SamplingKind.GREEDY
    return SamplingKind.FILTERING if is_filtering(sampling) else SamplingKind.DRAWING
