"""What of a Kimi `config.json` makes its decoder."""

from __future__ import annotations

from tenantry_runtime.models.config import ModelConfig, RopeConfig, Yarn
from tenantry_runtime.models.fields import Fields
from tenantry_runtime.models.moe_fields import moe_config

MODEL_TYPES = ("kimi_k2", "deepseek_v3", "kimi_k25")

# K2-Instruct carries one stray inverse-frequency buffer per layer; K2.5 and K2.6 carry the vision tower
_STRAY = (r".*\.rotary_emb\.inv_freq",)
_VISION = (r"vision_tower\..*", r"mm_projector\..*")


def describe(model_type: str, fields: Fields) -> ModelConfig:
    """Return the decoder that `fields` describes; raise CheckpointError if a key is unusable."""
    is_multimodal = model_type == "kimi_k25"
    text = fields.sub("text_config") if is_multimodal else fields
    text.require("hidden_act", "silu")
    text.require("scoring_func", "sigmoid")
    text.require("topk_method", "noaux_tc")
    text.require("attention_bias", False)
    text.require("moe_layer_freq", 1)
    num_layers = text.integer("num_hidden_layers")
    num_dense = text.integer("first_k_dense_replace")
    return ModelConfig(
        family="kimi",
        model_type=model_type,
        vocab_size=text.integer("vocab_size"),
        hidden_dim=text.integer("hidden_size"),
        num_layers=num_layers,
        num_mtp_layers=0,
        mtp_has_embeddings=False,
        num_heads=text.integer("num_attention_heads"),
        q_lora_rank=text.integer("q_lora_rank"),
        kv_lora_rank=text.integer("kv_lora_rank"),
        nope_dim=text.integer("qk_nope_head_dim"),
        rope_dim=text.integer("qk_rope_head_dim"),
        value_dim=text.integer("v_head_dim"),
        dense_intermediate_dim=text.integer("intermediate_size"),
        is_dense_N=tuple(n < num_dense for n in range(num_layers)),
        moe=moe_config(text),
        rope=_rope(text),
        indexer=None,
        norm_eps=text.number("rms_norm_eps"),
        lora_norm_eps=1e-6,
        context_tokens=text.integer("max_position_embeddings"),
        tensor_prefix="language_model." if is_multimodal else "",
        skipped_tensors=_STRAY + (_VISION if is_multimodal else ()),
    )


def _rope(text: Fields) -> RopeConfig:
    # released files have rope_theta and rope_scaling; transformers >= 5 writes rope_parameters
    if "rope_parameters" in text:
        scaling = text.sub("rope_parameters")
        theta = scaling.number("rope_theta")
        scaling.require("rope_type", "yarn" if "factor" in scaling else "default")
    else:
        theta = text.number("rope_theta")
        if "rope_scaling" not in text:
            return RopeConfig(theta=theta)
        scaling = text.sub("rope_scaling")
        scaling.require("type", "yarn")
    if "factor" not in scaling:
        return RopeConfig(theta=theta)
    mscale_all_dim = scaling.number("mscale_all_dim")
    # any other pair would need a multiplier on cos and sin
    scaling.require("mscale", mscale_all_dim)
    yarn = Yarn(
        factor=scaling.number("factor"),
        beta_fast=scaling.number("beta_fast"),
        beta_slow=scaling.number("beta_slow"),
        mscale_all_dim=mscale_all_dim,
        original_context_tokens=scaling.integer("original_max_position_embeddings"),
    )
    return RopeConfig(theta=theta, yarn=yarn)
