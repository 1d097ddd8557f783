"""Bytes of a model's weights by format, whole and per GPU, from its configuration alone.

| part | as `bf16` | as `fp8` | as `int4` | GPUs hold |
|---|---|---|---|---|
| routed experts | BF16 | blocks of 128x128 | groups of 32 | a part of each expert |
| q_b, kv_b, o, shared experts, dense MLPs | BF16 | blocks | - | a part |
| q_a, kv_a, the indexer's wq_b and wk | BF16 | blocks | - | all of it |
| embedding, head | BF16 | BF16 | - | a part of the vocabulary |
| router, eh_proj, weights_proj, norms | BF16, router's bias float32 | = | - | all of it |

These are the bytes of tensors: a file adds its header, and 8 or 16 bytes of shape per INT4 matrix.
Layouts: `models/quantize.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from tenantry_runtime.errors import ConfigurationError

from .config import ModelConfig, MoeConfig
from .quantize import FP8_BLOCK, INT4_GROUP

ExpertFormat: TypeAlias = Literal["bf16", "fp8", "int4"]
RestFormat: TypeAlias = Literal["bf16", "fp8"]

_Part: TypeAlias = Literal["experts", "rest", "unquantized"]
_Split: TypeAlias = Literal["rows", "columns"] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightFormat:
    """How matrices are stored: the routed experts', and those of the rest that can be quantized."""

    experts: ExpertFormat
    rest: RestFormat = "bf16"


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightBytes:
    """Of one GPU, or of the whole model."""

    experts: int
    """Routed ones."""
    rest: int

    @property
    def total(self) -> int:
        return self.experts + self.rest


