"""Sampling inside a step: the same draws as `sampler.sample`, with parameters that are on the device.

What a step computes must not depend on values that the host does not have, so each kind of step
takes all its rows the same way, and a row of temperature 0 keeps its most likely token:

| kind | if a row of the step | computes |
|---|---|---|
| greedy | none draws | the most likely token |
| drawing | draws | a draw from all tokens |
| filtering | draws and filters | a draw from what is kept, for which it sorts the vocabulary |

R rows, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import IntEnum

import numpy as np
import torch
from numpy.typing import NDArray

from tenantry_runtime.core import Sampling

from .sampler import COLDEST, Filters, Sampled, SamplerState, draw, is_filtering


class SamplingKind(IntEnum):
    """Kinds of the table above, each able to do what those before it do."""

    GREEDY = 0
    DRAWING = 1
    FILTERING = 2


def kind_for(samplings_R: Sequence[Sampling]) -> SamplingKind:
    """Return the least that serves these rows."""
    return max(map(_kind_of, samplings_R), default=SamplingKind.GREEDY)


def sampling_shapes(num_rows: int) -> dict[str, tuple[int, ...]]:
    """Return the shapes of the parameters' fields, for a `cache.words.Layout`.

    `top_k` is an integer, the others are the bits of float64.
    """
    names = ("temperature", "uniform", "top_k", "top_p", "min_p")
    return dict.fromkeys(names, (num_rows, 1))


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


def sample_on_device(
    logits_RV: torch.Tensor, views: Mapping[str, torch.Tensor], kind: SamplingKind
) -> Sampled:
    """Draw one token per row of logits that are cut to what may be drawn."""
    highest_R, tokens_R = logits_RV.max(dim=-1)  # the first of equals
    is_finite_R = highest_R.isfinite()
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
