"""A converted checkpoint is the model of its dequantized weights: here, and in transformers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import save_file

from support.conversions import Sources, all_tensors, converted
from support.paged_batch import PagedRun
from support.quantized_copies import FILE, dequantized
from support.released_layouts import read_config, write_config
from support.tiny_checkpoints import TinyCheckpoint, prompt
from tenantry_runtime.models.convert.recipe import Rest
from tenantry_runtime.models.loader import load_model

Checkpoints = Callable[[str], TinyCheckpoint]


def dense_copy(converted_directory: Path, destination: Path) -> None:
    """Write what the files mean, decoded by NumPy, as a checkpoint without quantization."""
    destination.mkdir()
    tensors = dict(dequantized(all_tensors(converted_directory)))
    save_file(tensors, destination / FILE, metadata={"format": "pt"})
    config = read_config(converted_directory)
    del config["quantization_config"]
    write_config(destination, config)


def logits_of(directory: Path, token_ids: torch.Tensor) -> torch.Tensor:
    return PagedRun(load_model(directory)).read(token_ids)


@pytest.mark.parametrize("rest", ["bf16", "fp8"])
@pytest.mark.parametrize("name", ["glm52", "glm5_wide", "glm47_flash"])
def test_logits_here_are_those_of_the_dequantized_weights(
    sources: Sources, tmp_path: Path, name: str, rest: Rest
) -> None:
    converted(sources(name), tmp_path / "out", rest=rest)
    dense_copy(tmp_path / "out", tmp_path / "dense")
    token_ids = prompt(70, seed=3)
    expected = logits_of(tmp_path / "dense", token_ids)
    torch.testing.assert_close(logits_of(tmp_path / "out", token_ids), expected)
    # and something was quantized
    assert (expected - logits_of(sources(name), token_ids)).abs().max() > 0.01


def transformers_logits(
    directory: Path, token_ids: torch.Tensor
) -> tuple[torch.Tensor, dict[str, Any]]:
    # its annotations know one result only
    load: Any = transformers.AutoModelForCausalLM.from_pretrained
    model, report = load(
        directory, dtype=torch.bfloat16, attn_implementation="eager", output_loading_info=True
    )
    with torch.no_grad():
        logits: torch.Tensor = model.eval()(input_ids=token_ids[None], use_cache=False).logits[0]
    return logits, report


def assert_transformers_agrees(directory: Path, dense: Path, model_type: str) -> None:
    assert read_config(directory)["model_type"] == model_type
    token_ids = prompt(70, seed=4)
    logits, report = transformers_logits(directory, token_ids)
    assert not report["missing_keys"]
    assert not report["mismatched_keys"]
    # the tiny MTP layer, whose number transformers does not know
    num_layers = read_config(directory)["num_hidden_layers"]
    assert all(f".layers.{num_layers}." in key for key in report["unexpected_keys"])
    expected, _ = transformers_logits(dense, token_ids)
    assert logits.isfinite().all()
    assert torch.equal(logits, expected)


@pytest.mark.parametrize(
    ("name", "model_type"),
    [
        ("glm52", "glm_moe_dsa"),
        ("glm5_wide", "glm_moe_dsa"),
        ("glm47_flash", "glm4_moe_lite"),
    ],
)
def test_transformers_reads_a_glm_with_a_bf16_rest(
    sources: Sources, tmp_path: Path, name: str, model_type: str
) -> None:
    converted(sources(name), tmp_path / "out")
    dense_copy(tmp_path / "out", tmp_path / "dense")
    assert_transformers_agrees(tmp_path / "out", tmp_path / "dense", model_type)


@pytest.mark.parametrize("name", ["kimi_k2", "kimi_grouped"])
def test_transformers_reads_a_kimi_with_a_bf16_rest(
    checkpoints: Checkpoints, tmp_path: Path, name: str
) -> None:
    converted(checkpoints(name).directory, tmp_path / "out")
    dense_copy(tmp_path / "out", tmp_path / "dense")
    assert_transformers_agrees(tmp_path / "out", tmp_path / "dense", "deepseek_v3")


def test_transformers_refuses_an_fp8_rest_rather_than_read_noise(
    sources: Sources, tmp_path: Path
) -> None:
    converted(sources("glm52"), tmp_path / "out", rest="fp8")
    with pytest.raises(ValueError, match="quant_method"):
        transformers_logits(tmp_path / "out", prompt(10, seed=4))


def test_the_mtp_layer_is_still_there(sources: Sources, tmp_path: Path) -> None:
    converted(sources("glm52"), tmp_path / "out")
    assert len(load_model(tmp_path / "out").mtp) == 1
