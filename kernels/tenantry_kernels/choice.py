"""The one place that decides whether an op runs as compiled loops (`cpu/`) or in torch.

Compiled ops run on a CPU in inference mode (they have no gradients), where numba is installed. Up to
this many rows they are the faster ones, measured with the nano models' matrices on an AMD EPYC 9005:

| op | float32 | bfloat16 | why |
|---|---|---|---|
| norm, gate | any | any | one pass over memory instead of three |
| attention | any | any | reads pages where they are, each sequence to its own length |
| router | 64 | 64 | saves ten calls of torch; more rows make these cheap |
| experts | any | 256 | no sorting, no call per expert |
| product | any | 8 | torch's float32 products run at two thirds of this speed; those in BF16 use the processor's BF16 dot products, which numba does not reach |

With more than one thread torch divides a product's rows among them: then 64 is the most.
Deterministic mode takes norm and gate only, which compute row by row.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from importlib.util import find_spec
from typing import Literal, TypeAlias

import torch

OpName: TypeAlias = Literal["norm", "gate", "attention", "router", "experts", "product"]

HAS_COMPILER = find_spec("numba") is not None
"""Without it everything runs in torch, which takes twice the time per step of a few rows."""

_ANY = sys.maxsize
_MOST_ROWS: Mapping[torch.dtype, Mapping[OpName, int]] = {
    torch.float32: {
        "norm": _ANY,
        "gate": _ANY,
        "attention": _ANY,
        "router": 64,
        "experts": _ANY,
        "product": _ANY,
    },
    torch.bfloat16: {
        "norm": _ANY,
        "gate": _ANY,
        "attention": _ANY,
        "router": 64,
        "experts": 256,
        "product": 8,
    },
}
_MOST_ROWS_BESIDE_THREADS = 64
_IN_ROW_ORDER = frozenset[OpName]({"norm", "gate"})
_DIVIDED_BY_TORCH = frozenset[OpName]({"experts", "product"})


def is_compiled(op: OpName, x: torch.Tensor, *, deterministic: bool = False) -> bool:
    """Return whether rows `x` [T, ...] pass the compiled form of `op`."""
    if not (HAS_COMPILER and x.is_cpu and torch.is_inference_mode_enabled()):
        return False
    if deterministic and op not in _IN_ROW_ORDER:
        return False
    most = _MOST_ROWS[x.dtype][op] if x.dtype in _MOST_ROWS else 0
    if op in _DIVIDED_BY_TORCH and torch.get_num_threads() > 1:
        most = min(most, _MOST_ROWS_BESIDE_THREADS)
    return x.shape[0] <= most
