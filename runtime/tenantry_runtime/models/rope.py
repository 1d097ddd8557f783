"""Rotary position embedding over interleaved pairs (2i, 2i+1), plain and YaRN.

YaRN in DeepSeek's form (Peng et al. 2023; DeepSeek-V2's modeling code): frequencies below the
correction range are divided by `factor`, above it kept, in between mixed linearly. The cos/sin
multiplier is f(mscale)/f(mscale_all_dim) = 1 for every released model here; f(mscale_all_dim)
squared scales the softmax instead.

T rows, D rotated values (even).
"""

from __future__ import annotations

import math

import torch

from .config import RopeConfig, Yarn


def inverse_frequencies(rope_dim: int, rope: RopeConfig) -> torch.Tensor:
    """Return float32 angular frequencies [rope_dim / 2], in radians per position."""
    exponent = torch.arange(0, rope_dim, 2, dtype=torch.float32) / rope_dim
    plain = 1.0 / rope.theta**exponent
    if rope.yarn is None:
        return plain
    low, high = _correction_range(rope_dim, rope.theta, rope.yarn)
    pair = torch.arange(rope_dim // 2, dtype=torch.float32)
    interpolated = ((pair - low) / max(high - low, 0.001)).clamp(0, 1)
    return plain / rope.yarn.factor * interpolated + plain * (1 - interpolated)


def attention_scale(query_dim: int, rope: RopeConfig) -> float:
    """Return the factor on attention scores: query_dim^-0.5, times YaRN's mscale squared."""
    scale = math.sqrt(1 / query_dim)
    if rope.yarn is None or rope.yarn.factor <= 1:
        return scale
    mscale = 0.1 * rope.yarn.mscale_all_dim * math.log(rope.yarn.factor) + 1.0
    return scale * mscale * mscale


def rotation(positions_T: torch.Tensor, frequencies: torch.Tensor) -> torch.Tensor:
    """Return complex64 [T, D/2]: the rotation of each pair at each position."""
    angles = positions_T.to(torch.float32)[:, None] * frequencies
    return torch.polar(torch.ones_like(angles), angles)


def rotate(x: torch.Tensor, rotation_TF: torch.Tensor) -> torch.Tensor:
    """Rotate x [T, D] or [T, heads, D] in float32; return it in its own dtype."""
    pairs = torch.view_as_complex(x.float().unflatten(-1, (-1, 2)).contiguous())
    turn = rotation_TF if x.dim() == 2 else rotation_TF[:, None]
    return torch.view_as_real(pairs * turn).flatten(-2).to(x.dtype)


def _correction_range(rope_dim: int, theta: float, yarn: Yarn) -> tuple[int, int]:
    def pair_of(num_rotations: float) -> float:
        wavelengths = yarn.original_context_tokens / (num_rotations * 2 * math.pi)
        return rope_dim * math.log(wavelengths) / (2 * math.log(theta))

    low = max(math.floor(pair_of(yarn.beta_fast)), 0)
    high = min(math.ceil(pair_of(yarn.beta_slow)), rope_dim - 1)
    return low, high
