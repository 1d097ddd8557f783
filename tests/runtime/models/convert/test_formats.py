"""What a conversion writes, read by other programs: safetensors, NumPy, compressed-tensors."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from compressed_tensors.quantization import QuantizationConfig
from safetensors.torch import load_file

from support.conversions import (
    ACCOMPANYING,
    SHARD_BYTES,
    Sources,
    all_tensors,
    converted,
)
from support.quantized_copies import FILE, Tensors, dequantized
from support.released_layouts import read_config, write_config
from support.tiny_checkpoints import TinyCheckpoint
from tenantry_runtime.models.convert.recipe import Rest
from tenantry_runtime.models.loader import load_config
from tenantry_runtime.models.sizes import WeightFormat, weight_bytes

Checkpoints = Callable[[str], TinyCheckpoint]

ROUTED_EXPERT = re.compile(r".*\.mlp\.experts\.\d+\.(gate|up|down)_proj\.weight")
NAMES = ["glm52", "glm5_wide", "glm47_flash"]
RESTS: list[Rest] = ["bf16", "fp8"]


def rms(values: torch.Tensor) -> float:
    return float(values.square().mean().sqrt())


def bits(tensor: torch.Tensor) -> bytes:
    return tensor.contiguous().view(torch.uint8).numpy().tobytes()


def source_of(sources: Sources, name: str, tmp_path: Path) -> tuple[Path, Tensors]:
    return sources(name), all_tensors(sources(name))


@pytest.mark.parametrize("rest", RESTS)
@pytest.mark.parametrize("name", NAMES)
def test_routed_experts_and_nothing_else_are_int4(
    sources: Sources, tmp_path: Path, name: str, rest: Rest
) -> None:
    converted(sources(name), tmp_path / "out", rest=rest)
    before, after = all_tensors(sources(name)), all_tensors(tmp_path / "out")
    packed = {key.removesuffix("_packed") for key in after if key.endswith("_packed")}
    assert packed == {key for key in before if ROUTED_EXPERT.fullmatch(key)}
    # those of the MTP layer are among them
    last = read_config(sources(name))["num_hidden_layers"]
    assert any(key.startswith(f"model.layers.{last}.") for key in packed)
    for key in packed:
        assert key not in after
        assert f"{key}_scale_inv" not in after
        assert after[f"{key}_shape"].tolist() == list(before[key].shape)
        assert after[f"{key}_scale"].dtype == torch.bfloat16


@pytest.mark.parametrize("name", NAMES)
def test_experts_lose_no_more_than_the_format_must(
    sources: Sources, tmp_path: Path, name: str
) -> None:
    converted(sources(name), tmp_path / "out")
    exact = dequantized(all_tensors(sources(name)))
    rounded = dequantized(all_tensors(tmp_path / "out"))
    for key in filter(ROUTED_EXPERT.fullmatch, exact):
        # 9.5 percent is min-max's on Gaussian weights, 8.6 the fit's
        assert 0.07 < rms(rounded[key] - exact[key]) / rms(exact[key]) < 0.093


@pytest.mark.parametrize("name", NAMES)
def test_a_bf16_rest_is_the_nearest_to_what_the_blocks_mean(
    sources: Sources, tmp_path: Path, name: str
) -> None:
    converted(sources(name), tmp_path / "out")
    before, after = all_tensors(sources(name)), all_tensors(tmp_path / "out")
    exact = dequantized(before)
    rest = {key for key in exact if not ROUTED_EXPERT.fullmatch(key)}
    assert rest == {key for key in after if not re.search("_(packed|scale|shape)$", key)}
    for key in rest:
        was_fp8 = before[key].dtype == torch.float8_e4m3fn
        expected = exact[key].bfloat16() if was_fp8 else before[key]
        assert after[key].dtype == expected.dtype
        assert bits(after[key]) == bits(expected)
    assert any(before[key].dtype == torch.float8_e4m3fn for key in rest)


@pytest.mark.parametrize("name", NAMES)
def test_an_fp8_rest_is_as_released_bit_for_bit(
    sources: Sources, tmp_path: Path, name: str
) -> None:
    converted(sources(name), tmp_path / "out", rest="fp8")
    before, after = all_tensors(sources(name)), all_tensors(tmp_path / "out")
    for key, tensor in before.items():
        if not ROUTED_EXPERT.fullmatch(key.removesuffix("_scale_inv")):
            assert after[key].dtype == tensor.dtype
            assert bits(after[key]) == bits(tensor)


def test_a_bf16_source_keeps_all_but_its_experts_bit_for_bit(
    checkpoints: Checkpoints, tmp_path: Path
) -> None:
    source = checkpoints("kimi_k2").directory
    converted(source, tmp_path / "out")
    before, after = load_file(source / FILE), all_tensors(tmp_path / "out")
    for key, tensor in before.items():
        if ROUTED_EXPERT.fullmatch(key):
            assert f"{key}_packed" in after
        else:
            assert after[key].dtype == tensor.dtype
            assert bits(after[key]) == bits(tensor)


@pytest.mark.parametrize("rest", RESTS)
@pytest.mark.parametrize("name", NAMES)
def test_the_bytes_are_those_that_a_plan_counts(
    sources: Sources, tmp_path: Path, name: str, rest: Rest
) -> None:
    report = converted(sources(name), tmp_path / "out", rest=rest)
    planned = weight_bytes(load_config(sources(name)), WeightFormat(experts="int4", rest=rest))
    num_experts = sum(key.endswith("_packed") for key in all_tensors(tmp_path / "out"))
    assert report.expert_bytes == planned.experts + 8 * num_experts
    assert report.rest_bytes == planned.rest


def test_no_file_is_longer_than_asked_unless_one_tensor_is(
    sources: Sources, tmp_path: Path
) -> None:
    report = converted(sources("glm52"), tmp_path / "out")
    files = sorted((tmp_path / "out").glob("*.safetensors"))
    assert report.num_shards == len(files) > 3
    assert files[0].name == f"model-00001-of-{len(files):05}.safetensors"
    for file in files:
        tensors = load_file(file)
        assert sum(one.nbytes for one in tensors.values()) <= SHARD_BYTES or len(tensors) == 1


def test_one_file_has_an_index_too(sources: Sources, tmp_path: Path) -> None:
    converted(sources("glm52"), tmp_path / "out", shard_bytes=1 << 30)
    all_tensors(tmp_path / "out")
    (file,) = (tmp_path / "out").glob("*.safetensors")
    assert file.name == "model-00001-of-00001.safetensors"


def test_tensors_are_aligned_for_programs_that_map_the_file(
    sources: Sources, tmp_path: Path
) -> None:
    converted(sources("glm52"), tmp_path / "out", rest="fp8")
    width = {"F32": 4, "I32": 4, "BF16": 2, "F8_E4M3": 1}
    for file in (tmp_path / "out").glob("*.safetensors"):
        content = file.read_bytes()
        header_bytes = int.from_bytes(content[:8], "little")
        header = json.loads(content[8 : 8 + header_bytes])
        assert header.pop("__metadata__") == {"format": "pt"}
        for entry in header.values():
            assert (8 + header_bytes + entry["data_offsets"][0]) % width[entry["dtype"]] == 0


# the quantization_config of the released Kimi K2 Thinking, K2.5 and K2.6
RELEASED_IGNORE = [
    "lm_head",
    "re:.*self_attn.*",
    "re:.*shared_experts.*",
    r"re:.*mlp\.(gate|up|gate_up|down)_proj.*",
]
RELEASED_WEIGHTS = {
    "num_bits": 4,
    "type": "int",
    "symmetric": True,
    "strategy": "group",
    "group_size": 32,
    "dynamic": False,
    "observer": "minmax",
    "observer_kwargs": {},
    "actorder": None,
    "block_structure": None,
}


def test_a_bf16_rest_is_described_as_the_released_int4_files_are(
    sources: Sources, tmp_path: Path
) -> None:
    converted(sources("glm52"), tmp_path / "out")
    before, after = read_config(sources("glm52")), read_config(tmp_path / "out")
    quantization = after.pop("quantization_config")
    del before["quantization_config"]
    assert after == before
    assert set(RELEASED_IGNORE) <= set(quantization.pop("ignore"))
    assert quantization == {
        "quant_method": "compressed-tensors",
        "format": "pack-quantized",
        "quantization_status": "compressed",
        "kv_cache_scheme": None,
        "config_groups": {
            "group_0": {
                "targets": ["Linear"],
                "input_activations": None,
                "output_activations": None,
                "weights": RELEASED_WEIGHTS,
            }
        },
    }


@pytest.mark.parametrize("name", NAMES)
def test_the_description_names_every_matrix_that_is_not_int4(
    sources: Sources, tmp_path: Path, name: str
) -> None:
    from compressed_tensors.utils import match_name

    converted(sources(name), tmp_path / "out")
    config = QuantizationConfig(**read_config(tmp_path / "out")["quantization_config"])
    assert config.ignore is not None
    for key, tensor in all_tensors(tmp_path / "out").items():
        module, _, kind = key.rpartition(".")
        is_ignored = any(match_name(module, pattern) for pattern in config.ignore)
        # an embedding is no Linear
        if kind == "weight" and tensor.dim() == 2 and not module.endswith("embed_tokens"):
            assert is_ignored, module
        if kind == "weight_packed":
            assert not is_ignored, module


def test_a_multimodal_description_has_it_in_the_text_part(
    checkpoints: Checkpoints, tmp_path: Path
) -> None:
    source = checkpoints("kimi_k25").directory
    converted(source, tmp_path / "out")
    config: dict[str, Any] = read_config(tmp_path / "out")
    assert "quantization_config" not in config
    assert config["text_config"]["quantization_config"]["format"] == "pack-quantized"
    vision = {key for key in load_file(source / FILE) if key.startswith("vision_tower")}
    assert vision
    assert vision <= all_tensors(tmp_path / "out").keys()


@pytest.mark.parametrize("rest", RESTS)
def test_tokenizer_and_template_come_along(sources: Sources, tmp_path: Path, rest: Rest) -> None:
    report = converted(sources("glm52"), tmp_path / "out", rest=rest)
    names = {path.name for path in (tmp_path / "out").iterdir()}
    shards = {name for name in names if name.endswith(".safetensors")}
    assert names - shards == {
        *ACCOMPANYING,
        "config.json",
        "manifest.json",
        "model.safetensors.index.json",
    }
    for name, text in ACCOMPANYING.items():
        assert (tmp_path / "out" / name).read_text(encoding="utf-8") == text
    assert names - {"manifest.json"} == report.manifest.files.keys()


def test_letters_beyond_ascii_in_a_description_stay(sources: Sources, tmp_path: Path) -> None:
    import shutil

    shutil.copytree(sources("glm52"), tmp_path / "source")
    write_config(tmp_path / "source", read_config(tmp_path / "source") | {"note": "智谱"})
    converted(tmp_path / "source", tmp_path / "out")
    assert "智谱" in (tmp_path / "out" / "config.json").read_text(encoding="utf-8")


def test_a_source_of_links_is_copied_not_linked(sources: Sources, tmp_path: Path) -> None:
    # as a Hugging Face cache has it
    (tmp_path / "snapshot").mkdir()
    for path in sources("glm52").iterdir():
        (tmp_path / "snapshot" / path.name).symlink_to(path)
    converted(tmp_path / "snapshot", tmp_path / "out")
    assert not any(path.is_symlink() for path in (tmp_path / "out").iterdir())
    assert (tmp_path / "out" / "tokenizer.json").is_file()
