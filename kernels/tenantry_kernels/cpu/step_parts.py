"""What the phases of a decode step are made of (`step`)."""

# what numba compiles has the types of its first call
# mypy: allow-untyped-defs, allow-untyped-calls, allow-untyped-decorators

from __future__ import annotations

import numpy as np

from .blocks import narrow, stay_whole
from .compiler import FAST_MATH, jit
from .kernels import product, rms_norm
from .shares import floats_at, vector_at

BLOCK = 64
"""Outputs of a product that are one unit: 64 KB of weights where rows have 512 BF16 values."""
NARROW_BLOCK = 32
"""Of sums over experts, whose units take several products; and of gates, which take two."""


def phase_part(function):
    """Compile for other loops alone: what Python would call takes time to compile."""
    return jit(function, FAST_MATH, no_cpython_wrapper=True, no_cfunc_wrapper=True)


@phase_part
def floats(num_rows, width):
    """Return float32 memory [num_rows, width]. Compiled here once for all that take some."""
    stay_whole()
    return np.empty((num_rows, width), np.float32)


@phase_part
def values(num_rows, width, like):
    """Return memory [num_rows, width] of `like`'s dtype."""
    stay_whole()
    return np.empty((num_rows, width), like.dtype)


@phase_part
def num_blocks(width, block):
    """Return how many units of `block` values there are in `width`."""
    return (width + block - 1) // block


@phase_part
def multiply_block(x, weight, unit, answer, out, column):
    """out[t, column + o] = x[t] . weight[o] for the outputs o of a unit; answer: [T, BLOCK]."""
    stay_whole()
    first = unit * BLOCK
    last = min(first + BLOCK, weight.shape[0])
    product(x, weight[first:last], answer)
    for t in range(x.shape[0]):
        for o in range(last - first):
            out[t, column + first + o] = answer[t, o]


@phase_part
def norm_x(model, weight, job, out, like):
    """out = the RMS norm of x."""
    x = floats_at(job.x, job.num_rows, model.hidden_dim)
    rms_norm(x, 0, vector_at(weight, model.hidden_dim, like), np.float32(model.norm_eps), out)


@phase_part
def rotate(value, first, turn, out, at):
    """out[at:] = value[first:] with each pair of neighbors rotated."""
    half = len(turn) // 2
    for i in range(half):
        a, b = value[first + 2 * i], value[first + 2 * i + 1]
        out[at + 2 * i] = narrow(a * turn[i] - b * turn[half + i], out)
        out[at + 2 * i + 1] = narrow(a * turn[half + i] + b * turn[i], out)
