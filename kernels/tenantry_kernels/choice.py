"""The one place that decides whether an op runs as compiled loops (`cpu/`), in Triton (`gpu/`) or in torch.

Triton's kernels run on CUDA tensors, in any number of rows; they are imported when one is asked for.
Compiled ops run on a CPU in inference mode (they have no gradients), where numba is installed. Up to
this many rows they are the faster ones, measured on an AMD EPYC 9005 with the nano models' matrices
in float32 and with those of a model of hidden width 512 in BF16:

| op | float32 | bfloat16 | why |
|---|---|---|---|
| norm, gate | any | any | one pass over memory instead of three |
| attention | any | any | reads pages where they are, each sequence to its own length, and of what an indexer chose nothing else |
| chunk | 63 | 31 | as above; with more rows torch's products take two thirds of the time, and its fused form in BF16 half of it, or a third where a CPU multiplies tiles (AMX) |
| step | 128 | 128 | a batch of single rows in one call over all layers, not ten a layer |
| rows | any | any | FP8 rows written and read in one call, not ten |
| router | 64 | 64 | saves ten calls of torch; of a longer chunk's time it would save less than a hundredth, and there torch's form stays in use, whose parts tests exchange |
| experts | any | 512 | no sorting, no call per expert |
| stored | 64 | 32 | INT4 and FP8 weights are read as they are; with many rows torch's product makes up for widening them |
| product | any | 128 | asks for weights ahead; with many rows torch's BF16 reuses them better |
| expand | any | 512 | torch's product with a transposed view takes four times as long at 32 rows |
| absorb | any | 16 | as for products; it sums in float32, which with more rows is slower than BF16 |

With more than one thread torch divides a product's rows among them: then 64 is the most.
Deterministic mode takes norm, gate and rows only, which do the same whatever the number of rows.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from importlib.util import find_spec
from typing import Literal, TypeAlias

import torch

OpName: TypeAlias = Literal[
    "norm",
    "gate",
    "attention",
    "chunk",
    "router",
    "experts",
    "product",
    "absorb",
    "expand",
    "step",
    "rows",
    "stored",
]

DeviceName: TypeAlias = Literal["cpu", "cuda"]
"""Kinds of devices that have kernels of their own."""

HAS_COMPILER = find_spec("numba") is not None
"""Without it everything runs in torch, which takes twice the time per step of a few rows."""

_ANY = sys.maxsize
_MOST_ROWS: Mapping[torch.dtype, Mapping[OpName, int]] = {
    torch.float32: {
        "norm": _ANY,
        "gate": _ANY,
        "attention": _ANY,
        "chunk": 63,
        "router": 64,
        "experts": _ANY,
        "product": _ANY,
        "absorb": _ANY,
        "expand": _ANY,
        "step": 128,
        "rows": _ANY,
        "stored": 64,
    },
    torch.bfloat16: {
        "norm": _ANY,
        "gate": _ANY,
        "attention": _ANY,
        "chunk": 31,
        "router": 64,
        "experts": 512,
        "product": 128,
        "absorb": 16,
        "expand": 512,
        "step": 128,
        "rows": _ANY,
        "stored": 32,
    },
    # pages of FP8 rows
    torch.uint8: {"attention": _ANY, "rows": _ANY},
}
_MOST_ROWS_BESIDE_THREADS = 64
_IN_ROW_ORDER = frozenset[OpName]({"norm", "gate", "rows"})
_DIVIDED_BY_TORCH = frozenset[OpName]({"experts", "product", "absorb", "expand", "stored"})


def kind_of(device: torch.device) -> str:
    """Return the kind of device whose kernels serve tensors on this one.

    Tests of the GPU's path on a machine without a GPU put "cuda" here.
    """
    return device.type


def is_triton(x: torch.Tensor) -> bool:
    """Return whether rows `x` pass Triton kernels, which take BF16 alone."""
    return x.dtype == torch.bfloat16 and kind_of(x.device) == "cuda"


def is_compiled(
    op: OpName, x: torch.Tensor, *, num_rows: int | None = None, deterministic: bool = False
) -> bool:
    """Return whether rows `x` [T, ...] pass the compiled form of `op`; or `num_rows` such rows."""
    if not (HAS_COMPILER and kind_of(x.device) == "cpu" and torch.is_inference_mode_enabled()):
        return False
    if deterministic and op not in _IN_ROW_ORDER:
        return False
    most = _MOST_ROWS.get(x.dtype, {}).get(op, 0)
    if op in _DIVIDED_BY_TORCH and torch.get_num_threads() > 1:
        most = min(most, _MOST_ROWS_BESIDE_THREADS)
    return (x.shape[0] if num_rows is None else num_rows) <= most
