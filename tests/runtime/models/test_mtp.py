"""The multi-token-prediction layer of GLM checkpoints: loaded, checked, and right."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from support.mtp_checkpoints import PlainMtp, drafts, mtp_copy
from support.paged_batch import PagedRun
from support.quantized_copies import FILE, Tensors, rewritten, without
from support.tiny_checkpoints import TinyCheckpoint, prompt
from tenantry_runtime.errors import CheckpointError
from tenantry_runtime.models.loader import load_model

Checkpoints = Callable[[str], TinyCheckpoint]

NUM_TOKENS = 30
GLM = pytest.mark.parametrize("name", ["glm5", "glm52", "glm47_flash"])


def some_states(width: int) -> torch.Tensor:
    return torch.randn(NUM_TOKENS, width, generator=torch.Generator().manual_seed(4))


def drafted(directory: Path) -> tuple[torch.Tensor, torch.Tensor]:
    decoder = load_model(directory)
    hidden = some_states(decoder.config.hidden_dim)
    return drafts(decoder, hidden, prompt(NUM_TOKENS, 2))


def expected(directory: Path) -> tuple[torch.Tensor, torch.Tensor]:
    config = json.loads((directory / "config.json").read_text())
    plain = PlainMtp(load_file(directory / FILE), config)
    return plain.logits_and_states(some_states(config["hidden_size"]), prompt(NUM_TOKENS, 2))


@GLM
def test_drafts_are_what_the_mathematics_says(
    checkpoints: Checkpoints, tmp_path: Path, name: str
) -> None:
    mtp_copy(checkpoints(name).directory, tmp_path / "mtp")
    logits, states = drafted(tmp_path / "mtp")
    expected_logits, expected_states = expected(tmp_path / "mtp")
    torch.testing.assert_close(logits.double(), expected_logits, rtol=0, atol=2e-5)
    torch.testing.assert_close(states.double(), expected_states, rtol=0, atol=2e-5)


@GLM
def test_the_hidden_state_before_the_embedding_shows_in_the_drafts(
    checkpoints: Checkpoints, tmp_path: Path, name: str
) -> None:
    def swapped(tensors: Tensors) -> Tensors:
        return {
            key: tensor.roll(64, 1) if key.endswith("eh_proj.weight") else tensor
            for key, tensor in tensors.items()
        }

    mtp_copy(checkpoints(name).directory, tmp_path / "mtp")
    rewritten(tmp_path / "mtp", tmp_path / "swapped", swapped)
    difference = drafted(tmp_path / "swapped")[0] - expected(tmp_path / "mtp")[0]
    assert difference.abs().max() > 0.1


@GLM
def test_the_decoder_itself_is_unchanged_by_an_mtp_layer(
    checkpoints: Checkpoints, tmp_path: Path, name: str
) -> None:
    mtp_copy(checkpoints(name).directory, tmp_path / "mtp")
    extended, original = load_model(tmp_path / "mtp"), load_model(checkpoints(name).directory)
    assert (len(extended.mtp), len(original.mtp)) == (1, 0)
    assert extended.revision != original.revision
    token_ids = prompt(NUM_TOKENS, 2)
    assert torch.equal(PagedRun(extended).read(token_ids), PagedRun(original).read(token_ids))


@pytest.mark.parametrize("name", ["glm5", "glm47_flash"])
def test_each_missing_mtp_tensor_is_named(
    checkpoints: Checkpoints, tmp_path: Path, name: str
) -> None:
    mtp_copy(checkpoints(name).directory, tmp_path / "mtp")
    tensors = load_file(tmp_path / "mtp" / FILE)
    depth = load_model(tmp_path / "mtp").config.num_layers
    added = [key for key in tensors if key.startswith(f"model.layers.{depth}.")]
    assert len(added) > 40
    for n, key in enumerate(added):
        if ".experts." in key and ".experts.7." not in key:
            continue
        rewritten(tmp_path / "mtp", tmp_path / str(n), without(key))
        with pytest.raises(CheckpointError, match="is missing") as caught:
            load_model(tmp_path / str(n))
        assert caught.value.tensor == key


def test_mtp_tensors_that_the_configuration_does_not_announce_are_refused(
    checkpoints: Checkpoints, tmp_path: Path
) -> None:
    mtp_copy(checkpoints("glm5").directory, tmp_path / "mtp")
    original = checkpoints("glm5").directory / "config.json"
    (tmp_path / "mtp" / "config.json").write_bytes(original.read_bytes())
    with pytest.raises(CheckpointError, match="is not part of the model") as caught:
        load_model(tmp_path / "mtp")
    assert caught.value.tensor is not None and caught.value.tensor.startswith("model.layers.8.")
