"""An unusable model directory is an error that names the file and the tensor or key."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from support.quantized_copies import FILE, Tensors, fp8_copy, int4_copy, rewritten, without
from support.released_layouts import (
    INDEX,
    read_weight_map,
    sharded_copy,
    truncate,
    with_tensors,
    write_index,
)
from support.tiny_checkpoints import TinyCheckpoint
from tenantry_runtime.errors import CheckpointError
from tenantry_runtime.models.checkpoint import Checkpoint
from tenantry_runtime.models.loader import load_model

Checkpoints = Callable[[str], TinyCheckpoint]

EXPERT = "model.layers.2.mlp.experts.5.up_proj.weight"
NORM = "model.layers.1.self_attn.kv_a_layernorm.weight"
KV_B = "model.layers.1.self_attn.kv_b_proj.weight"


@pytest.fixture
def kimi(checkpoints: Checkpoints) -> Path:
    return checkpoints("kimi_k2").directory


def refused(directory: Path) -> CheckpointError:
    with pytest.raises(CheckpointError) as caught:
        load_model(directory)
    with pytest.raises(CheckpointError) as as_stored:
        load_model(directory, weights="stored")
    assert str(as_stored.value) == str(caught.value)
    # what a log shows says where to look
    assert caught.value.file in str(caught.value)
    assert (caught.value.tensor or "") in str(caught.value)
    return caught.value


def changed(
    name: str, change: Callable[[torch.Tensor], torch.Tensor]
) -> Callable[[Tensors], Tensors]:
    return lambda tensors: {**tensors, name: change(tensors[name])}


@pytest.mark.parametrize("name", [EXPERT, NORM, KV_B, "lm_head.weight", "model.norm.weight"])
def test_a_missing_tensor_is_named(kimi: Path, tmp_path: Path, name: str) -> None:
    rewritten(kimi, tmp_path / "model", without(name))
    error = refused(tmp_path / "model")
    assert (error.file, error.tensor) == (str(tmp_path / "model"), name)
    assert error.problem == "is missing"


@pytest.mark.parametrize(
    "name",
    [
        "model.layers.3.input_layernorm.weight",
        "model.layers.1.mlp.experts.8.up_proj.weight",
        "model.layers.1.self_attn.kv_b_proj.bias",
        "vision_tower.patch_embed.proj.weight",
        "unheard_of",
    ],
)
def test_an_extra_tensor_is_named(kimi: Path, tmp_path: Path, name: str) -> None:
    shutil.copytree(kimi, tmp_path / "model")
    with_tensors(tmp_path / "model", {name: torch.zeros(3), "zz": torch.zeros(1)})
    error = refused(tmp_path / "model")
    assert error.file == str(tmp_path / "model" / FILE)
    assert error.tensor == name
    assert "(and 1 more)" in error.problem


@pytest.mark.parametrize("name", [EXPERT, NORM, KV_B])
def test_a_misshaped_tensor_is_named(kimi: Path, tmp_path: Path, name: str) -> None:
    rewritten(kimi, tmp_path / "model", changed(name, lambda tensor: tensor[:-1]))
    error = refused(tmp_path / "model")
    assert (error.file, error.tensor) == (str(tmp_path / "model" / FILE), name)
    assert error.problem.startswith("has shape [")


def test_a_transposed_matrix_is_named(kimi: Path, tmp_path: Path) -> None:
    rewritten(kimi, tmp_path / "model", changed(EXPERT, lambda tensor: tensor.T))
    error = refused(tmp_path / "model")
    assert error.tensor == EXPERT
    assert error.problem == "has shape [64, 32], expected [32, 64]"


@pytest.mark.parametrize("dtype", [torch.int8, torch.float64, torch.float8_e5m2])
def test_a_tensor_of_another_kind_of_number_is_named(
    kimi: Path, tmp_path: Path, dtype: torch.dtype
) -> None:
    rewritten(kimi, tmp_path / "model", changed(NORM, lambda tensor: tensor.to(dtype)))
    error = refused(tmp_path / "model")
    assert error.tensor == NORM
    assert str(dtype) in error.problem


@pytest.mark.parametrize("num_bytes", [1, 500])
def test_a_truncated_file_is_named_with_its_first_cut_tensor(
    kimi: Path, tmp_path: Path, num_bytes: int
) -> None:
    shutil.copytree(kimi, tmp_path / "model")
    truncate(tmp_path / "model" / FILE, num_bytes=num_bytes)
    error = refused(tmp_path / "model")
    assert error.file == str(tmp_path / "model" / FILE)
    # the package lays tensors out by dtype, then name: the last is a bfloat16 norm
    assert error.tensor in load_file(kimi / FILE)
    assert "truncated" in error.problem


@pytest.mark.parametrize("num_left", [0, 4, 100])
def test_a_file_cut_in_its_header_is_named(kimi: Path, tmp_path: Path, num_left: int) -> None:
    shutil.copytree(kimi, tmp_path / "model")
    size = (kimi / FILE).stat().st_size
    truncate(tmp_path / "model" / FILE, num_bytes=size - num_left)
    error = refused(tmp_path / "model")
    assert (error.file, error.tensor) == (str(tmp_path / "model" / FILE), None)


def test_a_file_that_shrinks_after_its_header_was_read_is_named(kimi: Path, tmp_path: Path) -> None:
    shutil.copytree(kimi, tmp_path / "model")
    checkpoint = Checkpoint(tmp_path / "model")
    truncate(tmp_path / "model" / FILE, num_bytes=(kimi / FILE).stat().st_size - 20000)
    with pytest.raises(CheckpointError, match="truncated") as caught:
        for name in load_file(kimi / FILE):
            checkpoint.read(name)
    assert caught.value.file == str(tmp_path / "model" / FILE)
    assert caught.value.tensor in load_file(kimi / FILE)


def test_garbage_in_place_of_a_file_is_named(kimi: Path, tmp_path: Path) -> None:
    shutil.copytree(kimi, tmp_path / "model")
    (tmp_path / "model" / FILE).write_bytes(b"version https://git-lfs.github.com/spec/v1\n" * 9)
    error = refused(tmp_path / "model")
    assert (error.file, error.tensor) == (str(tmp_path / "model" / FILE), None)


@pytest.mark.parametrize("file", [FILE, "config.json"])
def test_an_absent_file_is_named(kimi: Path, tmp_path: Path, file: str) -> None:
    shutil.copytree(kimi, tmp_path / "model")
    (tmp_path / "model" / file).unlink()
    error = refused(tmp_path / "model")
    assert (error.file, error.problem) == (str(tmp_path / "model" / file), "no such file")


def test_an_absent_shard_is_named(kimi: Path, tmp_path: Path) -> None:
    names = sharded_copy(kimi, tmp_path / "model")
    (tmp_path / "model" / names[1]).unlink()
    error = refused(tmp_path / "model")
    assert (error.file, error.problem) == (str(tmp_path / "model" / names[1]), "no such file")


def test_a_truncated_shard_is_named(kimi: Path, tmp_path: Path) -> None:
    names = sharded_copy(kimi, tmp_path / "model")
    truncate(tmp_path / "model" / names[1], num_bytes=7)
    error = refused(tmp_path / "model")
    assert error.file == str(tmp_path / "model" / names[1])
    assert read_weight_map(tmp_path / "model")[str(error.tensor)] == names[1]


def test_a_tensor_that_the_index_names_in_vain_is_named(kimi: Path, tmp_path: Path) -> None:
    names = sharded_copy(kimi, tmp_path / "model")
    write_index(tmp_path / "model", read_weight_map(tmp_path / "model") | {"ghost": names[2]})
    error = refused(tmp_path / "model")
    assert (error.file, error.tensor) == (str(tmp_path / "model" / names[2]), "ghost")


def test_a_tensor_that_the_index_puts_in_another_shard_is_named(kimi: Path, tmp_path: Path) -> None:
    names = sharded_copy(kimi, tmp_path / "model")
    weight_map = read_weight_map(tmp_path / "model")
    moved = next(name for name, file in weight_map.items() if file == names[0])
    write_index(tmp_path / "model", weight_map | {moved: names[1]})
    error = refused(tmp_path / "model")
    assert (error.file, error.tensor) == (str(tmp_path / "model" / names[1]), moved)


def test_a_tensor_that_the_index_does_not_name_is_named(kimi: Path, tmp_path: Path) -> None:
    names = sharded_copy(kimi, tmp_path / "model")
    weight_map = read_weight_map(tmp_path / "model")
    dropped = next(name for name, file in weight_map.items() if file == names[1])
    write_index(tmp_path / "model", {n: f for n, f in weight_map.items() if n != dropped})
    error = refused(tmp_path / "model")
    assert (error.file, error.tensor) == (str(tmp_path / "model" / names[1]), dropped)


def test_a_tensor_held_twice_is_named(kimi: Path, tmp_path: Path) -> None:
    names = sharded_copy(kimi, tmp_path / "model")
    first, second = (load_file(tmp_path / "model" / name) for name in names[:2])
    twice = next(iter(first))
    save_file({**second, twice: first[twice]}, tmp_path / "model" / names[1])
    error = refused(tmp_path / "model")
    assert (error.file, error.tensor) == (str(tmp_path / "model" / names[1]), twice)


@pytest.mark.parametrize("file", ["../model.safetensors", "/a.safetensors", "..", "", 5, None])
def test_an_index_cannot_point_outside_its_directory(
    kimi: Path, tmp_path: Path, file: object
) -> None:
    sharded_copy(kimi, tmp_path / "model")
    weight_map: dict[str, Any] = dict(read_weight_map(tmp_path / "model"))
    write_index(tmp_path / "model", weight_map | {NORM: file})
    error = refused(tmp_path / "model")
    assert (error.file, error.tensor) == (str(tmp_path / "model" / INDEX), NORM)


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"weight_map": []}', "\udc80"])
def test_an_unusable_index_is_named(kimi: Path, tmp_path: Path, content: str) -> None:
    sharded_copy(kimi, tmp_path / "model")
    (tmp_path / "model" / INDEX).write_text(content, errors="surrogateescape")
    assert refused(tmp_path / "model").file == str(tmp_path / "model" / INDEX)


def test_fp8_without_its_scale_is_named(kimi: Path, tmp_path: Path) -> None:
    fp8_copy(kimi, tmp_path / "fp8")
    rewritten(tmp_path / "fp8", tmp_path / "model", without(f"{KV_B}_scale_inv"))
    error = refused(tmp_path / "model")
    assert (error.file, error.tensor) == (str(tmp_path / "model" / FILE), KV_B)
    assert error.problem == "is FP8 without its weight_scale_inv"


def test_a_scale_without_fp8_is_named(kimi: Path, tmp_path: Path) -> None:
    fp8_copy(kimi, tmp_path / "fp8")
    rewritten(tmp_path / "fp8", tmp_path / "model", changed(KV_B, lambda tensor: tensor.bfloat16()))
    error = refused(tmp_path / "model")
    assert error.tensor == KV_B
    assert error.problem == "is torch.bfloat16, expected float8_e4m3fn"


INT4_FAULTS: list[tuple[str, Callable[[torch.Tensor], torch.Tensor]]] = [
    ("_shape", lambda shape: shape.flip(0)),
    ("_shape", lambda shape: shape.float()),
    ("_shape", lambda shape: shape[:1]),
    ("_packed", lambda packed: packed[:, :-1]),
    ("_packed", lambda packed: packed.to(torch.int64)),
    ("_packed", lambda packed: packed.view(torch.uint8)),
    ("_scale", lambda scale: scale[:, :-1]),
    ("_scale", lambda scale: scale.T),
]


@pytest.mark.parametrize(("part", "fault"), INT4_FAULTS)
def test_an_unusable_part_of_an_int4_matrix_is_named(
    kimi: Path, tmp_path: Path, part: str, fault: Callable[[torch.Tensor], torch.Tensor]
) -> None:
    int4_copy(torch.int32)(kimi, tmp_path / "int4")
    rewritten(tmp_path / "int4", tmp_path / "model", changed(f"{EXPERT}{part}", fault))
    error = refused(tmp_path / "model")
    assert (error.file, error.tensor) == (str(tmp_path / "model" / FILE), f"{EXPERT}{part}")


@pytest.mark.parametrize("part", ["_packed", "_scale", "_shape"])
def test_a_missing_part_of_an_int4_matrix_is_named(kimi: Path, tmp_path: Path, part: str) -> None:
    int4_copy(torch.int32)(kimi, tmp_path / "int4")
    rewritten(tmp_path / "int4", tmp_path / "model", without(f"{EXPERT}{part}"))
    # without its words it is no INT4 matrix, and no other either
    missing = EXPERT if part == "_packed" else f"{EXPERT}{part}"
    assert refused(tmp_path / "model").tensor == missing


FP8_FAULTS: list[tuple[str, Callable[[torch.Tensor], torch.Tensor]]] = [
    ("", lambda weight: weight[:-1]),
    ("_scale_inv", lambda scale: scale.repeat(2, 1)),
    ("_scale_inv", lambda scale: scale.flatten()),
]


@pytest.mark.parametrize(("part", "fault"), FP8_FAULTS)
@pytest.mark.parametrize("name", [KV_B, EXPERT])
def test_an_unusable_part_of_an_fp8_matrix_is_named(
    kimi: Path,
    tmp_path: Path,
    name: str,
    part: str,
    fault: Callable[[torch.Tensor], torch.Tensor],
) -> None:
    fp8_copy(kimi, tmp_path / "fp8")
    rewritten(tmp_path / "fp8", tmp_path / "model", changed(f"{name}{part}", fault))
    error = refused(tmp_path / "model")
    assert (error.file, error.tensor) == (str(tmp_path / "model" / FILE), f"{name}{part}")
