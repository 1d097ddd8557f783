"""A whole text decoder, and the pass of one batch through it.

T rows, R rows whose hidden state is wanted, H hidden values, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import numpy as np
import torch
from torch.nn.functional import embedding

from tenantry_kernels.choice import is_compiled
from tenantry_kernels.cpu.decode import DecodeStep, StepRows
from tenantry_runtime.cache.checked import CheckedBatch
from tenantry_runtime.cache.paged import PagedCache

from .attend import Attend, PagedAttend, Selection
from .batch import ForwardBatch
from .config import ModelConfig
from .decode_step import decode_step
from .device_attend import DeviceAttend, reads_on_device
from .layers import Attention, Mlp, Moe, RmsNorm
from .linear import Linear, Part, WeightSource
from .rope import inverse_frequencies, rotation

Reduce: TypeAlias = Callable[[torch.Tensor], torch.Tensor]
"""Adds up the shards' partial sums; the identity where there is one shard."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DecoderLayer:
    """Attention and MLP, each on the normed sum of all before it."""

    index: int
    input_norm: RmsNorm
    attention: Attention
    mlp_norm: RmsNorm
    mlp: Mlp | Moe

    @classmethod
    def build(
        cls,
        source: WeightSource,
        config: ModelConfig,
        index: int,
        *,
        is_dense: bool,
        has_indexer: bool,
        deterministic: bool = False,
    ) -> DecoderLayer:
        prefix = f"model.layers.{index}"
        hidden = config.hidden_dim

        def norm(name: str) -> RmsNorm:
            return RmsNorm(source.tensor(f"{prefix}.{name}.weight", (hidden,)), config.norm_eps)

        mlp: Mlp | Moe
        if is_dense:
            mlp = Mlp.build(source, f"{prefix}.mlp", hidden, config.dense_intermediate_dim)
        else:
            mlp = Moe.build(
                source, f"{prefix}.mlp", hidden, config.moe, deterministic=deterministic
            )
        return cls(
            index=index,
            input_norm=norm("input_layernorm"),
            attention=Attention.build(
                source, f"{prefix}.self_attn", config, has_indexer=has_indexer
            ),
            mlp_norm=norm("post_attention_layernorm"),
            mlp=mlp,
        )

    def __call__(
        self,
        x_TH: torch.Tensor,
        rotation_TF: torch.Tensor,
        attend: Attend,
        selection: Selection | None,
        reduce: Reduce,
    ) -> tuple[torch.Tensor, Selection | None]:
        attended, selection = self.attention(
            self.index, self.input_norm(x_TH), rotation_TF, attend, selection
        )
        x_TH = x_TH + reduce(attended)
        return x_TH + reduce(self.mlp(self.mlp_norm(x_TH))), selection


