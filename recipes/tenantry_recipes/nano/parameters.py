"""A decoder's weights under training, by their released names.

`ParameterSource` gives the serving layers trainable parameters, so that training and serving share
one definition. In the last phase it rounds weights to the format they will be stored in on every
use (straight-through gradients), so that the network learns to live with the rounding. GLM's files
hold FP8, and operators convert its experts to INT4, so it learns to live with both.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Literal

import torch
from torch.nn.functional import linear

from tenantry_runtime.models.config import Family, Shard
from tenantry_runtime.models.linear import DenseExperts, Experts, HeadMaps, Linear, Part, Split
from tenantry_runtime.models.quantize import (
    INT4_GROUP,
    dequantize_fp8,
    int4_round,
    int4_scale,
    quantize_fp8,
)

KEPT_WIDE = re.compile(r".*(embed_tokens|lm_head|norm|mlp\.gate(?!_)|weights_proj|eh_proj).*")
"""What the released FP8 files keep in BF16."""

EXPERT = re.compile(r".*mlp\.experts\.\d+\.(gate|up|down)_proj")
"""What the released INT4 files pack."""

ExpertFormat = Literal["int4", "fp8"]


class ParameterSource:
    """A `WeightSource` of float32 parameters, drawn from N(0, 1/in) with a seed."""

    def __init__(self, family: Family, seed: int) -> None:
        self.parameters: dict[str, torch.nn.Parameter] = {}
        self.router_bias: dict[str, torch.Tensor] = {}
        """Not trained by gradient: moved by load (`balance`)."""
        self.expert_loads: dict[str, torch.Tensor] = {}
        """Rows per expert in the last pass, by expert prefix."""
        self.is_rounding = False
        self.expert_format: ExpertFormat = "int4" if family == "kimi" else "fp8"
        """What `rounded` gives of experts; what the files hold, unless it is set."""
        self._family = family
        self._generator = torch.Generator().manual_seed(seed)

    @property
    def shard(self) -> Shard:
        return Shard()

    def tensor(
        self, name: str, shape: tuple[int, ...], *, dtype: torch.dtype | None = None
    ) -> torch.Tensor:
        if name.endswith("e_score_correction_bias"):
            return self.router_bias.setdefault(name, torch.zeros(shape))
        if name.endswith("norm.weight"):
            return self._add(name, torch.ones(shape))
        if name.endswith("bias"):
            return self._add(name, torch.zeros(shape))
        # unit-sized rows for an embedding would drown the layers' first contributions
        return self._add(name, self._noise(shape, 0.5 if "embed" in name else shape[-1] ** -0.5))

    def linear(self, parts: Sequence[Part], in_dim: int, split: Split | None = None) -> Linear:
        for part in parts:
            scale = 0.5 if part.name.endswith(("o_proj", "down_proj")) else 1.0
            weight = self._noise((part.out_dim, in_dim), scale / math.sqrt(in_dim))
            self._add(f"{part.name}.weight", weight)

        def product(x: torch.Tensor) -> torch.Tensor:
            weights = [self._weight(part.name) for part in parts]
            return linear(x, weights[0] if len(weights) == 1 else torch.cat(weights))

        return product

    def heads(
        self, name: str, num_heads: int, key_dim: int, value_dim: int, in_dim: int
    ) -> HeadMaps:
        shape = (num_heads * (key_dim + value_dim), in_dim)
        self._add(f"{name}.weight", self._noise(shape, in_dim**-0.5))
        return TrainedHeadMaps(self, name, num_heads, key_dim)

    def experts(
        self, prefix: str, num_experts: int, hidden_dim: int, intermediate_dim: int
    ) -> Experts:
        for e in range(num_experts):
            for part, shape in (
                ("gate_proj", (intermediate_dim, hidden_dim)),
                ("up_proj", (intermediate_dim, hidden_dim)),
                ("down_proj", (hidden_dim, intermediate_dim)),
            ):
                self._add(f"{prefix}.{e}.{part}.weight", self._noise(shape, shape[1] ** -0.5))

        def stack(part: str) -> torch.Tensor:
            return torch.stack([self._weight(f"{prefix}.{e}.{part}") for e in range(num_experts)])

        def apply(
            x_TH: torch.Tensor, expert_TK: torch.Tensor, weight_TK: torch.Tensor
        ) -> torch.Tensor:
            self.expert_loads[prefix] = torch.bincount(expert_TK.flatten(), minlength=num_experts)
            gate_up = torch.cat((stack("gate_proj"), stack("up_proj")), 1)
            return DenseExperts(gate_up, stack("down_proj"))(x_TH, expert_TK, weight_TK)

        return apply

    @torch.no_grad()
    def balance(self, step: float) -> None:
        """Move each router's bias toward underloaded experts (Wang et al. 2024, auxiliary-loss-free)."""
        for prefix, load in self.expert_loads.items():
            bias = self.router_bias[prefix.removesuffix("experts") + "gate.e_score_correction_bias"]
            wide = load.float()
            bias += step * (wide.mean() - wide).sign()

    def rounded(self, name: str) -> torch.Tensor:
        """Return a weight as it will be read back from its stored or converted format."""
        weight = self.parameters[f"{name}.weight"]
        is_fp8 = self._family == "glm" and not KEPT_WIDE.fullmatch(name)
        stored = dequantize_fp8(quantize_fp8(weight)) if is_fp8 else weight
        if self.expert_format == "int4" and EXPERT.fullmatch(name):
            groups = stored.unflatten(-1, (-1, INT4_GROUP))
            scale = int4_scale(groups).float()
            return (int4_round(groups, scale) * scale).flatten(-2)
        return stored

    def _weight(self, name: str) -> torch.Tensor:
        weight = self.parameters[f"{name}.weight"]
        if not self.is_rounding:
            return weight
        with torch.no_grad():
            error = self.rounded(name) - weight
        return weight + error

    def _noise(self, shape: tuple[int, ...], scale: float) -> torch.Tensor:
        return torch.randn(shape, generator=self._generator) * scale

    def _add(self, name: str, value: torch.Tensor) -> torch.nn.Parameter:
        return self.parameters.setdefault(name, torch.nn.Parameter(value))


class TrainedHeadMaps(HeadMaps):
    """Head maps that read their weight anew in every pass."""

    def __init__(self, source: ParameterSource, name: str, num_heads: int, key_dim: int) -> None:
        self._source = source
        self._name = name
        self._num_heads = num_heads
        self._key_dim = key_dim

    def weights(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Return key rows [N, d, L] and value rows [N, V, L]."""
        weight = self._source._weight(self._name).unflatten(0, (self._num_heads, -1))
        return weight[:, : self._key_dim], weight[:, self._key_dim :]
