"""The released models, as their config.json describe them: what can be planned for without files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from .config import IndexerConfig, ModelConfig, MoeConfig, RopeConfig, Yarn
from .kimi.vision import VisionTower
from .sizes import WeightFormat


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleasedModel:
    """A model, and the form in which its weights were published."""

    config: ModelConfig
    weights: WeightFormat
    vision: VisionTower | None = None


_KIMI_K2_6 = ModelConfig(
    family="kimi",
    model_type="kimi_k25",
    vocab_size=163_840,
    hidden_dim=7168,
    num_layers=61,
    num_mtp_layers=0,
    mtp_has_embeddings=False,
    num_heads=64,
    q_lora_rank=1536,
    kv_lora_rank=512,
    nope_dim=128,
    rope_dim=64,
    value_dim=128,
    dense_intermediate_dim=18_432,
    is_dense_N=tuple(n < 1 for n in range(61)),
    moe=MoeConfig(
        num_experts=384,
        num_experts_per_token=8,
        intermediate_dim=2048,
        num_shared_experts=1,
        routed_scaling=2.827,
    ),
    rope=RopeConfig(
        theta=50_000.0,
        yarn=Yarn(
            factor=64.0,
            beta_fast=32.0,
            beta_slow=1.0,
            mscale_all_dim=1.0,
            original_context_tokens=4096,
        ),
    ),
    indexer=None,
    norm_eps=1e-5,
    lora_norm_eps=1e-6,
    context_tokens=262_144,
    tensor_prefix="language_model.",
    skipped_tensors=(r".*\.rotary_emb\.inv_freq", r"vision_tower\..*", r"mm_projector\..*"),
)

_GLM_5_2 = ModelConfig(
    family="glm",
    model_type="glm_moe_dsa",
    vocab_size=154_880,
    hidden_dim=6144,
    num_layers=78,
    num_mtp_layers=1,
    mtp_has_embeddings=False,
    num_heads=64,
    q_lora_rank=2048,
    kv_lora_rank=512,
    nope_dim=192,
    rope_dim=64,
    value_dim=256,
    dense_intermediate_dim=12_288,
    is_dense_N=tuple(n < 3 for n in range(78)),
    moe=MoeConfig(
        num_experts=256,
        num_experts_per_token=8,
        intermediate_dim=2048,
        num_shared_experts=1,
        routed_scaling=2.5,
    ),
    rope=RopeConfig(theta=8_000_000.0),
    indexer=IndexerConfig(
        num_heads=32,
        head_dim=128,
        top_k=2048,
        is_full_N=tuple(n < 2 or n % 4 == 2 for n in range(78)),
    ),
    norm_eps=1e-5,
    lora_norm_eps=1e-6,
    context_tokens=1_048_576,
    tensor_prefix="",
    skipped_tensors=(),
)

RELEASED: Mapping[str, ReleasedModel] = {
    "kimi-k2.6": ReleasedModel(
        config=_KIMI_K2_6,
        weights=WeightFormat(experts="int4"),
        vision=VisionTower(
            hidden_dim=1152,
            num_layers=27,
            intermediate_dim=4304,
            patch_size=14,
            grid_height=64,
            grid_width=64,
            text_dim=7168,
        ),
    ),
    "glm-5.2": ReleasedModel(config=_GLM_5_2, weights=WeightFormat(experts="fp8", rest="fp8")),
}
