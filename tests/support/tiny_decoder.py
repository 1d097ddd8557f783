"""Decoders of both families too small to be slow anywhere, with random weights that no file has."""

from __future__ import annotations

from collections.abc import Sequence
from zlib import crc32

import torch

from tenantry_runtime.models.config import (
    Family,
    IndexerConfig,
    ModelConfig,
    MoeConfig,
    RopeConfig,
    Shard,
)
from tenantry_runtime.models.decoder import Decoder
from tenantry_runtime.models.linear import (
    DenseExperts,
    DenseLinear,
    Experts,
    HeadMaps,
    Linear,
    Part,
    Split,
)

VOCABULARY = 48


def a_config(family: Family) -> ModelConfig:
    """Return a model with a dense layer and one of experts; GLM's shares an indexer's choice."""
    indexer = None
    if family == "glm":
        indexer = IndexerConfig(num_heads=4, head_dim=32, top_k=48, is_full_N=(True, False))
    return ModelConfig(
        family=family,
        model_type=family,
        vocab_size=VOCABULARY,
        hidden_dim=32,
        num_layers=2,
        num_mtp_layers=0,
        mtp_has_embeddings=False,
        num_heads=2,
        q_lora_rank=24,
        kv_lora_rank=32,
        nope_dim=16,
        rope_dim=16,
        value_dim=16,
        dense_intermediate_dim=48,
        is_dense_N=(True, False),
        moe=MoeConfig(
            num_experts=4,
            num_experts_per_token=2,
            intermediate_dim=16,
            num_shared_experts=1,
            routed_scaling=1.5,
        ),
        rope=RopeConfig(theta=10_000.0),
        indexer=indexer,
        norm_eps=1e-5,
        lora_norm_eps=1e-6,
        context_tokens=256,
        tensor_prefix="",
        skipped_tensors=(),
    )


class RandomSource:
    """Weights by their names, the same for every decoder, in BF16."""

    def __init__(self, device: str, *, deterministic: bool) -> None:
        self._device = device
        self._deterministic = deterministic

    @property
    def shard(self) -> Shard:
        return Shard()

    def tensor(
        self, name: str, shape: tuple[int, ...], *, dtype: torch.dtype | None = None
    ) -> torch.Tensor:
        generator = torch.Generator().manual_seed(crc32(name.encode()))
        noise = torch.randn(shape, generator=generator)
        if name.endswith("norm.weight") or "layernorm" in name:
            noise = 1 + 0.2 * noise
        elif len(shape) == 1:
            noise = 0.2 * noise
        elif "embed" not in name:
            noise = noise * shape[-1] ** -0.5
        return noise.to(self._device, dtype or torch.bfloat16)

    def linear(self, parts: Sequence[Part], in_dim: int, split: Split | None = None) -> Linear:
        rows = torch.cat([self.tensor(part.name, (part.out_dim, in_dim)) for part in parts])
        return DenseLinear(rows, deterministic=self._deterministic)

    def heads(
        self, name: str, num_heads: int, key_dim: int, value_dim: int, in_dim: int
    ) -> HeadMaps:
        weight = self.tensor(name, (num_heads, key_dim + value_dim, in_dim))
        return HeadMaps(weight, key_dim, deterministic=self._deterministic)

    def experts(
        self, prefix: str, num_experts: int, hidden_dim: int, intermediate_dim: int
    ) -> Experts:
        return DenseExperts(
            self.tensor(f"{prefix}.gate_up", (num_experts, 2 * intermediate_dim, hidden_dim)),
            self.tensor(f"{prefix}.down", (num_experts, hidden_dim, intermediate_dim)),
            deterministic=self._deterministic,
        )


def a_decoder(family: Family, *, device: str = "cpu", deterministic: bool = False) -> Decoder:
    source = RandomSource(device, deterministic=deterministic)
    return Decoder(a_config(family), source, deterministic=deterministic)
