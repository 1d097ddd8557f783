"""What of a GLM `config.json` makes its decoder."""

from __future__ import annotations

from tenantry_runtime.models.config import IndexerConfig, ModelConfig, RopeConfig
from tenantry_runtime.models.fields import Fields
from tenantry_runtime.models.moe_fields import moe_config

MODEL_TYPES = ("glm_moe_dsa", "glm4_moe_lite")


def describe(model_type: str, fields: Fields) -> ModelConfig:
    """Return the decoder that `fields` describes; raise CheckpointError if a key is unusable."""
    fields.require("hidden_act", "silu")
    fields.require("scoring_func", "sigmoid")
    fields.require("topk_method", "noaux_tc")
    fields.require("attention_bias", False)
    fields.require("rope_interleave", True)
    num_layers = fields.integer("num_hidden_layers")
    is_sparse = model_type == "glm_moe_dsa"
    return ModelConfig(
        family="glm",
        model_type=model_type,
        vocab_size=fields.integer("vocab_size"),
        hidden_dim=fields.integer("hidden_size"),
        num_layers=num_layers,
        num_mtp_layers=fields.integer("num_nextn_predict_layers", 0),
        mtp_has_embeddings=not is_sparse,
        num_heads=fields.integer("num_attention_heads"),
        q_lora_rank=fields.integer("q_lora_rank"),
        kv_lora_rank=fields.integer("kv_lora_rank"),
        nope_dim=fields.integer("qk_nope_head_dim"),
        rope_dim=fields.integer("qk_rope_head_dim"),
        value_dim=fields.integer("v_head_dim"),
        dense_intermediate_dim=fields.integer("intermediate_size"),
        is_dense_N=_dense_layers(fields, num_layers),
        moe=moe_config(fields),
        rope=_rope(fields),
        indexer=_indexer(fields, num_layers) if is_sparse else None,
        norm_eps=fields.number("rms_norm_eps"),
        lora_norm_eps=1e-6,
        context_tokens=fields.integer("max_position_embeddings"),
        tensor_prefix="",
        skipped_tensors=(),
    )


def _dense_layers(fields: Fields, num_layers: int) -> tuple[bool, ...]:
    if "mlp_layer_types" not in fields:
        num_dense = fields.integer("first_k_dense_replace", 1)
        return tuple(n < num_dense for n in range(num_layers))
    return _flags(fields, "mlp_layer_types", {"dense": True, "sparse": False}, num_layers)


def _rope(fields: Fields) -> RopeConfig:
    if "rope_parameters" not in fields:
        fields.require("rope_scaling", None)
        fields.require("partial_rotary_factor", 1.0)
        return RopeConfig(theta=fields.number("rope_theta"))
    parameters = fields.sub("rope_parameters")
    parameters.require("rope_type", "default")
    parameters.require("partial_rotary_factor", 1.0)
    return RopeConfig(theta=parameters.number("rope_theta"))


def _indexer(fields: Fields, num_layers: int) -> IndexerConfig:
    fields.require("indexer_rope_interleave", True)
    if "indexer_types" in fields:
        is_full = _flags(fields, "indexer_types", {"full": True, "shared": False}, num_layers)
    else:
        # GLM-5 and 5.1 name no sharing: every layer has its own
        fields.require("index_topk_pattern", None)
        frequency = fields.integer("index_topk_freq", 1)
        offset = fields.integer("index_skip_topk_offset", 0)
        is_full = tuple(max(n - offset + 1, 0) % frequency == 0 for n in range(num_layers))
    if not is_full[0]:
        raise fields.fail("indexer_types", "lets layer 0 share, which has no earlier choice")
    return IndexerConfig(
        num_heads=fields.integer("index_n_heads"),
        head_dim=fields.integer("index_head_dim"),
        top_k=fields.integer("index_topk"),
        is_full_N=is_full,
    )


def _flags(fields: Fields, key: str, words: dict[str, bool], num_layers: int) -> tuple[bool, ...]:
    values = fields.strings(key)
    if len(values) < num_layers or any(value not in words for value in values):
        raise fields.fail(key, f"must name one of {sorted(words)} for each of {num_layers} layers")
    return tuple(words[value] for value in values[:num_layers])
