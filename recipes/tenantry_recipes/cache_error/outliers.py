"""Caches with outliers, as large models have and nano models have not.

Channels are enlarged in the keys and, by the same factor, made smaller in queries and in what comes
out: the layer computes what it did before, and only what a format does to the rows differs. Tokens are
enlarged as they are, which changes the layer: errors are against the enlarged rows without rounding.

e4m3 has four bits of exponent: a factor of 30 costs its values nothing, one of 1,000 puts what is not
enlarged among the numbers that have fewer bits of mantissa.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import TypeAlias

import torch

from .capture import SeenLayer

LATENT_CHANNELS = (5, 40)
ROPE_PAIR = (8, 9)
"""Values that are rotated together: the factor is the same before and after."""
TOKENS_PER_OUTLIER = 100

Injection: TypeAlias = Callable[[SeenLayer], SeenLayer]


def enlarge_latents(layer: SeenLayer, *, factor: float) -> SeenLayer:
    """Return the layer with large values in the same few latent channels of every token."""
    return _enlarged(layer, LATENT_CHANNELS, factor)


def enlarge_rope(layer: SeenLayer, *, factor: float) -> SeenLayer:
    """Return the layer with large values in one rotated pair of every token."""
    latent_dim = layer.value_NVL.shape[-1]
    return _enlarged(layer, tuple(latent_dim + channel for channel in ROPE_PAIR), factor)


def enlarge_tokens(layer: SeenLayer, *, factor: float) -> SeenLayer:
    """Return the layer with some tokens' latents enlarged; their rotated part stays."""
    latent_dim = layer.value_NVL.shape[-1]
    row_KC = layer.row_KC.clone()
    row_KC[::TOKENS_PER_OUTLIER, :latent_dim] *= factor
    return replace(layer, row_KC=row_KC)


def _enlarged(layer: SeenLayer, channels: tuple[int, ...], factor: float) -> SeenLayer:
    factor_C = torch.ones(layer.row_KC.shape[1], dtype=torch.float64)
    factor_C[list(channels)] = factor
    latent_dim = layer.value_NVL.shape[-1]
    return replace(
        layer,
        q_TNC=layer.q_TNC / factor_C,
        row_KC=layer.row_KC * factor_C,
        value_NVL=layer.value_NVL / factor_C[:latent_dim],
    )


INJECTIONS: Mapping[str, Injection] = {
    "real cache": lambda layer: layer,
    "2 latent channels x30": partial(enlarge_latents, factor=30.0),
    "2 latent channels x1000": partial(enlarge_latents, factor=1000.0),
    "2 rope channels x1000": partial(enlarge_rope, factor=1000.0),
    "1% of tokens x30": partial(enlarge_tokens, factor=30.0),
}
"""By the heading of the table's column. No factor is a power of two, which scales would take exactly."""
