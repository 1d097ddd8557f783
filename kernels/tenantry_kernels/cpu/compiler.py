"""How loops are compiled: with numba, once, for all later processes."""

# what numba compiles has the types of its first call
# mypy: allow-untyped-defs, allow-untyped-calls, allow-untyped-decorators

from __future__ import annotations

from numba import njit

FAST_MATH = {"reassoc", "contract", "nsz", "arcp"}


def compiled(function):
    """Compile at the first call, or load what an earlier process compiled."""
    return jit(function, FAST_MATH)


def in_order(function):
    """Compile like the others, but as written: only products and sums are fused."""
    return jit(function, {"contract"})


def jit(function, fast_math, **others):
    """Compile with numba's own options beside the common ones."""
    options = {"nogil": True, "fastmath": fast_math, "error_model": "numpy", **others}
    try:
        return njit(cache=True, **options)(function)
    except RuntimeError:
        # neither this folder nor the user's cache can be written: compile in every process
        return njit(**options)(function)
