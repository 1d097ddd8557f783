"""The layers that all decoders here are made of. Plain objects built from a weight source.

T rows, H hidden values, N heads of this shard, E experts, K choices, J index heads.
Where a shard holds part of a matrix, a layer's result is a partial sum: the decoder adds the
shards' parts.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch.nn.functional import layer_norm, linear, rms_norm

from tenantry_kernels import on_gpu
from tenantry_kernels.choice import is_compiled, is_triton
from tenantry_kernels.cpu import ops as cpu
from tenantry_kernels.experts import swiglu

from .attend import Attend, AttentionRows, IndexRows, Selection
from .config import IndexerConfig, ModelConfig, MoeConfig
from .linear import Experts, HeadMaps, Linear, Part, WeightSource, in_row_tiles
from .rope import attention_scale, rotate

INDEX_NORM_EPS = 1e-6
"""Of the index keys' LayerNorm in every GLM-5.x model (its modeling code; not in config.json)."""


@dataclass(frozen=True, slots=True)
class RmsNorm:
    """Root-mean-square norm, float32 inside."""

    weight: torch.Tensor
    eps: float

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        if is_compiled("norm", x):
            return cpu.rms_norm(x, self.weight, self.eps)
        return rms_norm(x, self.weight.shape, eps=self.eps) * self.weight


@dataclass(frozen=True, slots=True)
class Mlp:
    """down(silu(gate(x)) * up(x))."""

    gate_up: Linear
    down: Linear

    @classmethod
    def build(
        cls, source: WeightSource, prefix: str, hidden_dim: int, intermediate_dim: int
    ) -> Mlp:
        parts = [
            Part(f"{prefix}.gate_proj", intermediate_dim),
            Part(f"{prefix}.up_proj", intermediate_dim),
        ]
        return cls(
            gate_up=source.linear(parts, hidden_dim, "rows"),
            down=source.linear(
                [Part(f"{prefix}.down_proj", hidden_dim)], intermediate_dim, "columns"
            ),
        )

    def __call__(self, x_TH: torch.Tensor) -> torch.Tensor:
        gate_up = self.gate_up(x_TH)
        return self.down(cpu.swiglu(gate_up) if is_compiled("gate", gate_up) else swiglu(gate_up))


