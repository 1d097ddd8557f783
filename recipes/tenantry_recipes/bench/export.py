"""A checkpoint rewritten as one that `transformers` loads: BF16, the text decoder alone.

| released | written |
|---|---|
| `text_config` of a Kimi K2.5 or K2.6 | the configuration itself, `deepseek_v3` |
| `language_model.` before every name | nothing |
| INT4 and FP8 matrices, with their scales | BF16 matrices |
| MTP layers, vision tower, stray buffers | nothing |
| router bias, and all else that was not quantized | as it is |
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from tenantry_runtime.models.checkpoint import Checkpoint, read_json
from tenantry_runtime.models.config import Shard
from tenantry_runtime.models.decoder import Decoder
from tenantry_runtime.models.linear import Experts, HeadMaps, Linear, Part, Split
from tenantry_runtime.models.loader import load_config
from tenantry_runtime.models.quantize import (
    Fp8Matrix,
    Int4Matrix,
    dequantize_fp8,
    dequantize_int4,
)

ARCHITECTURES = {
    "deepseek_v3": "DeepseekV3ForCausalLM",
    "glm_moe_dsa": "GlmMoeDsaForCausalLM",
    "glm4_moe_lite": "Glm4MoeLiteForCausalLM",
}
"""By the `model_type` that is written."""

_DROPPED = ("auto_map", "quantization_config")


def export_checkpoint(source: Path, target: Path) -> None:
    """Write the checkpoint in `source` to `target`; raise `CheckpointError` if it is unusable."""
    config = dataclasses.replace(load_config(source), num_mtp_layers=0)
    tensors = ExportSource(Checkpoint(source), prefix=config.tensor_prefix)
    # a decoder asks for all that it is made of, and for nothing else
    Decoder(config, tensors)
    target.mkdir(parents=True, exist_ok=True)
    save_file(tensors.read, target / "model.safetensors", metadata={"format": "pt"})
    text = json.dumps(transformers_config(read_json(source / "config.json")), indent=2)
    (target / "config.json").write_text(text + "\n")


def transformers_config(released: dict[str, Any]) -> dict[str, Any]:
    """Return the configuration of a released checkpoint's text decoder in transformers' words."""
    text: dict[str, Any] = released.get("text_config", released)
    is_kimi = text["model_type"].startswith("kimi")
    model_type = "deepseek_v3" if is_kimi else text["model_type"]
    return {key: value for key, value in text.items() if key not in _DROPPED} | {
        "architectures": [ARCHITECTURES[model_type]],
        "dtype": "bfloat16",
        "model_type": model_type,
        "num_nextn_predict_layers": 0,
    }


class ExportSource:
    """A `WeightSource` that keeps what it is asked for, dequantized to BF16, in `read`."""

    def __init__(self, checkpoint: Checkpoint, *, prefix: str) -> None:
        self.read: dict[str, torch.Tensor] = {}
        """By name, without the prefix."""
        self._checkpoint = checkpoint
        self._prefix = prefix

    @property
    def shard(self) -> Shard:
        return Shard()

    def tensor(
        self, name: str, shape: tuple[int, ...], *, dtype: torch.dtype | None = None
    ) -> torch.Tensor:
        # a copy: what is read is a view of the mapped file
        self.read[name] = self._checkpoint.read(self._prefix + name, shape).clone()
        return self.read[name]

    def linear(self, parts: Sequence[Part], in_dim: int, split: Split | None = None) -> Linear:
        for part in parts:
            self._keep(part.name, part.out_dim, in_dim)
        return _never

    def heads(
        self, name: str, num_heads: int, key_dim: int, value_dim: int, in_dim: int
    ) -> HeadMaps:
        weight = self._keep(name, num_heads * (key_dim + value_dim), in_dim)
        return HeadMaps(weight.unflatten(0, (num_heads, -1)), key_dim)

    def experts(
        self, prefix: str, num_experts: int, hidden_dim: int, intermediate_dim: int
    ) -> Experts:
        for e in range(num_experts):
            self._keep(f"{prefix}.{e}.gate_proj", intermediate_dim, hidden_dim)
            self._keep(f"{prefix}.{e}.up_proj", intermediate_dim, hidden_dim)
            self._keep(f"{prefix}.{e}.down_proj", hidden_dim, intermediate_dim)
        return _never

    def _keep(self, name: str, out_dim: int, in_dim: int) -> torch.Tensor:
        weight = self._dense(f"{self._prefix}{name}.weight")
        if weight.shape != (out_dim, in_dim):
            problem = f"has shape {list(weight.shape)}, expected {[out_dim, in_dim]}"
            raise self._checkpoint.fail(f"{self._prefix}{name}.weight", problem)
        self.read[f"{name}.weight"] = weight
        return weight

    def _dense(self, full: str) -> torch.Tensor:
        read = self._checkpoint.read
        if f"{full}_packed" in self._checkpoint:
            packed = Int4Matrix(read(f"{full}_packed"), read(f"{full}_scale"))
            return dequantize_int4(packed).bfloat16()
        if f"{full}_scale_inv" in self._checkpoint:
            blocks = Fp8Matrix(read(full), read(f"{full}_scale_inv"))
            return dequantize_fp8(blocks).bfloat16()
        return read(full).clone()


def _never(*_arguments: torch.Tensor) -> torch.Tensor:
    raise AssertionError("a decoder that is being exported is not run")