@dataclass(frozen=True, slots=True)
class _Matrices:
    count: int
    out_dim: int
    in_dim: int
    part: _Part
    split: _Split = None

    def share(self, num_gpus: int) -> _Matrices:
        if self.split == "rows":
            return replace(self, out_dim=self.out_dim // num_gpus)
        if self.split == "columns":
            return replace(self, in_dim=self.in_dim // num_gpus)
        return self


def weight_bytes(
    config: ModelConfig,
    weights: WeightFormat,
    *,
    num_gpus: int = 1,
    splits_vocabulary: bool = True,
) -> WeightBytes:
    """Return what one of `num_gpus` holds, MTP layers included; raise ConfigurationError if they do not divide.

    `splits_vocabulary=False`: every GPU holds the whole embedding and head.
    """
    _require_divisible(config, num_gpus, splits_vocabulary=splits_vocabulary)
    formats: Mapping[_Part, str] = {
        "experts": weights.experts,
        "rest": weights.rest,
        "unquantized": "bf16",
    }
    total = {"experts": 0, "rest": 0}
    for group in _matrices(config, splits_vocabulary=splits_vocabulary):
        mine = group.share(num_gpus)
        size = _MATRIX_BYTES[formats[group.part]](mine.out_dim, mine.in_dim)
        total["experts" if group.part == "experts" else "rest"] += group.count * size
    rest = total["rest"] + _vector_bytes(config)
    return WeightBytes(experts=total["experts"], rest=rest)


def _matrices(config: ModelConfig, *, splits_vocabulary: bool) -> Iterator[_Matrices]:
    hidden, num_mtp = config.hidden_dim, config.num_mtp_layers
    num_own_vocabularies = 1 + (num_mtp if config.mtp_has_embeddings else 0)
    split: _Split = "rows" if splits_vocabulary else None
    yield _Matrices(2 * num_own_vocabularies, config.vocab_size, hidden, "unquantized", split)
    yield _Matrices(num_mtp, hidden, 2 * hidden, "unquantized")
    yield from _attention(config)
    yield from _indexer(config)
    num_dense = config.is_dense_N.count(True)
    yield from _mlp(num_dense, hidden, config.dense_intermediate_dim, "rest")
    yield from _moe(_num_moe_layers(config), hidden, config.moe)


def _attention(config: ModelConfig) -> Iterator[_Matrices]:
    count, heads, hidden = _num_all_layers(config), config.num_heads, config.hidden_dim
    query_dim, map_dim = config.nope_dim + config.rope_dim, config.nope_dim + config.value_dim
    yield _Matrices(count, config.q_lora_rank, hidden, "rest")
    yield _Matrices(count, config.cache_dim, hidden, "rest")
    yield _Matrices(count, heads * query_dim, config.q_lora_rank, "rest", "rows")
    yield _Matrices(count, heads * map_dim, config.kv_lora_rank, "rest", "rows")
    yield _Matrices(count, hidden, heads * config.value_dim, "rest", "columns")


def _indexer(config: ModelConfig) -> Iterator[_Matrices]:
    indexer = config.indexer
    if indexer is None:
        return
    count = _num_indexers(config)
    yield _Matrices(count, indexer.num_heads * indexer.head_dim, config.q_lora_rank, "rest")
    yield _Matrices(count, indexer.head_dim, config.hidden_dim, "rest")
    yield _Matrices(count, indexer.num_heads, config.hidden_dim, "unquantized")


def _moe(num_layers: int, hidden_dim: int, moe: MoeConfig) -> Iterator[_Matrices]:
    shared_dim = moe.intermediate_dim * moe.num_shared_experts
    yield _Matrices(num_layers, moe.num_experts, hidden_dim, "unquantized")
    yield from _mlp(num_layers * moe.num_experts, hidden_dim, moe.intermediate_dim, "experts")
    yield from _mlp(num_layers, hidden_dim, shared_dim, "rest")


def _mlp(count: int, hidden_dim: int, intermediate_dim: int, part: _Part) -> Iterator[_Matrices]:
    yield _Matrices(2 * count, intermediate_dim, hidden_dim, part, "rows")
    yield _Matrices(count, hidden_dim, intermediate_dim, part, "columns")


def _vector_bytes(config: ModelConfig) -> int:
    num_norm_values = (
        _num_all_layers(config) * (2 * config.hidden_dim + config.q_lora_rank + config.kv_lora_rank)
        + (1 + 3 * config.num_mtp_layers) * config.hidden_dim
    )
    if config.indexer is not None:
        num_norm_values += _num_indexers(config) * 2 * config.indexer.head_dim
    return 2 * num_norm_values + 4 * _num_moe_layers(config) * config.moe.num_experts


def _num_all_layers(config: ModelConfig) -> int:
    return config.num_layers + config.num_mtp_layers


def _num_moe_layers(config: ModelConfig) -> int:
    return config.is_dense_N.count(False) + config.num_mtp_layers


def _num_indexers(config: ModelConfig) -> int:
    # an MTP layer has one of its own, whichever layers share
    return len(config.index_layers) + config.num_mtp_layers


def _bf16_bytes(out_dim: int, in_dim: int) -> int:
    return 2 * out_dim * in_dim


def _fp8_bytes(out_dim: int, in_dim: int) -> int:
    return out_dim * in_dim + 4 * -(-out_dim // FP8_BLOCK) * -(-in_dim // FP8_BLOCK)


def _int4_bytes(out_dim: int, in_dim: int) -> int:
    if in_dim % INT4_GROUP:
        raise ConfigurationError(
            f"an expert's matrix of {in_dim} columns per GPU is not whole INT4 groups of "
            f"{INT4_GROUP}; choose fewer GPUs, or fp8 or bf16 weights"
        )
    return out_dim * in_dim // 2 + 2 * out_dim * (in_dim // INT4_GROUP)


_MATRIX_BYTES: Mapping[str, Callable[[int, int], int]] = {
    "bf16": _bf16_bytes,
    "fp8": _fp8_bytes,
    "int4": _int4_bytes,
}


def _require_divisible(config: ModelConfig, num_gpus: int, *, splits_vocabulary: bool) -> None:
    parts = {
        "attention heads": config.num_heads,
        "MLP columns": config.dense_intermediate_dim,
        "expert columns": config.moe.intermediate_dim,
    }
    if splits_vocabulary:
        parts["tokens of the vocabulary"] = config.vocab_size
    for what, total in parts.items():
        if num_gpus < 1 or total % num_gpus:
            possible = [
                str(n)
                for n in range(1, config.num_heads + 1)
                if all(size % n == 0 for size in parts.values())
            ]
            raise ConfigurationError(
                f"{total} {what} cannot be split over {num_gpus!r} GPUs; "
                f"possible: {', '.join(possible)}"
            )
