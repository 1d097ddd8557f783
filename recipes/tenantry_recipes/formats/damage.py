"""Formats that are known to be too coarse: what a suite must notice to be believed.

| damage | what |
|---|---|
| INT3 experts | routed experts in integers -4..3 with a scale per 32 columns |
| short rope | FP8 rows whose rope values have two mantissa bits instead of three |

T rows, R wanted rows, H hidden values.
"""

from __future__ import annotations

import re
import shutil
from dataclasses import replace
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch.nn.functional import pad

from tenantry_runtime.cache.checked import CheckedBatch
from tenantry_runtime.cache.paged import PagedCache
from tenantry_runtime.models.attend import (
    Attend,
    AttentionRows,
    IndexRows,
    PagedAttend,
    Selection,
)
from tenantry_runtime.models.batch import ForwardBatch
from tenantry_runtime.models.checkpoint import SINGLE_FILE, SUFFIX, Checkpoint
from tenantry_runtime.models.config import ModelConfig
from tenantry_runtime.models.decoder import Decoder
from tenantry_runtime.models.quantize import Fp8Matrix, dequantize_fp8

INT3_GROUP = 32
"""As for INT4, so that one bit is all that differs."""
ROPE_MANTISSA_BITS = 2

_EXPERT = re.compile(r".*\.mlp\.experts\.\d+\.(gate|up|down)_proj\.weight")
_SCALE = "_scale_inv"


class ShortRope:
    """A decoder that puts rope values of few mantissa bits into its pages.

    FP8 rows have scales that are powers of two, so the values stay as they are rounded here. The
    layers run one by one: compiled decode steps write their pages themselves.
    """

    def __init__(self, decoder: Decoder, *, mantissa_bits: int = ROPE_MANTISSA_BITS) -> None:
        self._decoder = decoder
        self._mantissa_bits = mantissa_bits

    @property
    def config(self) -> ModelConfig:
        return self._decoder.config

    @torch.inference_mode()
    def forward(
        self, batch: ForwardBatch, checked: CheckedBatch, cache: PagedCache
    ) -> torch.Tensor:
        pages = PagedAttend(checked, batch.cu_len, cache, deterministic=False)
        short = _ShortRopeAttend(pages, self._mantissa_bits)
        x_TH = self._decoder.trunk(batch.token_ids_T, batch.positions_T, short)
        return self._decoder.norm(x_TH[batch.logit_rows_R])

    @torch.inference_mode()
    def logits(self, hidden_RH: torch.Tensor) -> torch.Tensor:
        return self._decoder.head(hidden_RH).float()


class _ShortRopeAttend:
    def __init__(self, attend: Attend, mantissa_bits: int) -> None:
        self._attend = attend
        self._mantissa_bits = mantissa_bits

    def select(self, layer: int, rows: IndexRows) -> Selection | None:
        return self._attend.select(layer, rows)

    def attend(self, layer: int, rows: AttentionRows, selection: Selection | None) -> torch.Tensor:
        k_rope_Tr = with_mantissa_bits(rows.k_rope_Tr, self._mantissa_bits)
        short = replace(rows, k_rope_Tr=k_rope_Tr)
        return self._attend.attend(layer, short, selection)


def with_mantissa_bits(values: torch.Tensor, num_bits: int) -> torch.Tensor:
    """Round to the nearest values with so many explicit mantissa bits, ties to even."""
    fraction, exponent = torch.frexp(values.float())
    # a fraction is at least a half: its first bit is the implicit one
    steps = float(2 ** (num_bits + 1))
    return torch.ldexp((fraction * steps).round() / steps, exponent).to(values.dtype)


def write_int3_experts(source: Path, destination: Path) -> None:
    """Copy a checkpoint in FP8 blocks or BF16; routed experts become BF16 that INT3 could hold."""
    destination.mkdir()
    for path in source.iterdir():
        if path.suffix != SUFFIX and not path.name.endswith(".index.json"):
            shutil.copyfile(path, destination / path.name)
    checkpoint = Checkpoint(source)
    tensors: dict[str, torch.Tensor] = {}
    for name in checkpoint.names:
        if _EXPERT.fullmatch(name.removesuffix(_SCALE)):
            if not name.endswith(_SCALE):
                tensors[name] = round_to_int3(_expert(checkpoint, name)).bfloat16()
        else:
            tensors[name] = checkpoint.read(name)
    save_file(tensors, destination / SINGLE_FILE)


def round_to_int3(weight: torch.Tensor) -> torch.Tensor:
    """Return float32 [out, in] of what is left after rounding each group to eight levels."""
    num_columns = weight.shape[1]
    padded = pad(weight.float(), (0, -num_columns % INT3_GROUP))
    groups = padded.unflatten(1, (-1, INT3_GROUP))
    scale = (groups.abs().amax(-1, keepdim=True) / 3.5).clamp(min=1e-8).bfloat16().float()
    levels = (groups / scale).round().clamp(-4, 3)
    rounded: torch.Tensor = (levels * scale).flatten(1)
    return rounded[:, :num_columns]


def _expert(checkpoint: Checkpoint, name: str) -> torch.Tensor:
    stored = checkpoint.read(name)
    if f"{name}{_SCALE}" in checkpoint:
        return dequantize_fp8(Fp8Matrix(stored, checkpoint.read(f"{name}{_SCALE}")))
    return stored
