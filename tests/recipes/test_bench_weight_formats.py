"""The benchmark of weight formats: every contender steps, and reads what its format takes."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from tenantry_recipes.bench import weight_formats
from tenantry_recipes.bench.weight_formats import (
    CONTENDERS,
    RandomSource,
    glm_layers,
    measure,
    read_bytes,
)
from tenantry_runtime.models import Decoder
from tenantry_runtime.models.config import ModelConfig


def narrow_layers() -> ModelConfig:
    glm = glm_layers(2, 4)
    assert glm.indexer is not None
    return replace(
        glm,
        hidden_dim=64,
        num_heads=2,
        q_lora_rank=64,
        kv_lora_rank=64,
        nope_dim=32,
        rope_dim=32,
        value_dim=32,
        vocab_size=256,
        moe=replace(glm.moe, intermediate_dim=32, num_experts_per_token=2),
        indexer=replace(glm.indexer, num_heads=2, head_dim=64),
    )


def test_every_contender_takes_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weight_formats, "SUM_VALUES", 1000)
    torch.set_num_threads(1)
    config = narrow_layers()
    decoders = {name: Decoder(config, RandomSource({}, form)) for name, form in CONTENDERS.items()}
    rows = measure(config, decoders, num_sequences=2, num_rounds=3)
    assert [row.contender for row in rows] == list(CONTENDERS)
    assert all(row.step_s > 0 and row.rate > 0 and row.share.median > 0 for row in rows)
    assert rows[0].against_bf16 == (1, 1, 1)


def test_two_layers_of_glm_read_what_their_formats_take() -> None:
    config = glm_layers(2, 16)
    values = 2 * 3 * 6144 * 2048

    def experts_read(name: str, num_sequences: int) -> float:
        whole = read_bytes(config, CONTENDERS[name], num_sequences)
        none = read_bytes(config, CONTENDERS[name], 0)
        return whole - none

    # one token takes 8 experts; 4 bits and a BF16 scale per 32 are 4.5 bits
    assert experts_read("bf16", 1) == 8 * values * 2
    assert experts_read("int4", 1) == 8 * values * 4.5 / 8
    assert experts_read("fp8", 1) == 8 * values * (1 + 4 / 128**2)
    assert experts_read("int4", 100) == pytest.approx(16 * values * 4.5 / 8)
