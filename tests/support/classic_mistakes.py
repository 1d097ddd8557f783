"""The mistakes that ports of these models are known for, each as a patch of the smallest function.

Every one of them loads, runs and talks; the tests must see that it is wrong.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import pytest
import torch
from torch.nn.functional import layer_norm, linear, rms_norm

from tenantry_runtime.cache.ops import RowOps, row_ops
from tenantry_runtime.models import attend, decoder, layers, loader, quantize, rope
from tenantry_runtime.models.attend import Selection
from tenantry_runtime.models.config import ModelConfig, RopeConfig
from tenantry_runtime.models.layers import Attention, Indexer, Moe, RmsNorm, Router
from tenantry_runtime.models.linear import HeadMaps
from tenantry_runtime.models.quantize import Fp8Matrix, Int4Matrix

Patch: TypeAlias = Callable[[pytest.MonkeyPatch], None]
Layer: TypeAlias = tuple[torch.Tensor, Selection | None]

# the right ones, which the wrong ones lean on
_rotate = rope.rotate
_rotation = rope.rotation
_load_config = loader.load_config
_build_attention = Attention.build
_attention = Attention.__call__


def replaced(owner: object, name: str, wrong: object) -> Patch:
    return lambda patch: patch.setattr(owner, name, wrong)


def config_is(change: Callable[[ModelConfig], ModelConfig]) -> Patch:
    return replaced(loader, "load_config", lambda directory: change(_load_config(directory)))


def moe_is(**changes: Any) -> Patch:
    return config_is(lambda config: replace(config, moe=replace(config.moe, **changes)))


def rope_is(change: Callable[[RopeConfig], RopeConfig]) -> Patch:
    return config_is(lambda config: replace(config, rope=change(config.rope)))


def yarn_is(**changes: Any) -> Patch:
    def change(config: RopeConfig) -> RopeConfig:
        assert config.yarn is not None
        return replace(config, yarn=replace(config.yarn, **changes))

    return rope_is(change)


def attention_is(change: Callable[[Attention], Attention]) -> Patch:
    def build(*args: Any, **kwargs: Any) -> Attention:
        return change(_build_attention(*args, **kwargs))

    return replaced(Attention, "build", build)


def all_keys_chosen(config: ModelConfig) -> ModelConfig:
    assert config.indexer is not None
    return replace(config, indexer=replace(config.indexer, top_k=config.context_tokens))


def rotated_halves(x: torch.Tensor, rotation: torch.Tensor) -> torch.Tensor:
    """Pair (i, i + D/2) where (2i, 2i + 1) is right."""
    turned = _rotate(torch.stack(x.chunk(2, -1), -1).flatten(-2), rotation)
    return torch.cat((turned[..., 0::2], turned[..., 1::2]), -1)


def half_split_attention(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Indexer, "_rotate_front", front_rotated_by(_rotate))
    patch.setattr(layers, "rotate", rotated_halves)


def front_rotated_by(
    turn: Callable[[torch.Tensor, torch.Tensor], torch.Tensor],
) -> Callable[[Indexer, torch.Tensor, torch.Tensor], torch.Tensor]:
    def rotate_front(self: Indexer, x: torch.Tensor, rotation: torch.Tensor) -> torch.Tensor:
        front, rest = x[..., : self.rope_dim], x[..., self.rope_dim :]
        return torch.cat((turn(front, rotation), rest), -1)

    return rotate_front


def rotate_back(self: Indexer, x: torch.Tensor, rotation: torch.Tensor) -> torch.Tensor:
    rest, back = x[..., : -self.rope_dim], x[..., -self.rope_dim :]
    return torch.cat((rest, _rotate(back, rotation)), -1)


def mscale_on_cos_and_sin(positions_T: torch.Tensor, frequencies: torch.Tensor) -> torch.Tensor:
    return _rotation(positions_T, frequencies) * (0.1 * math.log(64.0) + 1)


def plain_scale(query_dim: int, _: RopeConfig) -> float:
    return float(query_dim**-0.5)


def query_rope_first(attention: Attention) -> Attention:
    """Take q's rows per head as [rope | nope]."""
    c = attention.config

    def q_up(x: torch.Tensor) -> torch.Tensor:
        query: torch.Tensor = attention.q_up(x).unflatten(-1, (-1, c.nope_dim + c.rope_dim))
        return query.roll(-c.rope_dim, -1).flatten(-2)

    return replace(attention, q_up=q_up)


