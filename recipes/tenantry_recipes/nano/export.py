"""From trained parameters to a model directory in the released file layout."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from tenantry_runtime.models.config import Family
from tenantry_runtime.models.quantize import quantize_fp8, quantize_int4

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
