"""The layouts that released directories come in give the same decoder."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from support.paged_batch import PagedRun
from support.quantized_copies import FILE, rewritten
from support.released_layouts import (
    moonshots_form,
    read_config,
    sharded_copy,
    with_tensors,
    write_config,
)
from support.tiny_checkpoints import BUILDERS, TinyCheckpoint, prompt
from tenantry_runtime.errors import CheckpointError
from tenantry_runtime.models.loader import load_config, load_model

Checkpoints = Callable[[str], TinyCheckpoint]

EVERY_CHECKPOINT = pytest.mark.parametrize("name", BUILDERS)


def logits_of(directory: Path) -> torch.Tensor:
    return PagedRun(load_model(directory)).read(prompt(20, 1))


@EVERY_CHECKPOINT
@pytest.mark.parametrize("num_shards", [1, 3])
def test_shards_hold_what_one_file_holds(
    checkpoints: Checkpoints, tmp_path: Path, name: str, num_shards: int
) -> None:
    directory = checkpoints(name).directory
    sharded_copy(directory, tmp_path / "sharded", num_shards=num_shards)
    assert torch.equal(logits_of(tmp_path / "sharded"), logits_of(directory))


def test_kimi_k2s_stray_inverse_frequencies_are_passed_over(
    checkpoints: Checkpoints, tmp_path: Path
) -> None:
    directory = checkpoints("kimi_k2").directory
    shutil.copytree(directory, tmp_path / "model")
    stray = {
        f"model.layers.{layer}.self_attn.rotary_emb.inv_freq": torch.zeros(56) for layer in range(3)
    }
    with_tensors(tmp_path / "model", stray)
    assert torch.equal(logits_of(tmp_path / "model"), logits_of(directory))


def test_a_glm_checkpoint_has_no_stray_tensors_to_pass_over(
    checkpoints: Checkpoints, tmp_path: Path
) -> None:
    name = "model.layers.0.self_attn.rotary_emb.inv_freq"
    shutil.copytree(checkpoints("glm5").directory, tmp_path / "model")
    with_tensors(tmp_path / "model", {name: torch.zeros(32)})
    with pytest.raises(CheckpointError, match="is not part of the model") as caught:
        load_model(tmp_path / "model")
    assert caught.value.tensor == name


def test_kimi_k2_5s_vision_tower_is_passed_over(checkpoints: Checkpoints) -> None:
    names = load_file(checkpoints("kimi_k25").directory / FILE)
    # the files that every other test here reads do hold one
    assert any(name.startswith("vision_tower.encoder.blocks.") for name in names)
    assert any(name.startswith("mm_projector.proj.") for name in names)


def test_kimi_k2_5s_text_tensors_are_those_below_language_model(
    checkpoints: Checkpoints, tmp_path: Path
) -> None:
    directory = checkpoints("kimi_k25").directory
    assert "language_model.lm_head.weight" in load_file(directory / FILE)
    rewritten(
        directory,
        tmp_path / "model",
        lambda tensors: {
            name.removeprefix("language_model."): tensor for name, tensor in tensors.items()
        },
    )
    with pytest.raises(CheckpointError, match="is missing") as caught:
        load_model(tmp_path / "model")
    assert caught.value.tensor == "language_model.model.embed_tokens.weight"


@pytest.mark.parametrize("name", ["kimi_k2", "kimi_k2_thinking", "kimi_grouped"])
def test_moonshots_configuration_is_transformers_own(
    checkpoints: Checkpoints, tmp_path: Path, name: str
) -> None:
    directory = checkpoints(name).directory
    write_config(tmp_path, moonshots_form(read_config(directory)))
    released, rewritten_by_transformers = load_config(tmp_path), load_config(directory)
    assert released.model_type == "kimi_k2"
    assert released == dataclasses.replace(rewritten_by_transformers, model_type="kimi_k2")


def test_moonshots_multimodal_configuration_is_transformers_own(
    checkpoints: Checkpoints, tmp_path: Path
) -> None:
    directory = checkpoints("kimi_k25").directory
    config = read_config(directory)
    released = {
        "architectures": ["KimiK25ForConditionalGeneration"],
        "media_placeholder_token_id": 305,
        "model_type": "kimi_k25",
        "text_config": moonshots_form(config["text_config"]),
        "vision_config": {"vt_hidden_size": 64, "vt_num_hidden_layers": 1},
    }
    write_config(tmp_path, released)
    assert load_config(tmp_path) == load_config(directory)


def test_a_rope_without_scaling_is_plain_in_both_forms(
    checkpoints: Checkpoints, tmp_path: Path
) -> None:
    config = read_config(checkpoints("kimi_k2").directory)
    config["rope_parameters"] = {"rope_type": "default", "rope_theta": 50000.0}
    write_config(tmp_path, config)
    plain = load_config(tmp_path)
    assert plain.rope.yarn is None
    del config["rope_parameters"]
    write_config(tmp_path, config | {"rope_theta": 50000.0, "rope_scaling": None})
    assert load_config(tmp_path) == plain


@pytest.mark.parametrize("name", ["glm5", "glm52"])
def test_index_sharing_is_the_same_by_list_and_by_frequency(
    checkpoints: Checkpoints, tmp_path: Path, name: str
) -> None:
    directory = checkpoints(name).directory
    config = read_config(directory)
    del config["indexer_types"]
    write_config(tmp_path, config)
    assert load_config(tmp_path) == load_config(directory)


def test_another_offset_of_index_sharing_does_not_fit_the_tensors(
    checkpoints: Checkpoints, tmp_path: Path
) -> None:
    shutil.copytree(checkpoints("glm52").directory, tmp_path / "model")
    config = read_config(tmp_path / "model")
    del config["indexer_types"]
    write_config(tmp_path / "model", config | {"index_skip_topk_offset": 2})
    with pytest.raises(CheckpointError, match="is missing") as caught:
        load_model(tmp_path / "model")
    assert caught.value.tensor == "model.layers.5.self_attn.indexer.wq_b.weight"


def test_a_revision_names_the_directorys_content(checkpoints: Checkpoints, tmp_path: Path) -> None:
    directory = checkpoints("kimi_k2").directory
    shutil.copytree(directory, tmp_path / "same")
    shutil.copytree(directory, tmp_path / "config")
    write_config(tmp_path / "config", read_config(directory) | {"comment": "changed"})
    sharded_copy(directory, tmp_path / "sharded")
    revisions = [
        load_model(path).revision
        for path in (directory, tmp_path / "same", tmp_path / "config", tmp_path / "sharded")
    ]
    assert revisions[0] == revisions[1]
    assert len(set(revisions)) == 3
    assert all(len(revision) == 64 for revision in revisions)


def test_weights_of_the_same_shapes_have_another_revision(
    checkpoints: Checkpoints, tmp_path: Path
) -> None:
    directory = checkpoints("kimi_k2").directory
    shutil.copytree(directory, tmp_path / "trained")
    tensors = load_file(directory / "model.safetensors")
    tensors["model.layers.1.self_attn.o_proj.weight"].mul_(1.5)
    save_file(tensors, tmp_path / "trained" / "model.safetensors", metadata={"format": "pt"})

    assert load_model(tmp_path / "trained").revision != load_model(directory).revision