def key_rope_first(attention: Attention) -> Attention:
    """Take kv_a's rows as [rope | latent]."""
    c = attention.config

    def down(x: torch.Tensor) -> torch.Tensor:
        q_a, kv_a = attention.down(x).split((c.q_lora_rank, c.cache_dim), -1)
        return torch.cat((q_a, kv_a.roll(-c.rope_dim, -1)), -1)

    return replace(attention, down=down)


def values_before_keys(attention: Attention) -> Attention:
    """Take kv_b's rows per head as [values | keys]."""
    maps, c = attention.head_maps, attention.config
    rows = torch.cat((maps.key_NdL, maps.value_NVL), 1).roll(-c.value_dim, 1)
    return replace(attention, head_maps=HeadMaps(rows, c.nope_dim))


def without_kv_norm(attention: Attention) -> Attention:
    return replace(attention, kv_norm=RmsNorm(torch.ones_like(attention.kv_norm.weight), 1e-6))


def index_key_by_rms(
    x: torch.Tensor, shape: Sequence[int], weight: torch.Tensor, bias: torch.Tensor, eps: float
) -> torch.Tensor:
    return rms_norm(x, shape, weight, eps) + bias


def index_key_without_bias(
    x: torch.Tensor, shape: Sequence[int], weight: torch.Tensor, _: torch.Tensor, eps: float
) -> torch.Tensor:
    return layer_norm(x, shape, weight, None, eps)


def index_scores_without_relu(
    q_TJD: torch.Tensor, weight_TJ: torch.Tensor, key_KD: torch.Tensor
) -> torch.Tensor:
    return torch.einsum("tjd,kd,tj->tk", q_TJD, key_KD, weight_TJ)


def index_choice_without_relu(
    q_TJD: torch.Tensor, weight_TJ: torch.Tensor, key_KD: torch.Tensor, num_choices: int
) -> torch.Tensor:
    score_TK = index_scores_without_relu(q_TJD, weight_TJ, key_KD)
    num_rows, num_keys = score_TK.shape
    unseen_TK = torch.ones_like(score_TK).triu(num_keys - num_rows + 1).bool()
    best = score_TK.masked_fill(unseen_TK, -torch.inf).topk(num_choices)
    return best.indices.masked_fill(best.values == -torch.inf, -1)


def row_ops_without_relu(device: torch.device) -> RowOps:
    return replace(row_ops(device), compiled_index=index_choice_without_relu)


def shared_layers_see_all(
    self: Attention, layer: int, x: Any, rotation: Any, cache: Any, selection: Selection | None
) -> Layer:
    seen = selection if self.indexer else None
    attended, chosen = _attention(self, layer, x, rotation, cache, seen)
    return attended, chosen if self.indexer else selection


def only_layer_0_chooses(
    self: Attention, layer: int, x: Any, rotation: Any, cache: Any, selection: Selection | None
) -> Layer:
    reused = self if layer == 0 else replace(self, indexer=None)
    return _attention(reused, layer, x, rotation, cache, selection)


