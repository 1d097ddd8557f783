"""A random DeepSeek-V3-type checkpoint of 58 million weights, with the latent dimensions of the real ones.

Two directories share one `model.safetensors`:

| directory | `model_type` | vocabulary | for |
|---|---|---|---|
| `ours` | `kimi_k2` | tiktoken.model and a chat template | this runtime |
| `released` | `deepseek_v3` | tokenizer.json, of the same tokens under the same ids | the others |

Random weights end no answer by themselves, and no token that they choose lacks its own text: the head
has rows of zeros for control tokens and for pieces of a character, whose logits of exactly 0 are never
the largest of thousands.
"""

from __future__ import annotations

import json
import os
import shutil
import sysconfig
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from tenantry_recipes.bench.random_weights import random_weights
from tenantry_recipes.nano.models import checkpoint_directory
from tenantry_recipes.nano.vocabulary import build_kimi
from tenantry_runtime.text.glm_tokenizer import byte_letters
from tenantry_runtime.text.kimi_tokenizer import KimiTokenizer

VOCAB_SIZE = 8192
NUM_CORPUS_FILES = 120
"""Of Python's own library, which every machine has: about 3 MB of text."""

_LETTERS: Mapping[int, str] = byte_letters()

DIMENSIONS: Mapping[str, Any] = {
    "attention_bias": False,
    "first_k_dense_replace": 1,
    "hidden_act": "silu",
    "hidden_size": 512,
    "intermediate_size": 1408,
    "kv_lora_rank": 512,
    "max_position_embeddings": 4096,
    "moe_intermediate_size": 256,
    "moe_layer_freq": 1,
    "n_group": 4,
    "n_routed_experts": 16,
    "n_shared_experts": 1,
    "norm_topk_prob": True,
    "num_attention_heads": 8,
    "num_experts_per_tok": 4,
    "num_hidden_layers": 6,
    "num_key_value_heads": 8,
    "num_nextn_predict_layers": 0,
    "q_lora_rank": 256,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "rms_norm_eps": 1e-6,
    "rope_scaling": None,
    "rope_theta": 10000.0,
    "routed_scaling_factor": 2.5,
    "scoring_func": "sigmoid",
    "tie_word_embeddings": False,
    "topk_group": 2,
    "topk_method": "noaux_tc",
    "v_head_dim": 128,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoints:
    """The two directories."""

    ours: Path
    released: Path


def ensure_checkpoints(work: Path) -> Checkpoints:
    """Write both directories unless they are there."""
    checkpoints = Checkpoints(ours=work / "ours", released=work / "released")
    # written last
    if not (checkpoints.released / "tokenizer.json").exists():
        shutil.rmtree(work, ignore_errors=True)
        _write_ours(checkpoints.ours)
        _write_released(checkpoints)
    return checkpoints


def merges_of(ranks: Mapping[bytes, int]) -> list[tuple[bytes, bytes]]:
    """Return the pairs whose merges make the tokens of a byte-pair vocabulary, in rank order."""
    merges: list[tuple[bytes, bytes]] = []
    for token in sorted(ranks, key=ranks.__getitem__):
        if len(token) > 1:
            left, right = _merged([token[at : at + 1] for at in range(len(token))], ranks)
            merges.append((left, right))
    return merges


def _merged(parts: list[bytes], ranks: Mapping[bytes, int]) -> list[bytes]:
    """Merge the pair of lowest rank, again and again, until two parts are left."""
    while len(parts) > 2:
        pairs = [first + second for first, second in pairwise(parts)]
        known = [at for at, pair in enumerate(pairs) if pair in ranks]
        at = min(known, key=lambda at: ranks[pairs[at]])
        parts[at : at + 2] = [pairs[at]]
    return parts


def _write_ours(directory: Path) -> None:
    directory.mkdir(parents=True)
    ids = build_kimi(_corpus(), directory, VOCAB_SIZE)
    template = "chat_template.jinja"
    shutil.copy(checkpoint_directory("kimi-k2.6-nano") / template, directory / template)
    _write_config(directory, "kimi_k2", ids)
    tensors = random_weights(directory)
    mute(tensors["lm_head.weight"], KimiTokenizer.load(directory))
    save_file(tensors, directory / "model.safetensors", metadata={"format": "pt"})


def _write_released(checkpoints: Checkpoints) -> None:
    ours, released = checkpoints.ours, checkpoints.released
    released.mkdir()
    os.link(ours / "model.safetensors", released / "model.safetensors")
    shutil.copy(ours / "generation_config.json", released / "generation_config.json")
    config = json.loads((ours / "config.json").read_text())
    _write_config(released, "deepseek_v3", config)
    names = json.loads((ours / "tokenizer_config.json").read_text())
    kept = {key: names[key] for key in ("bos_token", "eos_token", "pad_token", "unk_token")}
    _write_json(
        released / "tokenizer_config.json", {"tokenizer_class": "PreTrainedTokenizerFast", **kept}
    )
    tokenizer = byte_level(KimiTokenizer.load(ours), config["vocab_size"])
    (released / "tokenizer.json").write_text(tokenizer.to_str())


def _write_config(directory: Path, model_type: str, fields: Mapping[str, Any]) -> None:
    named = {
        "architectures": ["DeepseekV3ForCausalLM"],
        "dtype": "bfloat16",
        "model_type": model_type,
    }
    _write_json(directory / "config.json", {**DIMENSIONS, **fields, **named})


def _write_json(path: Path, value: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(value, indent=2) + "\n")


def _corpus() -> Iterator[str]:
    files = sorted(Path(sysconfig.get_path("stdlib")).glob("*.py"))
    for file in files[:NUM_CORPUS_FILES]:
        yield file.read_text(encoding="utf-8", errors="replace")


def mute(head_VH: torch.Tensor, tokenizer: KimiTokenizer) -> None:
    """Zero the rows of tokens without a text of their own."""
    for token_id in range(head_VH.shape[0]):
        text = tokenizer.token_bytes(token_id)
        if not text or not text.isascii():
            head_VH[token_id] = 0


def byte_level(tokenizer: KimiTokenizer, vocab_size: int) -> Tokenizer:
    """Return the same vocabulary as the tokenizers library has it."""
    first_control = min(tokenizer.controls.names)
    ranks = {tokenizer.token_bytes(token_id): token_id for token_id in range(first_control)}
    merges = [(_letters(left), _letters(right)) for left, right in merges_of(ranks)]
    vocab = {_letters(token): token_id for token, token_id in ranks.items()}
    full = Tokenizer(models.BPE(vocab=vocab, merges=merges))
    full.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    full.decoder = decoders.ByteLevel()
    # added tokens get the next free ids: those that Kimi leaves unnamed need names here
    full.add_special_tokens(
        [
            AddedToken(
                tokenizer.controls.names.get(token_id, f"<|reserved_{token_id}|>"),
                normalized=False,
            )
            for token_id in range(first_control, vocab_size)
        ]
    )
    return full


def _letters(token: bytes) -> str:
    return "".join(_LETTERS[byte] for byte in token)
