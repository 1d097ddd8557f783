"""Training runs on the layers that serving runs on, and what it writes is what serving reads."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from support.conversions import converted
from tenantry_recipes.nano import dims
from tenantry_recipes.nano.dense import DenseAttend
from tenantry_recipes.nano.examples import PackedRow
from tenantry_recipes.nano.export import read_checkpoint
from tenantry_recipes.nano.models import NanoModel
from tenantry_recipes.nano.parameters import ParameterSource
from tenantry_recipes.nano.phases import Phase, phases
from tenantry_recipes.nano.train import Trainer
from tenantry_runtime.cache.checked import CheckedBatch
from tenantry_runtime.cache.formats import SERVED_FORMATS
from tenantry_runtime.cache.paged import PagedCache
from tenantry_runtime.models import Decoder, ForwardBatch, load_config, load_model
from tenantry_runtime.models.config import Family

VOCABULARY = {"vocab_size": 64, "eos_token_id": 1, "pad_token_id": 2}
SMALL: dict[str, Any] = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "moe_intermediate_size": 32,
    "q_lora_rank": 32,
    "kv_lora_rank": 32,
    "qk_nope_head_dim": 16,
    "qk_rope_head_dim": 16,
    "v_head_dim": 16,
}
STEADY = Phase(
    name="steady", num_steps=100, row_tokens=48, rows_per_step=2, start_rate=1e-2, end_rate=1e-2
)


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


def a_model(family: Family, directory: Path) -> NanoModel:
    if family == "kimi":
        config = dims.kimi_config(VOCABULARY)
        config["text_config"].update(SMALL)
    else:
        config = dims.glm_config(VOCABULARY)
        config.update(SMALL, index_topk=8, index_head_dim=24)
    directory.mkdir(exist_ok=True)
    (directory / "config.json").write_text(json.dumps(config))
    return NanoModel(
        name="small", family=family, config=config, decoder_config=load_config(directory)
    )


def a_row(seed: int, length: int = 48) -> PackedRow:
    """Two documents that repeat their first half, which is what can be learned of them."""
    rng = np.random.default_rng(seed)
    half = rng.integers(3, 64, length // 4)
    ids = np.concatenate([half, half, half[::-1], half[::-1]])
    is_target = np.zeros(length, dtype=np.bool_)
    is_target[length // 4 : length // 2] = True
    return PackedRow(token_ids=ids, is_target=is_target, starts=[0, length // 2])


def rows(step: int) -> list[PackedRow]:
    return [a_row(2 * step), a_row(2 * step + 1)]


@pytest.mark.parametrize("family", ["kimi", "glm"])
def test_serving_gives_the_logits_of_training_on_the_same_weights(
    family: Family, tmp_path: Path
) -> None:
    model = a_model(family, tmp_path)
    trainer = Trainer(model, seed=1)
    for step in range(3):
        trainer.step(STEADY, rows(step))
    trainer.export(tmp_path)
    # weights as stored, since one that rounds differently may send a row to another expert
    trainer = Trainer(model, seed=2)
    trainer.start_from(tmp_path)
    token_ids = torch.from_numpy(a_row(99).token_ids)
    positions = torch.arange(len(token_ids))

    attend = DenseAttend(
        [0, len(token_ids)],
        learn_index=False,
        is_sparse=family == "glm",
        generator=torch.Generator(),
    )
    with torch.no_grad():
        states = trainer.decoder.norm(trainer.decoder.trunk(token_ids, positions, attend))
        trained = trainer.decoder.head(states)

    served = load_model(tmp_path)
    batch = ForwardBatch(
        token_ids_T=token_ids,
        positions_T=positions,
        cu_len=(0, len(token_ids)),
        logit_rows_R=positions,
    )
    checked = CheckedBatch(
        page_table_SL=torch.zeros(1, 1, dtype=torch.int64),
        read_len_S=(len(token_ids),),
        write_slot_T=positions,
    )
    float32 = SERVED_FORMATS["float32"]
    cache = PagedCache.allocate(served.config, num_pages=1, cache_format=float32)
    logits = served.logits(served.forward(batch, checked, cache))

    assert (logits - trained).abs().max() < 2e-5


@pytest.mark.parametrize("family", ["kimi", "glm"])
def test_a_resumed_run_goes_on_as_if_it_had_not_stopped(family: Family, tmp_path: Path) -> None:
    model = a_model(family, tmp_path)
    whole = Trainer(model, seed=1)
    for step in range(4):
        whole.step(STEADY, rows(step))

    first = Trainer(model, seed=1)
    for step in range(2):
        first.step(STEADY, rows(step))
    first.save(tmp_path / "state.pt")
    second = Trainer(model, seed=7)
    second.load(tmp_path / "state.pt")
    for step in range(2, 4):
        second.step(STEADY, rows(step))

    assert second.step_number == 4
    for name, parameter in whole.source.parameters.items():
        assert torch.equal(parameter, second.source.parameters[name]), name


def test_training_learns_to_repeat_what_stands_in_the_prompt(tmp_path: Path) -> None:
    trainer = Trainer(a_model("kimi", tmp_path), seed=1)
    reports = [trainer.step(STEADY, rows(step % 2)) for step in range(40)]

    assert reports[-1].loss < 0.5 * reports[0].loss
    assert reports[-1].accuracy > 0.5


def test_the_indexer_learns_where_attention_goes_and_moves_nothing_else(tmp_path: Path) -> None:
    model = a_model("glm", tmp_path)
    phase = Phase(
        name="index",
        num_steps=100,
        row_tokens=48,
        rows_per_step=2,
        start_rate=1e-2,
        end_rate=1e-2,
        learns_index=True,
    )
    with_index, without = Trainer(model, seed=1), Trainer(model, seed=1)
    with_index.step(phase, rows(0))
    without.step(STEADY, rows(0))

    for name, parameter in without.source.parameters.items():
        moved_alike = torch.equal(parameter, with_index.source.parameters[name])
        assert moved_alike != (".indexer." in name and ".layers.6." not in name), name

    losses = [with_index.step(phase, rows(0)).index_loss for _ in range(20)]
    assert losses[-1] < losses[0]


def test_an_exported_model_can_be_trained_on(tmp_path: Path) -> None:
    model = a_model("kimi", tmp_path)
    trainer = Trainer(model, seed=1)
    trainer.step(STEADY, rows(0))
    trainer.export(tmp_path)

    further = Trainer(model, seed=2)
    further.start_from(tmp_path)

    # what is written is what training with rounding computed with, bit for bit
    name = "model.layers.1.mlp.experts.3.up_proj"
    assert torch.equal(further.source.parameters[f"{name}.weight"], trainer.source.rounded(name))
    embedding = further.source.parameters["model.embed_tokens.weight"]
    stored = trainer.source.parameters["model.embed_tokens.weight"].bfloat16().float()
    assert torch.equal(embedding, stored)


def test_glm_learns_with_what_its_files_hold_and_with_what_a_conversion_makes_of_it(
    tmp_path: Path,
) -> None:
    trainer = Trainer(a_model("glm", tmp_path), seed=1)
    rounding = replace(STEADY, is_rounding=True)
    expert, other = "model.layers.1.mlp.experts.3.up_proj", "model.layers.1.self_attn.o_proj"

    read_back: list[tuple[torch.Tensor, torch.Tensor]] = []
    for step in range(2):
        trainer.step(rounding, rows(step))
        read_back.append((trainer.source.rounded(expert), trainer.source.rounded(other)))
        trainer.export(tmp_path / str(step))
    converted(tmp_path / "1", tmp_path / "int4", rest="fp8")

    for directory, (expert_weight, other_weight) in zip(("0", "int4"), read_back, strict=True):
        further = ParameterSource("glm", seed=2)
        Decoder(trainer.model.decoder_config, further)
        read_checkpoint(tmp_path / directory, "glm", further)
        assert torch.equal(further.parameters[f"{expert}.weight"], expert_weight), directory
        assert torch.equal(further.parameters[f"{other}.weight"], other_weight), directory


def test_balancing_prefers_experts_that_few_rows_chose() -> None:
    source = ParameterSource("kimi", seed=1)
    bias = source.tensor("model.layers.1.mlp.gate.e_score_correction_bias", (4,))
    source.expert_loads["model.layers.1.mlp.experts"] = torch.tensor([10, 0, 4, 6])

    source.balance(0.5)

    assert bias.tolist() == [-0.5, 0.5, 0.5, -0.5]


def test_documents_of_one_row_do_not_see_each_other(tmp_path: Path) -> None:
    trainer = Trainer(a_model("kimi", tmp_path), seed=1)
    ids = torch.from_numpy(a_row(5).token_ids)
    changed = ids.clone()
    changed[:24] = changed[:24].flip(0)
    positions = torch.arange(24).repeat(2)

    def states(token_ids: torch.Tensor) -> torch.Tensor:
        attend = DenseAttend(
            [0, 24, 48], learn_index=False, is_sparse=False, generator=torch.Generator()
        )
        with torch.no_grad():
            return trainer.decoder.trunk(token_ids, positions, attend)

    assert torch.allclose(states(ids)[24:], states(changed)[24:], atol=1e-6)


def test_the_curriculum_ends_at_rate_zero_with_the_stored_format() -> None:
    for family in ("kimi", "glm"):
        plan = phases(family)
        assert [phase.row_tokens for phase in plan] == [512, 4096, 4096]
        last = plan[-1]
        assert last.is_rounding and last.is_sparse == (family == "glm")
        assert last.learning_rate(last.num_steps) == 0.0
        assert all(plan[n].end_rate == plan[n + 1].start_rate for n in range(len(plan) - 1))


def test_nano_dimensions_cut_fp8_blocks_on_every_axis() -> None:
    config = dims.glm_config(VOCABULARY)

    assert config["hidden_size"] % 128 != 0
    assert (config["kv_lora_rank"] + config["qk_rope_head_dim"]) % 128 != 0
    assert (config["qk_nope_head_dim"] + config["v_head_dim"]) % 128 != 0
    assert config["index_topk"] * 8 <= dims.CONTEXT_TOKENS