@dataclass(frozen=True, slots=True)
class Router:
    """Sigmoid scores in float32; the bias takes part in the choice, not in the weights."""

    weight_EH: torch.Tensor
    bias_E: torch.Tensor
    config: MoeConfig
    deterministic: bool = False

    def __call__(self, x_TH: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return chosen experts int64 (of Triton's, int32) [T, K] and their float32 weights [T, K]."""
        has_groups = self.config.num_groups > 1
        if is_compiled("router", x_TH, deterministic=self.deterministic):
            return cpu.route(
                x_TH,
                self.weight_EH,
                self.bias_E,
                self.config.num_experts_per_token,
                num_groups=self.config.num_groups,
                num_groups_kept=self.config.num_groups_per_token,
                is_normalized=self.config.normalize_weights,
                scaling=self.config.routed_scaling,
            )
        # which parts a product is divided into depends on how many rows there are
        if is_triton(x_TH) and not (has_groups or self.deterministic):
            return on_gpu.route(
                x_TH,
                self.weight_EH,
                self.bias_E,
                self.config.num_experts_per_token,
                is_normalized=self.config.normalize_weights,
                scaling=self.config.routed_scaling,
            )
        score_TE = in_row_tiles(self._score, x_TH) if self.deterministic else self._score(x_TH)
        preference = score_TE + self.bias_E
        if has_groups:
            preference = self._keep_best_groups(preference)
        expert_TK = preference.topk(self.config.num_experts_per_token, -1).indices
        weight_TK = score_TE.gather(1, expert_TK)
        if self.config.normalize_weights:
            weight_TK = weight_TK / (weight_TK.sum(-1, keepdim=True) + 1e-20)
        return expert_TK, weight_TK * self.config.routed_scaling

    def _score(self, x_TH: torch.Tensor) -> torch.Tensor:
        return linear(x_TH.float(), self.weight_EH).sigmoid()

    def _keep_best_groups(self, preference_TE: torch.Tensor) -> torch.Tensor:
        """Rule out experts outside the groups whose two best experts sum highest."""
        grouped: torch.Tensor = preference_TE.unflatten(-1, (self.config.num_groups, -1))
        group_score = grouped.topk(2, -1).values.sum(-1)
        best = group_score.topk(self.config.num_groups_per_token, -1).indices
        is_out = torch.ones_like(group_score, dtype=torch.bool).scatter_(1, best, False)
        return grouped.masked_fill(is_out[..., None], -torch.inf).flatten(-2)


@dataclass(frozen=True, slots=True)
class Moe:
    """Routed experts plus a shared one that every row passes."""

    router: Router
    experts: Experts
    shared: Mlp

    @classmethod
    def build(
        cls,
        source: WeightSource,
        prefix: str,
        hidden_dim: int,
        config: MoeConfig,
        *,
        deterministic: bool = False,
    ) -> Moe:
        router = Router(
            source.tensor(
                f"{prefix}.gate.weight", (config.num_experts, hidden_dim), dtype=torch.float32
            ),
            source.tensor(
                f"{prefix}.gate.e_score_correction_bias", (config.num_experts,), dtype=torch.float32
            ),
            config,
            deterministic,
        )
        experts = source.experts(
            f"{prefix}.experts", config.num_experts, hidden_dim, config.intermediate_dim
        )
        shared_dim = config.intermediate_dim * config.num_shared_experts
        return cls(
            router, experts, Mlp.build(source, f"{prefix}.shared_experts", hidden_dim, shared_dim)
        )

    def __call__(self, x_TH: torch.Tensor) -> torch.Tensor:
        expert_TK, weight_TK = self.router(x_TH)
        return self.experts(x_TH, expert_TK, weight_TK) + self.shared(x_TH)


@dataclass(frozen=True, slots=True, kw_only=True)
class Indexer:
    """Chooses, for each row, the positions that sparse attention may see."""

    queries: Linear
    keys: Linear
    key_norm_weight: torch.Tensor
    key_norm_bias: torch.Tensor
    head_weights: Linear
    config: IndexerConfig
    rope_dim: int

    @classmethod
    def build(cls, source: WeightSource, prefix: str, model: ModelConfig) -> Indexer:
        config = model.indexer
        assert config is not None
        num_heads, head_dim = config.num_heads, config.head_dim
        return cls(
            queries=source.linear(
                [Part(f"{prefix}.wq_b", num_heads * head_dim)], model.q_lora_rank
            ),
            keys=source.linear([Part(f"{prefix}.wk", head_dim)], model.hidden_dim),
            key_norm_weight=source.tensor(f"{prefix}.k_norm.weight", (head_dim,)),
            key_norm_bias=source.tensor(f"{prefix}.k_norm.bias", (head_dim,)),
            head_weights=source.linear(
                [Part(f"{prefix}.weights_proj", num_heads)], model.hidden_dim
            ),
            config=config,
            rope_dim=model.rope_dim,
        )

    def __call__(
        self, x_TH: torch.Tensor, q_lora_TQ: torch.Tensor, rotation: torch.Tensor
    ) -> IndexRows:
        num_heads, head_dim = self.config.num_heads, self.config.head_dim
        query_TJD = self.queries(q_lora_TQ).unflatten(-1, (num_heads, head_dim))
        key_TD = layer_norm(
            self.keys(x_TH), (head_dim,), self.key_norm_weight, self.key_norm_bias, INDEX_NORM_EPS
        )
        return IndexRows(
            q_TJD=self._rotate_front(query_TJD, rotation),
            weight_TJ=self.head_weights(x_TH) * num_heads**-0.5,
            key_TD=self._rotate_front(key_TD, rotation),
            top_k=self.config.top_k,
        )

    def _rotate_front(self, x: torch.Tensor, rotation: torch.Tensor) -> torch.Tensor:
        # rotated values come first here, last in attention's queries
        front, rest = x[..., : self.rope_dim], x[..., self.rope_dim :]
        return torch.cat((rotate(front, rotation), rest), -1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Attention:
    """Multi-head latent attention (DeepSeek-V2, section 2.1), sparse where there is an indexer."""

    down: Linear
    """q_a and kv_a in one product."""
    q_norm: RmsNorm
    q_up: Linear
    kv_norm: RmsNorm
    head_maps: HeadMaps
    output: Linear
    indexer: Indexer | None
    config: ModelConfig
    scale: float

    @classmethod
    def build(
        cls, source: WeightSource, prefix: str, config: ModelConfig, *, has_indexer: bool
    ) -> Attention:
        hidden, q_rank, kv_rank = config.hidden_dim, config.q_lora_rank, config.kv_lora_rank
        query_dim = config.nope_dim + config.rope_dim
        down = [
            Part(f"{prefix}.q_a_proj", q_rank),
            Part(f"{prefix}.kv_a_proj_with_mqa", config.cache_dim),
        ]
        q_up = [Part(f"{prefix}.q_b_proj", config.num_heads * query_dim)]
        output = [Part(f"{prefix}.o_proj", hidden)]
        return cls(
            down=source.linear(down, hidden),
            q_norm=RmsNorm(
                source.tensor(f"{prefix}.q_a_layernorm.weight", (q_rank,)), config.lora_norm_eps
            ),
            q_up=source.linear(q_up, q_rank, "rows"),
            kv_norm=RmsNorm(
                source.tensor(f"{prefix}.kv_a_layernorm.weight", (kv_rank,)), config.lora_norm_eps
            ),
            head_maps=source.heads(
                f"{prefix}.kv_b_proj", config.num_heads, config.nope_dim, config.value_dim, kv_rank
            ),
            output=source.linear(output, config.num_heads * config.value_dim, "columns"),
            indexer=Indexer.build(source, f"{prefix}.indexer", config) if has_indexer else None,
            config=config,
            scale=attention_scale(config.nope_dim + config.rope_dim, config.rope),
        )

    def __call__(
        self,
        layer: int,
        x_TH: torch.Tensor,
        rotation: torch.Tensor,
        attend: Attend,
        selection: Selection | None,
    ) -> tuple[torch.Tensor, Selection | None]:
        """Return the rows' partial outputs [T, H] and the choice that later layers share."""
        c = self.config
        q_a, latent, k_rope = self.down(x_TH).split((c.q_lora_rank, c.kv_lora_rank, c.rope_dim), -1)
        q_lora = self.q_norm(q_a)
        query_TNd = self.q_up(q_lora).unflatten(-1, (-1, c.nope_dim + c.rope_dim))
        q_nope, q_rope = query_TNd.split((c.nope_dim, c.rope_dim), -1)
        if self.indexer is not None:
            selection = attend.select(layer, self.indexer(x_TH, q_lora, rotation))
        # the shared key is rotated as one head more
        rotated = rotate(torch.cat((q_rope, k_rope[:, None]), 1), rotation)
        rows = AttentionRows(
            q_nope_TNd=q_nope,
            q_rope_TNr=rotated[:, :-1],
            latent_TL=self.kv_norm(latent),
            k_rope_Tr=rotated[:, -1],
            head_maps=self.head_maps,
            scale=self.scale,
        )
        return self.output(attend.attend(layer, rows, selection).flatten(1)), selection
