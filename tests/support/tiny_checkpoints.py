"""Tiny random checkpoints in the released layouts, written by transformers' own classes.

Every dimension differs from every other where the architecture allows it, weights are spread wide
and biases are not zero, so that each classic mistake (rope layout, YaRN's variants, index sharing,
router bias, …) changes the logits.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

YARN = {
    "rope_type": "yarn",
    "factor": 64.0,
    "beta_fast": 32.0,
    "beta_slow": 1.0,
    "mscale": 1.0,
    "mscale_all_dim": 1.0,
    "original_max_position_embeddings": 4096,
    "rope_theta": 50000.0,
}
COMMON: dict[str, Any] = {
    "vocab_size": 320,
    "hidden_size": 64,
    "intermediate_size": 128,
    "moe_intermediate_size": 32,
    "num_attention_heads": 8,
    "num_key_value_heads": 8,
    "n_shared_experts": 1,
    "n_routed_experts": 8,
    "num_experts_per_tok": 2,
    "kv_lora_rank": 40,
    "q_lora_rank": 48,
    "qk_rope_head_dim": 16,
    "n_group": 1,
    "topk_group": 1,
    "norm_topk_prob": True,
    "rms_norm_eps": 1e-5,
    "attention_bias": False,
    "tie_word_embeddings": False,
}
KIMI: dict[str, Any] = COMMON | {
    "num_hidden_layers": 3,
    "first_k_dense_replace": 1,
    "qk_nope_head_dim": 32,
    "v_head_dim": 24,
    "routed_scaling_factor": 2.827,
    "max_position_embeddings": 262144,
    "rope_parameters": YARN,
    "rope_interleave": True,
}
GLM: dict[str, Any] = COMMON | {
    "qk_nope_head_dim": 48,
    "v_head_dim": 64,
    "max_position_embeddings": 202752,
    "rope_parameters": {"rope_type": "default", "rope_theta": 1000000.0},
}
GLM5: dict[str, Any] = GLM | {
    "num_hidden_layers": 8,
    "first_k_dense_replace": 3,
    "routed_scaling_factor": 2.5,
    # a key scores exactly 0 when all heads' relus are 0: with 16 heads no two keys tie there
    "index_n_heads": 16,
    "index_head_dim": 32,
    "index_topk": 8,
}
ROUTER = {"scoring_func": "sigmoid", "topk_method": "noaux_tc"}


PROMPT_TOKENS = (150, 97, 70)
"""Lengths of the prompts that transformers is asked: three pages, and two that end inside one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What transformers says to one prompt, in float32."""

    token_ids: torch.Tensor
    """int64 [T]."""
    logits: torch.Tensor
    """float32 [T, V]."""
    greedy: list[int]
    """The tokens that it generates after `token_ids`, greedily."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TinyCheckpoint:
    """One checkpoint and transformers' answers to it."""

    directory: Path
    answers: tuple[Answer, ...]


def _kimi_k2(transformers: Any) -> Any:
    return transformers.DeepseekV3ForCausalLM(transformers.DeepseekV3Config(**KIMI))


def _kimi_k2_thinking(transformers: Any) -> Any:
    # the other YaRN: one beta for both ends
    yarn = YARN | {"beta_fast": 1.0, "factor": 32.0}
    config = KIMI | {"rope_parameters": yarn}
    return transformers.DeepseekV3ForCausalLM(transformers.DeepseekV3Config(**config))


def _kimi_grouped(transformers: Any) -> Any:
    config = KIMI | {"n_group": 4, "topk_group": 2}
    return transformers.DeepseekV3ForCausalLM(transformers.DeepseekV3Config(**config))


def _kimi_k25(transformers: Any) -> Any:
    vision = {
        "patch_size": 14,
        "pos_emb_height": 8,
        "pos_emb_width": 8,
        "pos_emb_time": 4,
        "num_attention_heads": 4,
        "num_hidden_layers": 1,
        "hidden_size": 64,
        "intermediate_size": 96,
        "merge_kernel_size": [2, 2],
    }
    config = transformers.Kimi_K25Config(
        text_config={"model_type": "deepseek_v3", **KIMI},
        vision_config=vision,
        projection_hidden_size=64,
        # past the vocabulary: transformers treats these as pictures, wherever a text has them
        image_token_id=1002,
        video_token_id=1003,
        vision_start_token_id=1000,
        vision_end_token_id=1001,
        tie_word_embeddings=False,
    )
    return transformers.Kimi_K25ForConditionalGeneration(config)


def _glm5(transformers: Any) -> Any:
    config = transformers.GlmMoeDsaConfig(**GLM5, indexer_types=["full"] * 8)
    return transformers.GlmMoeDsaForCausalLM(config)


def _glm52(transformers: Any) -> Any:
    values = GLM5 | {"rope_parameters": {"rope_type": "default", "rope_theta": 8000000.0}}
    config = transformers.GlmMoeDsaConfig(**values, index_topk_freq=4, index_skip_topk_offset=3)
    return transformers.GlmMoeDsaForCausalLM(config)


