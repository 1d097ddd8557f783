"""GLM checkpoints with a multi-token-prediction layer, and its mathematics written out plainly.

transformers ignores these layers, so the tensors are drawn here, in the released names, and the
expected values come from `plain_mtp`: one head and one row at a time, in float64, with keys and
values of every head spelled out where the runtime works in the latent space.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from tenantry_runtime.cache.checked import CheckedBatch
from tenantry_runtime.cache.formats import SERVED_FORMATS
from tenantry_runtime.cache.paged import PagedCache
from tenantry_runtime.core import PAGE_TOKENS
from tenantry_runtime.models.attend import PagedAttend
from tenantry_runtime.models.decoder import Decoder

from .quantized_copies import Tensors, rewritten

# a layer whose shapes the MTP layer has: experts, and an indexer where the family has one
_LIKE = {"glm_moe_dsa": 6, "glm4_moe_lite": 2}


def mtp_copy(source: Path, destination: Path) -> None:
    """Copy a GLM checkpoint with an MTP layer after its last layer."""
    config = json.loads((source / "config.json").read_text())

    def extended(tensors: Tensors) -> Tensors:
        return {**tensors, **_mtp_tensors(tensors, config)}

    rewritten(source, destination, extended)
    config["num_nextn_predict_layers"] = 1
    (destination / "config.json").write_text(json.dumps(config))


def _mtp_tensors(tensors: Tensors, config: Mapping[str, Any]) -> Tensors:
    generator = torch.Generator().manual_seed(99)

    def like(name: str, shape: torch.Size | tuple[int, ...]) -> torch.Tensor:
        noise = torch.randn(shape, generator=generator)
        if name.endswith("norm.weight"):
            return 1 + 0.2 * noise
        return 0.1 * noise if name.endswith("bias") else noise / math.sqrt(shape[-1])

    hidden, vocab = config["hidden_size"], config["vocab_size"]
    mtp = f"model.layers.{config['num_hidden_layers']}."
    model = f"model.layers.{min(_LIKE[config['model_type']], config['num_hidden_layers'] - 1)}."
    shapes: dict[str, torch.Size | tuple[int, ...]] = {
        name.replace(model, mtp): tensor.shape
        for name, tensor in tensors.items()
        if name.startswith(model)
    }
    shapes[f"{mtp}eh_proj.weight"] = (hidden, 2 * hidden)
    for norm in ("enorm", "hnorm", "shared_head.norm"):
        shapes[f"{mtp}{norm}.weight"] = (hidden,)
    if config["model_type"] == "glm4_moe_lite":
        shapes[f"{mtp}embed_tokens.weight"] = (vocab, hidden)
        shapes[f"{mtp}shared_head.head.weight"] = (vocab, hidden)
    return {name: like(name, shape) for name, shape in shapes.items()}


def drafts(
    decoder: Decoder, hidden_TH: torch.Tensor, next_token_T: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Run a decoder's one MTP layer, on pages for one layer more than serving has."""
    config, num_rows = decoder.config, hidden_TH.shape[0]
    num_pages = -(-num_rows // PAGE_TOKENS)

    def pool(width: int) -> torch.Tensor:
        return torch.full((num_pages + 1, PAGE_TOKENS, width), torch.nan)

    cache = PagedCache(
        num_pages=num_pages,
        cache_format=SERVED_FORMATS["float32"],
        latent_N=tuple(pool(config.cache_dim) for _ in range(config.num_layers + 1)),
        index_keys={config.num_layers: pool(config.indexer.head_dim)} if config.indexer else {},
    )
    checked = CheckedBatch(
        page_table_SL=torch.arange(num_pages)[None],
        read_len_S=(num_rows,),
        write_slot_T=torch.arange(num_rows),
    )
    attend = PagedAttend(checked, (0, num_rows), cache, deterministic=False)
    (mtp,) = decoder.mtp
    rotation = decoder.rotation(torch.arange(num_rows))
    return mtp(hidden_TH, next_token_T, rotation, attend, lambda partial: partial)


class PlainMtp:
    """One MTP layer over a whole sequence, in float64."""

    def __init__(self, tensors: Tensors, config: Mapping[str, Any]) -> None:
        self._tensors = tensors
        self._config = config
        self._prefix = f"model.layers.{config['num_hidden_layers']}."

    def logits_and_states(
        self, hidden_TH: torch.Tensor, next_token_T: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return float64 logits [T, V] and states [T, H] of positions 0 to T - 1."""
        w, eps = self._weight, self._config["rms_norm_eps"]
        own = f"{self._prefix}embed_tokens.weight" in self._tensors
        embedding = (
            w("embed_tokens") if own else self._tensors["model.embed_tokens.weight"].double()
        )
        head = w("shared_head.head") if own else self._tensors["lm_head.weight"].double()
        joined = torch.cat(
            (
                _rms(embedding[next_token_T], w("enorm"), eps),
                _rms(hidden_TH.double(), w("hnorm"), eps),
            ),
            -1,
        )
        x = joined @ w("eh_proj").T
        x = x + self._attention(_rms(x, w("input_layernorm"), eps))
        x = x + self._experts(_rms(x, w("post_attention_layernorm"), eps))
        states = _rms(x, w("shared_head.norm"), eps)
        return states @ head.T, states

    def _attention(self, x: torch.Tensor) -> torch.Tensor:
        c, w = self._config, self._weight
        nope, rope, value = c["qk_nope_head_dim"], c["qk_rope_head_dim"], c["v_head_dim"]
        q_lora = _rms(x @ w("self_attn.q_a_proj").T, w("self_attn.q_a_layernorm"), 1e-6)
        kv_a = x @ w("self_attn.kv_a_proj_with_mqa").T
        latent = _rms(kv_a[:, :-rope], w("self_attn.kv_a_layernorm"), 1e-6)
        shared_key = self._rotated(kv_a[:, -rope:])
        is_seen = self._seen(x, q_lora)
        heads = []
        for head in range(c["num_attention_heads"]):
            q_rows = slice(head * (nope + rope), (head + 1) * (nope + rope))
            query = q_lora @ w("self_attn.q_b_proj")[q_rows].T
            query = torch.cat((query[:, :nope], self._rotated(query[:, nope:])), -1)
            kv_rows = w("self_attn.kv_b_proj")[head * (nope + value) : (head + 1) * (nope + value)]
            key = torch.cat((latent @ kv_rows[:nope].T, shared_key), -1)
            score = query @ key.T / math.sqrt(nope + rope)
            weight = score.masked_fill(~is_seen, -torch.inf).softmax(-1)
            heads.append(weight @ (latent @ kv_rows[nope:].T))
        return torch.cat(heads, -1) @ w("self_attn.o_proj").T

    def _seen(self, x: torch.Tensor, q_lora: torch.Tensor) -> torch.Tensor:
        c, w, num_rows = self._config, self._weight, x.shape[0]
        is_past = torch.ones(num_rows, num_rows, dtype=torch.bool).tril()
        if "index_topk" not in c:
            return is_past
        size, rope = c["index_head_dim"], c["qk_rope_head_dim"]
        key = x @ w("self_attn.indexer.wk").T
        centered = key - key.mean(-1, keepdim=True)
        key = centered / (centered.square().mean(-1, keepdim=True) + 1e-6).sqrt()
        key = key * w("self_attn.indexer.k_norm") + w("self_attn.indexer.k_norm", "bias")
        key = torch.cat((self._rotated(key[:, :rope]), key[:, rope:]), -1)
        head_weight = x @ w("self_attn.indexer.weights_proj").T
        score = torch.zeros(num_rows, num_rows, dtype=torch.float64)
        for head in range(c["index_n_heads"]):
            query = q_lora @ w("self_attn.indexer.wq_b")[head * size : (head + 1) * size].T
            query = torch.cat((self._rotated(query[:, :rope]), query[:, rope:]), -1)
            score += head_weight[:, head, None] * (query @ key.T).clamp(min=0)
        best = score.masked_fill(~is_past, -torch.inf).argsort(-1, descending=True)
        chosen = torch.zeros_like(is_past).scatter(1, best[:, : c["index_topk"]], True)
        return chosen & is_past

    def _experts(self, x: torch.Tensor) -> torch.Tensor:
        c, w = self._config, self._weight
        score = (x @ w("mlp.gate").T).sigmoid()
        preference = score + w("mlp.gate", "e_score_correction_bias")
        rows = []
        for row, row_score, order in zip(
            x, score, preference.argsort(-1, descending=True), strict=True
        ):
            chosen = order[: c["num_experts_per_tok"]].tolist()
            total = sum(row_score[e] for e in chosen)
            routed = sum(row_score[e] / total * self._mlp(f"mlp.experts.{e}", row) for e in chosen)
            rows.append(c["routed_scaling_factor"] * routed + self._mlp("mlp.shared_experts", row))
        return torch.stack(rows)

    def _mlp(self, name: str, x: torch.Tensor) -> torch.Tensor:
        w = self._weight
        gate = w(f"{name}.gate_proj") @ x
        return w(f"{name}.down_proj") @ (gate * gate.sigmoid() * (w(f"{name}.up_proj") @ x))

    def _rotated(self, x: torch.Tensor) -> torch.Tensor:
        """Rotate pairs (2i, 2i + 1) of [T, rope] by the row's position."""
        theta = self._config["rope_parameters"]["rope_theta"]
        turned = torch.empty_like(x)
        for pair in range(x.shape[1] // 2):
            angle = torch.arange(x.shape[0]).double() * theta ** (-2 * pair / x.shape[1])
            first, second = x[:, 2 * pair], x[:, 2 * pair + 1]
            turned[:, 2 * pair] = first * angle.cos() - second * angle.sin()
            turned[:, 2 * pair + 1] = first * angle.sin() + second * angle.cos()
        return turned

    def _weight(self, name: str, kind: str = "weight") -> torch.Tensor:
        return self._tensors[f"{self._prefix}{name}.{kind}"].double()


def _rms(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    return x / (x.square().mean(-1, keepdim=True) + eps).sqrt() * weight
