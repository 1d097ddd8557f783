"""From trained parameters to a model directory in the released file layout, and back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from tenantry_runtime.models.checkpoint import Checkpoint
from tenantry_runtime.models.config import Family
from tenantry_runtime.models.quantize import (
    Fp8Matrix,
    Int4Matrix,
    dequantize_fp8,
    dequantize_int4,
    quantize_fp8,
    quantize_int4,
)

from .parameters import EXPERT, KEPT_WIDE, ParameterSource

PREFIX = {"kimi": "language_model.", "glm": ""}


def write_checkpoint(
    directory: Path, family: Family, config: dict[str, Any], source: ParameterSource
) -> None:
    """Write config.json and model.safetensors beside the tokenizer's files."""
    tensors: dict[str, torch.Tensor] = {
        name: bias.float().clone() for name, bias in source.router_bias.items()
    }
    for name, parameter in source.parameters.items():
        tensors.update(_stored(family, name, parameter.detach()))
    named = {PREFIX[family] + name: tensor.contiguous() for name, tensor in tensors.items()}
    directory.mkdir(parents=True, exist_ok=True)
    save_file(named, directory / "model.safetensors", metadata={"format": "pt"})
    text = json.dumps(config, indent=2, sort_keys=True)
    (directory / "config.json").write_text(text + "\n")


@torch.no_grad()
def read_checkpoint(directory: Path, family: Family, source: ParameterSource) -> None:
    """Give the parameters the values of a model that was written before."""
    checkpoint = Checkpoint(directory)
    for name, bias in source.router_bias.items():
        bias.copy_(checkpoint.read(PREFIX[family] + name))
    for name, parameter in source.parameters.items():
        parameter.copy_(_restored(checkpoint, PREFIX[family] + name))


def _restored(checkpoint: Checkpoint, name: str) -> torch.Tensor:
    if f"{name}_packed" in checkpoint:
        packed, scale = checkpoint.read(f"{name}_packed"), checkpoint.read(f"{name}_scale")
        return dequantize_int4(Int4Matrix(packed, scale))
    if f"{name}_scale_inv" in checkpoint:
        scale_inv = checkpoint.read(f"{name}_scale_inv")
        return dequantize_fp8(Fp8Matrix(checkpoint.read(name), scale_inv))
    return checkpoint.read(name)


def _stored(family: Family, name: str, weight: torch.Tensor) -> dict[str, torch.Tensor]:
    matrix = name.removesuffix(".weight")
    if family == "kimi" and EXPERT.fullmatch(matrix):
        packed = quantize_int4(weight)
        return {
            f"{name}_packed": packed.packed,
            f"{name}_scale": packed.scale,
            f"{name}_shape": torch.tensor(weight.shape, dtype=torch.int32),
        }
    if family == "glm" and weight.dim() == 2 and not KEPT_WIDE.fullmatch(matrix):
        blocks = quantize_fp8(weight)
        return {name: blocks.weight, f"{name}_scale_inv": blocks.scale_inv}
    return {name: weight.bfloat16()}