@dataclass(frozen=True, slots=True, kw_only=True)
class MtpLayer:
    """Predicts the token after next from a hidden state and the next token (DeepSeek-V3, 2.2)."""

    embedding_norm: RmsNorm
    hidden_norm: RmsNorm
    join: Linear
    layer: DecoderLayer
    head_norm: RmsNorm
    embedding_VH: torch.Tensor
    head: Linear

    def __call__(
        self,
        hidden_TH: torch.Tensor,
        next_token_T: torch.Tensor,
        rotation_TF: torch.Tensor,
        attend: Attend,
        reduce: Reduce,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return float32 logits [T, V] and the hidden states [T, H] that feed a further step.

        hidden_TH: the decoder's states after its final norm.
        """
        states_TH = self.states(hidden_TH, next_token_T, rotation_TF, attend, reduce)
        return self.head(states_TH).float(), states_TH

    def states(
        self,
        hidden_TH: torch.Tensor,
        next_token_T: torch.Tensor,
        rotation_TF: torch.Tensor,
        attend: Attend,
        reduce: Reduce,
    ) -> torch.Tensor:
        """Return the hidden states [T, H] alone: what `head` turns into logits."""
        embedded = embedding(next_token_T, self.embedding_VH)
        joined = torch.cat((self.embedding_norm(embedded), self.hidden_norm(hidden_TH)), -1)
        x_TH, _ = self.layer(self.join(joined), rotation_TF, attend, None, reduce)
        return self.head_norm(x_TH)


class Decoder:
    """Embedding, layers, final norm and head of one checkpoint."""

    def __init__(
        self,
        config: ModelConfig,
        source: WeightSource,
        *,
        revision: str = "",
        deterministic: bool = False,
        reduce: Reduce = lambda partial: partial,
    ) -> None:
        self.config = config
        self.revision = revision
        """SHA-256 that names the checkpoint (`Checkpoint.revision`)."""
        self.weights = ""
        """The formats of its matrices in memory, where its source says so (`CheckpointSource.held`)."""
        self._deterministic = deterministic
        self._reduce = reduce
        # before anything is read; heads must not be cut apart, which their rows alone would allow
        source.shard.span(config.num_heads, "attention heads")
        source.shard.span(config.dense_intermediate_dim, "MLP columns")
        source.shard.span(config.moe.intermediate_dim, "expert columns")
        vocab, hidden = config.vocab_size, config.hidden_dim
        self.embedding_VH = source.tensor("model.embed_tokens.weight", (vocab, hidden))
        self.layers = [
            DecoderLayer.build(
                source,
                config,
                n,
                is_dense=config.is_dense_N[n],
                has_indexer=n in config.index_layers,
                deterministic=deterministic,
            )
            for n in range(config.num_layers)
        ]
        self.norm = RmsNorm(source.tensor("model.norm.weight", (hidden,)), config.norm_eps)
        self.head = source.linear([Part("lm_head", vocab)], hidden)
        self.mtp = [
            self._build_mtp(source, config.num_layers + n) for n in range(config.num_mtp_layers)
        ]
        self._frequencies = inverse_frequencies(config.rope_dim, config.rope).to(
            self.embedding_VH.device
        )
        self._is_whole = source.shard.size == 1

    @torch.inference_mode()
    def forward(
        self, batch: ForwardBatch, checked: CheckedBatch, cache: PagedCache
    ) -> torch.Tensor:
        """Write the rows into their pages; return the wanted rows' states [R, H] after the final norm."""
        num_rows = len(batch.token_ids_T)
        if self._step is not None:
            self._step.use(cache)
            # one row of each sequence
            if self._steps(num_rows) and batch.cu_len == tuple(range(num_rows + 1)):
                hidden_RH = self._step.run(_rows(batch, checked))
                checked.landing.landed(checked.write_slot_T, cache.num_appends)
                return hidden_RH
        attends = DeviceAttend if reads_on_device(cache) else PagedAttend
        attend = attends(checked, batch.cu_len, cache, deterministic=self._deterministic)
        x_TH = self.trunk(batch.token_ids_T, batch.positions_T, attend)
        return self.norm(x_TH[batch.logit_rows_R])

    @torch.inference_mode()
    def logits(self, hidden_RH: torch.Tensor) -> torch.Tensor:
        """Return float32 logits [R, V]."""
        if self._step is not None and self._steps(len(hidden_RH)):
            return self._step.logits(hidden_RH)
        return self.head(hidden_RH).float()

    def _steps(self, num_rows: int) -> bool:
        return is_compiled(
            "step", self.embedding_VH, num_rows=num_rows, deterministic=self._deterministic
        )

    @cached_property
    def _step(self) -> DecodeStep | None:
        """The compiled loops, where there are such for this decoder."""
        if not self._is_whole or not self._steps(1):
            return None
        return decode_step(
            self.config,
            self.layers,
            embedding_VH=self.embedding_VH,
            frequencies=self._frequencies,
            norm=self.norm,
            head=self.head,
        )

    def trunk(
        self, token_ids_T: torch.Tensor, positions_T: torch.Tensor, attend: Attend
    ) -> torch.Tensor:
        """Return all rows' states [T, H] before the final norm."""
        x_TH = embedding(token_ids_T, self.embedding_VH)
        rotation_TF = self.rotation(positions_T)
        selection: Selection | None = None
        for layer in self.layers:
            x_TH, selection = layer(x_TH, rotation_TF, attend, selection, self._reduce)
        return x_TH

    def rotation(self, positions_T: torch.Tensor) -> torch.Tensor:
        """Return the rotary embedding's complex factors [T, rope_dim / 2]."""
        return rotation(positions_T, self._frequencies)

    def _build_mtp(self, source: WeightSource, index: int) -> MtpLayer:
        config, prefix = self.config, f"model.layers.{index}"
        vocab, hidden = config.vocab_size, config.hidden_dim

        def norm(name: str) -> RmsNorm:
            return RmsNorm(source.tensor(f"{prefix}.{name}.weight", (hidden,)), config.norm_eps)

        own = config.mtp_has_embeddings
        return MtpLayer(
            embedding_norm=norm("enorm"),
            hidden_norm=norm("hnorm"),
            join=source.linear([Part(f"{prefix}.eh_proj", hidden)], 2 * hidden),
            layer=DecoderLayer.build(
                source,
                config,
                index,
                is_dense=False,
                has_indexer=config.indexer is not None,
                deterministic=self._deterministic,
            ),
            head_norm=norm("shared_head.norm"),
            embedding_VH=source.tensor(f"{prefix}.embed_tokens.weight", (vocab, hidden))
            if own
            else self.embedding_VH,
            head=source.linear([Part(f"{prefix}.shared_head.head", vocab)], hidden)
            if own
            else self.head,
        )


def _rows(batch: ForwardBatch, checked: CheckedBatch) -> StepRows:
    return StepRows(
        token_T=batch.token_ids_T,
        position_T=batch.positions_T,
        page_table_TP=checked.page_table_SL,
        read_len_T=np.array(checked.read_len_S, np.int64),
        write_slot_T=checked.write_slot_T,
        wanted_R=batch.logit_rows_R,
    )
