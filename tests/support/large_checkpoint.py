"""A checkpoint large enough to measure what loading it takes, in shards of one layer each."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from .released_layouts import write_config, write_index

_HIDDEN, _EXPERTS, _EXPERT, _VOCAB, _LAYERS = 768, 34, 256, 2000, 6
KV_B_VALUES = 8 * 128 * 128
"""Of each layer's kv_b_proj."""
_QUANTIZED = re.compile(r".*(experts|self_attn)\..*_proj(_with_mqa)?\.weight")
_CONFIG: dict[str, Any] = {
    "first_k_dense_replace": 0,
    "hidden_size": _HIDDEN,
    "intermediate_size": 1024,
    "kv_lora_rank": 128,
    "max_position_embeddings": 4096,
    "model_type": "kimi_k2",
    "moe_intermediate_size": _EXPERT,
    "n_routed_experts": _EXPERTS,
    "n_shared_experts": 1,
    "num_attention_heads": 8,
    "num_experts_per_tok": 4,
    "num_hidden_layers": _LAYERS,
    "q_lora_rank": 256,
    "qk_nope_head_dim": 64,
    "qk_rope_head_dim": 32,
    "rms_norm_eps": 1e-5,
    "rope_theta": 50000.0,
    "routed_scaling_factor": 2.5,
    "v_head_dim": 64,
    "vocab_size": _VOCAB,
}


def write_large_checkpoint(
    directory: Path, *, num_layers: int = _LAYERS, is_quantized: bool = False
) -> tuple[int, int]:
    """Write 265 MB of BF16 weights; return the bytes of all tensors and of the largest shard.

    is_quantized: 85 MB, with INT4 routed experts and most of the rest in FP8.
    """
    directory.mkdir()
    write_config(directory, _CONFIG | {"num_hidden_layers": num_layers})
    weight_map: dict[str, str] = {}
    sizes = []
    for layer in range(num_layers):
        shard = dict(_layer(layer))
        if is_quantized:
            shard = dict(_quantized(shard))
        if layer == 0:
            shard["model.embed_tokens.weight"] = _matrix(_VOCAB, _HIDDEN)
        if layer == num_layers - 1:
            shard["model.norm.weight"] = _matrix(_HIDDEN)
            shard["lm_head.weight"] = _matrix(_VOCAB, _HIDDEN)
        file = f"model-{layer + 1:05}-of-{num_layers:05}.safetensors"
        save_file(shard, directory / file)
        weight_map |= dict.fromkeys(shard, file)
        sizes.append(sum(tensor.nbytes for tensor in shard.values()))
    write_index(directory, weight_map, sum(sizes))
    return sum(sizes), max(sizes)


def _layer(layer: int) -> Iterator[tuple[str, torch.Tensor]]:
    prefix = f"model.layers.{layer}"
    for norm in ("input_layernorm", "post_attention_layernorm"):
        yield f"{prefix}.{norm}.weight", _matrix(_HIDDEN)
    attention = f"{prefix}.self_attn"
    yield f"{attention}.q_a_proj.weight", _matrix(256, _HIDDEN)
    yield f"{attention}.q_a_layernorm.weight", _matrix(256)
    yield f"{attention}.q_b_proj.weight", _matrix(8 * 96, 256)
    yield f"{attention}.kv_a_proj_with_mqa.weight", _matrix(160, _HIDDEN)
    yield f"{attention}.kv_a_layernorm.weight", _matrix(128)
    yield f"{attention}.kv_b_proj.weight", _matrix(8 * 128, 128)
    yield f"{attention}.o_proj.weight", _matrix(_HIDDEN, 8 * 64)
    mlp = f"{prefix}.mlp"
    yield f"{mlp}.gate.weight", _matrix(_EXPERTS, _HIDDEN)
    yield f"{mlp}.gate.e_score_correction_bias", torch.zeros(_EXPERTS)
    for expert in [f"experts.{n}" for n in range(_EXPERTS)] + ["shared_experts"]:
        yield f"{mlp}.{expert}.gate_proj.weight", _matrix(_EXPERT, _HIDDEN)
        yield f"{mlp}.{expert}.up_proj.weight", _matrix(_EXPERT, _HIDDEN)
        yield f"{mlp}.{expert}.down_proj.weight", _matrix(_HIDDEN, _EXPERT)


def _quantized(shard: Mapping[str, torch.Tensor]) -> Iterator[tuple[str, torch.Tensor]]:
    for name, tensor in shard.items():
        if not _QUANTIZED.fullmatch(name):
            yield name, tensor
        elif ".experts." in name:
            height, width = tensor.shape
            yield f"{name}_packed", torch.full((height, width // 8), 0x79797979, dtype=torch.int32)
            yield f"{name}_scale", torch.full((height, width // 32), 0.01, dtype=torch.bfloat16)
            yield f"{name}_shape", torch.tensor([height, width], dtype=torch.int32)
        else:
            yield name, tensor.to(torch.float8_e4m3fn)
            blocks = [-(-size // 128) for size in tensor.shape]
            yield f"{name}_scale_inv", torch.ones(*blocks)


def _matrix(*shape: int) -> torch.Tensor:
    return torch.full(shape, 0.01, dtype=torch.bfloat16)