def _glm5_wide(transformers: Any) -> Any:
    # FP8 blocks are 128 wide: hidden 192 is one and a half, kv_a has 144 rows, and kv_b's 224 rows
    # per head let blocks straddle heads
    values = GLM5 | {
        "num_hidden_layers": 3,
        "first_k_dense_replace": 1,
        "hidden_size": 192,
        "intermediate_size": 320,
        "moe_intermediate_size": 160,
        "kv_lora_rank": 128,
        "q_lora_rank": 136,
        "qk_nope_head_dim": 96,
        "v_head_dim": 128,
    }
    config = transformers.GlmMoeDsaConfig(**values, indexer_types=["full"] * 3)
    return transformers.GlmMoeDsaForCausalLM(config)


def _glm47_flash(transformers: Any) -> Any:
    values = GLM | {
        "num_hidden_layers": 3,
        "moe_intermediate_size": 64,
        "num_experts_per_tok": 4,
        "routed_scaling_factor": 1.8,
    }
    return transformers.Glm4MoeLiteForCausalLM(transformers.Glm4MoeLiteConfig(**values))


BUILDERS: dict[str, Callable[[Any], Any]] = {
    "kimi_k2": _kimi_k2,
    "kimi_k2_thinking": _kimi_k2_thinking,
    "kimi_grouped": _kimi_grouped,
    "kimi_k25": _kimi_k25,
    "glm5": _glm5,
    "glm5_wide": _glm5_wide,
    "glm52": _glm52,
    "glm47_flash": _glm47_flash,
}


# searched so that no chosen key or expert is closer than 7e-5 to the best one left out: rounding,
# which differs between implementations and machines, then changes no choice
PROMPT_SEEDS = {
    "kimi_k2": 110,
    "kimi_k2_thinking": 2040,
    "kimi_grouped": 2220,
    "kimi_k25": 1890,
    "glm5": 180,
    "glm5_wide": 650,
    "glm52": 2000,
    "glm47_flash": 2490,
}


def build(name: str, directory: Path, *, num_greedy: int = 8) -> TinyCheckpoint:
    """Write checkpoint `name` and ask transformers about it."""
    import transformers

    model = BUILDERS[name](transformers).eval()
    _spread_weights(model, seed=sum(map(ord, name)))
    model = model.to(torch.bfloat16)
    for buffer_name, buffer in model.named_buffers():
        if buffer_name.endswith("e_score_correction_bias"):
            buffer.data = buffer.data.float()
    model.save_pretrained(directory)
    _restore_released_names(directory / "model.safetensors")
    _restore_released_config(directory / "config.json", name)
    reference = type(model).from_pretrained(
        directory, dtype=torch.float32, attn_implementation="eager"
    )
    return TinyCheckpoint(
        directory=directory,
        answers=tuple(
            ask(reference.eval(), prompt(length, seed=PROMPT_SEEDS[name] + n), num_greedy)
            for n, length in enumerate(PROMPT_TOKENS)
        ),
    )


def prompt(length: int, seed: int) -> torch.Tensor:
    """Return random token ids int64 [length]."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(COMMON["vocab_size"], (length,), generator=generator)


@torch.no_grad()
def ask(reference: Any, token_ids: torch.Tensor, num_greedy: int) -> Answer:
    """Return what a transformers model says to `token_ids`."""
    row = token_ids[None]
    generated = reference.generate(
        input_ids=row,
        attention_mask=torch.ones_like(row),
        max_new_tokens=num_greedy,
        do_sample=False,
        eos_token_id=None,
        pad_token_id=0,
    )
    return Answer(
        token_ids=token_ids,
        logits=reference(input_ids=row, use_cache=False).logits[0],
        greedy=generated[0, token_ids.shape[0] :].tolist(),
    )


@torch.no_grad()
def _spread_weights(model: torch.nn.Module, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
        if name.endswith("inv_freq") or "time_position" in name:
            continue
        noise = torch.randn(tensor.shape, generator=generator)
        if name.endswith("e_score_correction_bias"):
            value = 0.2 * noise
        elif "norm" in name and name.endswith("weight"):
            value = 1 + 0.2 * noise
        elif name.endswith("bias"):
            value = 0.1 * noise
        elif "embed_tokens" in name or "position_embeddings" in name:
            value = 0.7 * noise
        else:
            value = noise / math.sqrt(tensor.shape[-1])
        tensor.copy_(value.to(tensor.dtype))


def _restore_released_names(file: Path) -> None:
    """Undo what transformers 5.24 writes differently from the released Kimi K2.5 files."""
    renames = (
        (r"^language_model\.model\.blocks\.", "language_model.model.layers."),
        (r"^model\.mm_projector\.", "mm_projector."),
        (r"^vision_tower\.encoder\.patch_embed\.", "vision_tower.patch_embed."),
    )
    tensors = {}
    for name, tensor in load_file(file).items():
        for pattern, replacement in renames:
            name = re.sub(pattern, replacement, name)
        tensors[name] = tensor
    save_file(tensors, file, metadata={"format": "pt"})


def _restore_released_config(file: Path, name: str) -> None:
    """Add the keys that released files have and transformers does not write."""
    config = json.loads(file.read_text())
    text = config.get("text_config", config)
    text.update(ROUTER)
    if name.startswith("glm"):
        # no MTP layer in what transformers writes
        text.update(rope_interleave=True, num_nextn_predict_layers=0)
    file.write_text(json.dumps(config))
