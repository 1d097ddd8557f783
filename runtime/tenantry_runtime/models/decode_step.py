"""Hands a decoder's weights to the loops that compute a decode step in one call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch

from tenantry_kernels.cpu.decode import DecodeStep, StepLayer, StepModel
from tenantry_runtime.core import PAGE_TOKENS

from .config import ModelConfig
from .layers import INDEX_NORM_EPS, Moe, RmsNorm
from .linear import DenseExperts, DenseLinear, Linear
from .rope import attention_scale

if TYPE_CHECKING:
    # it imports this module
    from .decoder import DecoderLayer


def decode_step(
    config: ModelConfig,
    layers: Sequence[DecoderLayer],
    *,
    embedding_VH: torch.Tensor,
    frequencies: torch.Tensor,
    norm: RmsNorm,
    head: Linear,
) -> DecodeStep | None:
    """Return the loops with these weights; None where some are no dense matrices.

    They are divided among as many threads as torch's operators are.
    """
    steps = [step for step in map(_layer, layers) if step is not None]
    if len(steps) < len(layers) or not isinstance(head, DenseLinear):
        return None
    model = _model(config, embedding_VH=embedding_VH, norm=norm.weight, frequencies=frequencies)
    return DecodeStep(model, steps, head=head.weight, num_threads=torch.get_num_threads())


def _model(
    config: ModelConfig,
    *,
    embedding_VH: torch.Tensor,
    norm: torch.Tensor,
    frequencies: torch.Tensor,
) -> StepModel:
    moe, indexer = config.moe, config.indexer
    index_heads, index_dim = (indexer.num_heads, indexer.head_dim) if indexer else (0, 0)
    return StepModel(
        embedding=embedding_VH,
        norm=norm,
        frequencies=frequencies,
        vocab_size=config.vocab_size,
        hidden_dim=config.hidden_dim,
        num_heads=config.num_heads,
        q_rank=config.q_lora_rank,
        latent_dim=config.kv_lora_rank,
        nope_dim=config.nope_dim,
        rope_dim=config.rope_dim,
        value_dim=config.value_dim,
        num_experts=moe.num_experts,
        num_choices=moe.num_experts_per_token,
        expert_dim=moe.intermediate_dim,
        num_groups=moe.num_groups,
        num_kept=moe.num_groups_per_token,
        is_normalized=moe.normalize_weights,
        index_heads=index_heads,
        index_dim=index_dim,
        top_k=indexer.top_k if indexer else 0,
        page_tokens=PAGE_TOKENS,
        norm_eps=config.norm_eps,
        low_eps=config.lora_norm_eps,
        index_eps=INDEX_NORM_EPS,
        scale=attention_scale(config.nope_dim + config.rope_dim, config.rope),
        routed_scaling=moe.routed_scaling,
        index_scale=(index_heads * index_dim) ** -0.5 if indexer else 0.0,
    )


def _layer(layer: DecoderLayer) -> StepLayer | None:
    attention, mlp, indexer = layer.attention, layer.mlp, layer.attention.indexer
    shared = mlp.shared if isinstance(mlp, Moe) else mlp
    linears = {
        "down": attention.down,
        "q_up": attention.q_up,
        "output": attention.output,
        "gate_up": shared.gate_up,
        "mlp_down": shared.down,
    }
    tensors = {
        "input_norm": layer.input_norm.weight,
        "q_norm": attention.q_norm.weight,
        "kv_norm": attention.kv_norm.weight,
        "heads": attention.head_maps.weight_NRL,
        "mlp_norm": layer.mlp_norm.weight,
    }
    if indexer is not None:
        linears["index_queries"] = indexer.queries
        linears["index_keys"] = indexer.keys
        linears["index_weights"] = indexer.head_weights
        tensors["index_norm"] = indexer.key_norm_weight
        tensors["index_bias"] = indexer.key_norm_bias
    if isinstance(mlp, Moe):
        if not isinstance(mlp.experts, DenseExperts):
            return None
        tensors["router"], tensors["router_bias"] = mlp.router.weight_EH, mlp.router.bias_E
        tensors["experts_gate_up"] = mlp.experts.gate_up_EJH
        tensors["experts_down"] = mlp.experts.down_EHI
    for name, linear in linears.items():
        if not isinstance(linear, DenseLinear):
            return None
        tensors[name] = linear.weight
    return StepLayer(**tensors)
