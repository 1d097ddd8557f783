"""A quantized checkpoint is the model of its dequantized weights."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from compressed_tensors.compressors.pack_quantized import PackedQuantizationCompressor
from safetensors.torch import load_file

from support.paged_batch import PagedRun
from support.quantized_copies import (
    FILE,
    INT4_SCHEME,
    Copy,
    Tensors,
    dequantized_copy,
    fp8_copy,
    int4_copy,
    rewritten,
)
from support.tiny_checkpoints import TinyCheckpoint
from tenantry_runtime.models.loader import load_model

Checkpoints = Callable[[str], TinyCheckpoint]

# the largest: one quantized matrix per expert, whole blocks, partial blocks, blocks across heads
NAMES = ["kimi_k2", "kimi_k25", "glm52", "glm47_flash", "glm5_wide"]
FORMATS = [
    pytest.param(int4_copy(torch.int32), id="int4"),
    pytest.param(int4_copy(torch.int64), id="int4-int64"),
    pytest.param(fp8_copy, id="fp8"),
]


def logits_of(
    directory: Path, token_ids: torch.Tensor, dtype: torch.dtype = torch.float32
) -> torch.Tensor:
    return PagedRun(load_model(directory, dtype=dtype)).read(token_ids)


@pytest.mark.parametrize("copy", FORMATS)
@pytest.mark.parametrize("name", NAMES)
def test_logits_are_those_of_the_dequantized_weights(
    checkpoints: Checkpoints, tmp_path: Path, name: str, copy: Copy
) -> None:
    tiny = checkpoints(name)
    copy(tiny.directory, tmp_path / "quantized")
    dequantized_copy(tmp_path / "quantized", tmp_path / "dense")
    token_ids = tiny.answers[2].token_ids
    quantized = logits_of(tmp_path / "quantized", token_ids)
    assert torch.equal(quantized, logits_of(tmp_path / "dense", token_ids))
    # and something was quantized
    assert (quantized - tiny.answers[2].logits).abs().max() > 0.01


def test_int4_experts_in_bfloat16_are_those_that_compressed_tensors_decompresses(
    checkpoints: Checkpoints, tmp_path: Path
) -> None:
    def decompressed(tensors: Tensors) -> Tensors:
        dense = {name: tensor for name, tensor in tensors.items() if name.endswith("weight")}
        for name in tensors:
            stem = name.removesuffix("_packed")
            if stem != name:
                parts = {
                    f"weight_{part}": tensors[f"{stem}_{part}"]
                    for part in ("packed", "scale", "shape")
                }
                dense[stem] = PackedQuantizationCompressor.decompress(parts, INT4_SCHEME)["weight"]
            elif name.endswith("e_score_correction_bias"):
                dense[name] = tensors[name]
        return dense

    tiny = checkpoints("kimi_k2")
    int4_copy(torch.int32)(tiny.directory, tmp_path / "quantized")
    rewritten(tmp_path / "quantized", tmp_path / "dense", decompressed)
    token_ids = tiny.answers[2].token_ids
    quantized = logits_of(tmp_path / "quantized", token_ids, torch.bfloat16)
    assert torch.equal(quantized, logits_of(tmp_path / "dense", token_ids, torch.bfloat16))


def test_the_tensors_decide_what_is_quantized_not_the_configuration(
    checkpoints: Checkpoints, tmp_path: Path
) -> None:
    tiny = checkpoints("kimi_k2")
    int4_copy(torch.int32)(tiny.directory, tmp_path / "quantized")
    token_ids = tiny.answers[2].token_ids
    expected = logits_of(tmp_path / "quantized", token_ids)
    config_file = tmp_path / "quantized" / "config.json"
    config = json.loads(config_file.read_text())
    config["quantization_config"] = {"quant_method": "fp8", "weight_block_size": [128, 128]}
    config_file.write_text(json.dumps(config))
    assert torch.equal(logits_of(tmp_path / "quantized", token_ids), expected)


def test_the_wide_checkpoint_has_the_blocks_that_are_hard(
    checkpoints: Checkpoints, tmp_path: Path
) -> None:
    fp8_copy(checkpoints("glm5_wide").directory, tmp_path / "fp8")
    tensors = load_file(tmp_path / "fp8" / FILE)
    attention = "model.layers.0.self_attn"
    assert tensors[f"{attention}.kv_a_proj_with_mqa.weight"].shape == (144, 192)
    assert tensors[f"{attention}.kv_a_proj_with_mqa.weight_scale_inv"].shape == (2, 2)
    # 224 rows per head: every other head begins in the middle of a block
    assert tensors[f"{attention}.kv_b_proj.weight"].shape == (8 * 224, 128)
    assert tensors[f"{attention}.kv_b_proj.weight_scale_inv"].shape == (14, 1)