def biased_weights(self: Router, x_TH: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    weight, expert = (self._score(x_TH) + self.bias_E).topk(self.config.num_experts_per_token)
    return expert, weight / weight.sum(-1, keepdim=True) * self.config.routed_scaling


def unbiased_choice(self: Router, x_TH: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    weight, expert = self._score(x_TH).topk(self.config.num_experts_per_token)
    return expert, weight / weight.sum(-1, keepdim=True) * self.config.routed_scaling


def softmax_scores(self: Router, x_TH: torch.Tensor) -> torch.Tensor:
    return linear(x_TH, self.weight_EH).softmax(-1)


def groups_by_their_best(self: Router, preference_TE: torch.Tensor) -> torch.Tensor:
    grouped: torch.Tensor = preference_TE.unflatten(-1, (self.config.num_groups, -1))
    best = grouped.amax(-1).topk(self.config.num_groups_per_token).indices
    is_out = torch.ones(grouped.shape[:2], dtype=torch.bool).scatter_(1, best, False)
    return grouped.masked_fill(is_out[..., None], -torch.inf).flatten(-2)


def without_shared_expert(self: Moe, x_TH: torch.Tensor) -> torch.Tensor:
    return self.experts(x_TH, *self.router(x_TH))


def scaled_shared_expert(self: Moe, x_TH: torch.Tensor) -> torch.Tensor:
    routed = self.experts(x_TH, *self.router(x_TH))
    return routed + self.router.config.routed_scaling * self.shared(x_TH)


def fp8_blocks_of_equal_size(matrix: Fp8Matrix) -> torch.Tensor:
    """Divide the rows by the number of scales, where blocks have 128 and the last is partial."""
    scale = matrix.scale_inv
    for axis, length in enumerate(matrix.weight.shape):
        block = max(length // scale.shape[axis], 1)
        at = (torch.arange(length) // block).clamp(max=scale.shape[axis] - 1)
        scale = scale.index_select(axis, at)
    return matrix.weight.float() * scale


def fp8_divided_by_scale(matrix: Fp8Matrix) -> torch.Tensor:
    return quantize.dequantize_fp8(Fp8Matrix(matrix.weight, 1 / matrix.scale_inv))


def fp8_heads_split_first(matrix: Fp8Matrix) -> torch.Tensor:
    """Let each head of a wide kv_b (224 rows) begin with a block of its own."""
    num_rows = matrix.weight.shape[0]
    if num_rows != 8 * 224:
        return quantize.dequantize_fp8(matrix)
    row = torch.arange(num_rows)
    block = row // 224 * 224 // 128 + row % 224 // 128
    return matrix.weight.float() * matrix.scale_inv[block.clamp(max=13)][:, :1]


def int4_high_nibble_first(matrix: Int4Matrix) -> torch.Tensor:
    groups: torch.Tensor = quantize.unpack_int4(matrix.packed).unflatten(-1, (-1, 2)).flip(-1)
    return quantize.dequantize_int4(
        Int4Matrix(quantize.pack_int4(groups.flatten(-2)), matrix.scale)
    )


def int4_in_twos_complement(matrix: Int4Matrix) -> torch.Tensor:
    q = quantize.unpack_int4(matrix.packed)
    return quantize.dequantize_int4(
        Int4Matrix(quantize.pack_int4(torch.where(q < 0, q + 8, q - 8)), matrix.scale)
    )


def int4_scales_along_rows(matrix: Int4Matrix) -> torch.Tensor:
    """Take one scale per 32 rows, read from where the columns' scales are."""
    scale = matrix.scale.flatten().view(matrix.scale.shape[1], -1).T.contiguous()
    return quantize.dequantize_int4(Int4Matrix(matrix.packed, scale))


MISTAKES: dict[str, tuple[tuple[str, ...], Patch]] = {
    "rope in halves in attention": (
        ("kimi_k2", "glm5", "glm47_flash"),
        half_split_attention,
    ),
    "rope in halves in the indexer": (
        ("glm5", "glm52"),
        replaced(Indexer, "_rotate_front", front_rotated_by(rotated_halves)),
    ),
    "rope on the indexer's last values": (
        ("glm5",),
        replaced(Indexer, "_rotate_front", rotate_back),
    ),
    "rope on the queries' first values": (("kimi_k2", "glm5"), attention_is(query_rope_first)),
    "rope on the keys' first values": (("kimi_k2", "glm5"), attention_is(key_rope_first)),
    "another theta": (
        ("kimi_k2", "glm52", "glm47_flash"),
        rope_is(lambda config: replace(config, theta=10000.0)),
    ),
    "GLM-5's theta for 5.2": (
        ("glm52",),
        rope_is(lambda config: replace(config, theta=1000000.0)),
    ),
    "no YaRN": (("kimi_k2",), rope_is(lambda config: replace(config, yarn=None))),
    "K2's first beta for its later ones": (("kimi_k2", "kimi_k25"), yarn_is(beta_fast=1.0)),
    "K2.5's betas for K2": (("kimi_k2_thinking",), yarn_is(beta_fast=32.0)),
    "YaRN's factor of another model": (("kimi_k2_thinking",), yarn_is(factor=64.0)),
    "mscale forgotten": (("kimi_k2",), replaced(layers, "attention_scale", plain_scale)),
    "mscale on cos and sin as well": (
        ("kimi_k2",),
        replaced(decoder, "rotation", mscale_on_cos_and_sin),
    ),
    "kv_b's values before its keys": (("kimi_k2", "glm5"), attention_is(values_before_keys)),
    "latent norm without weight": (("kimi_k2",), attention_is(without_kv_norm)),
    "inner norms with the model's epsilon": (
        ("kimi_k2", "glm5"),
        config_is(lambda config: replace(config, lora_norm_eps=config.norm_eps)),
    ),
    "index_topk ignored": (("glm5", "glm52"), config_is(all_keys_chosen)),
    "index keys by RMS norm": (("glm5",), replaced(layers, "layer_norm", index_key_by_rms)),
    "index keys without bias": (("glm5",), replaced(layers, "layer_norm", index_key_without_bias)),
    "index scores without relu": (
        ("glm5",),
        replaced(attend, "row_ops", row_ops_without_relu),
    ),
    "layers without indexer see everything": (
        ("glm52",),
        replaced(Attention, "__call__", shared_layers_see_all),
    ),
    "all layers share the first choice": (
        ("glm5", "glm52"),
        replaced(Attention, "__call__", only_layer_0_chooses),
    ),
    "router bias in the weights": (
        ("kimi_k2", "glm5", "glm47_flash"),
        replaced(Router, "__call__", biased_weights),
    ),
    "router bias left out of the choice": (
        ("kimi_k2", "glm5"),
        replaced(Router, "__call__", unbiased_choice),
    ),
    "router by softmax": (("kimi_k2",), replaced(Router, "_score", softmax_scores)),
    "router weights not scaled": (("kimi_k2", "glm5", "glm47_flash"), moe_is(routed_scaling=1.0)),
    "router weights not normalized": (("kimi_k2", "glm5"), moe_is(normalize_weights=False)),
    "expert groups ignored": (("kimi_grouped",), moe_is(num_groups=1)),
    "expert groups by their best expert": (
        ("kimi_grouped",),
        replaced(Router, "_keep_best_groups", groups_by_their_best),
    ),
    "shared expert dropped": (
        ("kimi_k2", "glm5"),
        replaced(Moe, "__call__", without_shared_expert),
    ),
    "shared expert scaled like the others": (
        ("kimi_k2",),
        replaced(Moe, "__call__", scaled_shared_expert),
    ),
}
"""By what goes wrong: the checkpoints in which it must show, and the patch."""

INT4_MISTAKES: dict[str, Callable[[Int4Matrix], torch.Tensor]] = {
    "high nibble first": int4_high_nibble_first,
    "nibbles in two's complement": int4_in_twos_complement,
    "scales along rows": int4_scales_along_rows,
}
FP8_MISTAKES: dict[str, Callable[[Fp8Matrix], torch.Tensor]] = {
    "block is rows over scales": fp8_blocks_of_equal_size,
    "divided by scale_inv": fp8_divided_by_scale,
    "kv_b split before it is dequantized": fp8_heads_split_first,
}
