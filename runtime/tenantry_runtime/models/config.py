"""A decoder's dimensions and switches, in one vocabulary for both families."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

Family: TypeAlias = Literal["kimi", "glm"]


@dataclass(frozen=True, slots=True)
class Shard:
    """Which part of every split matrix this process holds."""

    rank: int = 0
    size: int = 1

    def __post_init__(self) -> None:
        if not 0 <= self.rank < self.size:
            raise ValueError(f"rank {self.rank!r} is not in 0..{self.size - 1}")

    def span(self, total: int, what: str) -> slice:
        """Return this shard's part of `total` units of `what`; raise if they do not divide."""
        if total % self.size:
            raise ValueError(f"{total} {what} cannot be split over {self.size} shards")
        part = total // self.size
        return slice(self.rank * part, (self.rank + 1) * part)


@dataclass(frozen=True, slots=True, kw_only=True)
class Yarn:
    """YaRN in DeepSeek's form (`models/rope.py`)."""

    factor: float
    beta_fast: float
    beta_slow: float
    mscale_all_dim: float
    original_context_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RopeConfig:
    """Rotary embedding of queries and of the shared key, interleaved pairs."""

    theta: float
    yarn: Yarn | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MoeConfig:
    """Sigmoid router that chooses by biased scores and weighs by unbiased ones (noaux_tc)."""

    num_experts: int
    num_experts_per_token: int
    intermediate_dim: int
    """Of one routed expert."""
    num_shared_experts: int
    routed_scaling: float
    normalize_weights: bool = True
    num_groups: int = 1
    num_groups_per_token: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexerConfig:
    """DeepSeek sparse attention: which keys a query may attend to."""

    num_heads: int
    head_dim: int
    top_k: int
    is_full_N: tuple[bool, ...]
    """Per layer: True has an indexer of its own, False reuses the last full layer's choice."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelConfig:
    """One text decoder."""

    family: Family
    model_type: str
    vocab_size: int
    hidden_dim: int
    num_layers: int
    num_mtp_layers: int
    mtp_has_embeddings: bool
    """GLM-4.7-Flash repeats embedding and head in its MTP layer; GLM-5.x does not."""
    num_heads: int
    q_lora_rank: int
    kv_lora_rank: int
    nope_dim: int
    rope_dim: int
    value_dim: int
    dense_intermediate_dim: int
    is_dense_N: tuple[bool, ...]
    """Per layer: True has one MLP, False has experts."""
    moe: MoeConfig
    rope: RopeConfig
    indexer: IndexerConfig | None
    norm_eps: float
    lora_norm_eps: float
    """Of the norms inside attention: transformers builds them with its default, whatever the config says."""
    context_tokens: int
    tensor_prefix: str
    """What stands before `model.` and `lm_head.` in the checkpoint."""
    skipped_tensors: tuple[str, ...]
    """Patterns of tensors that a released checkpoint carries and this decoder does not read."""

    @property
    def cache_dim(self) -> int:
        """Values per token and layer: latent, then rotated shared key."""
        return self.kv_lora_rank + self.rope_dim

    @property
    def index_layers(self) -> tuple[int, ...]:
        """Layers with an index-key cache."""
        if self.indexer is None:
            return ()
        return tuple(n for n, full in enumerate(self.indexer.is_full_N) if full)
