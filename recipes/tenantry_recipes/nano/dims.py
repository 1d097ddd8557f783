"""Dimensions of the nano models, as the `config.json` of the released layouts.

Both keep the real mechanisms and the real ratios where they matter: latent attention with a shared
rotated key, a sigmoid router with bias and one shared expert, YaRN for Kimi, sparse attention with
index sharing and an MTP layer for GLM. FP8 blocks are partial on purpose: 192 columns are one and
a half blocks, kv_a has 96 rows, and kv_b's 96 rows per head make blocks straddle heads.
"""

from __future__ import annotations

from typing import Any

CONTEXT_TOKENS = 4096

_COMMON: dict[str, Any] = {
    "attention_bias": False,
    "first_k_dense_replace": 1,
    "hidden_act": "silu",
    "hidden_size": 192,
    "intermediate_size": 512,
    "kv_lora_rank": 64,
    "max_position_embeddings": CONTEXT_TOKENS,
    "moe_intermediate_size": 96,
    "moe_layer_freq": 1,
    "n_group": 1,
    "n_routed_experts": 8,
    "n_shared_experts": 1,
    "norm_topk_prob": True,
    "num_attention_heads": 4,
    "num_experts_per_tok": 2,
    "num_hidden_layers": 6,
    "num_key_value_heads": 4,
    "q_lora_rank": 96,
    "qk_nope_head_dim": 32,
    "qk_rope_head_dim": 32,
    "rms_norm_eps": 1e-5,
    "scoring_func": "sigmoid",
    "tie_word_embeddings": False,
    "topk_group": 1,
    "topk_method": "noaux_tc",
    "v_head_dim": 64,
}

_INT4_EXPERTS: dict[str, Any] = {
    "quant_method": "compressed-tensors",
    "format": "pack-quantized",
    "quantization_status": "compressed",
    "kv_cache_scheme": None,
    "ignore": [
        "lm_head",
        "re:.*self_attn.*",
        "re:.*shared_experts.*",
        "re:.*mlp\\.(gate|up|gate_up|down)_proj.*",
    ],
    "config_groups": {
        "group_0": {
            "targets": ["Linear"],
            "input_activations": None,
            "output_activations": None,
            "weights": {
                "num_bits": 4,
                "type": "int",
                "symmetric": True,
                "strategy": "group",
                "group_size": 32,
                "dynamic": False,
                "observer": "minmax",
                "observer_kwargs": {},
                "actorder": None,
                "block_structure": None,
            },
        }
    },
}

_KIMI_TEXT: dict[str, Any] = {
    **_COMMON,
    "architectures": ["DeepseekV3ForCausalLM"],
    "model_type": "kimi_k2",
    "num_nextn_predict_layers": 0,
    "quantization_config": _INT4_EXPERTS,
    # a context four times the original one puts some frequencies on either side of the ramp
    "rope_scaling": {
        "type": "yarn",
        "factor": 4.0,
        "beta_fast": 32.0,
        "beta_slow": 1.0,
        "mscale": 1.0,
        "mscale_all_dim": 1.0,
        "original_max_position_embeddings": CONTEXT_TOKENS // 4,
    },
    "rope_theta": 50000.0,
    "routed_scaling_factor": 2.827,
}

_GLM: dict[str, Any] = {
    **_COMMON,
    "architectures": ["GlmMoeDsaForCausalLM"],
    "model_type": "glm_moe_dsa",
    "index_head_dim": 48,
    "index_n_heads": 16,
    "index_share_for_mtp_iteration": True,
    "index_skip_topk_offset": 3,
    "index_topk": 256,
    # the released 4 would leave six layers without a choice made late, where keys are recognized
    "index_topk_freq": 3,
    "index_topk_pattern": None,
    "indexer_rope_interleave": True,
    "indexer_types": ["full", "full", "full", "shared", "shared", "full"],
    "mlp_layer_types": ["dense", *["sparse"] * 5],
    "moe_router_dtype": "float32",
    "num_nextn_predict_layers": 1,
    "quantization_config": {
        "quant_method": "fp8",
        "fmt": "e4m3",
        "activation_scheme": "dynamic",
        "weight_block_size": [128, 128],
    },
    "rope_interleave": True,
    "rope_parameters": {"rope_theta": 100000.0, "rope_type": "default"},
    "routed_scaling_factor": 2.5,
}


def kimi_config(vocabulary: dict[str, Any]) -> dict[str, Any]:
    """Return config.json of kimi-k2.6-nano; `vocabulary` has vocab_size and the token ids."""
    text = {**_KIMI_TEXT, **vocabulary}
    return {
        "architectures": ["KimiK25ForConditionalGeneration"],
        "model_type": "kimi_k25",
        "dtype": "bfloat16",
        "tie_word_embeddings": False,
        **{key: vocabulary[key] for key in vocabulary if key.endswith("token_id")},
        "text_config": text,
    }


def glm_config(vocabulary: dict[str, Any]) -> dict[str, Any]:
    """Return config.json of glm-5.2-nano; `vocabulary` has vocab_size and the token ids."""
    return {**_GLM, "dtype": "bfloat16", **vocabulary}
