"""What cannot be converted is an error that names the place and says what to do."""

from __future__ import annotations

import errno
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
import torch

from support.conversions import Listener, Sources, contents, converted
from support.quantized_copies import Tensors, fp8_copy, int4_copy, rewritten, without
from support.released_layouts import INDEX, read_config, read_weight_map, truncate, write_config
from support.tiny_checkpoints import TinyCheckpoint
from tenantry_runtime.errors import CheckpointError, ConversionError, NotEnoughSpace
from tenantry_runtime.models.convert import Conversion
from tenantry_runtime.models.convert.shard_file import ShardFile

Checkpoints = Callable[[str], TinyCheckpoint]

EXPERT = "model.layers.2.mlp.experts.5.up_proj.weight"
KV_B = "model.layers.1.self_attn.kv_b_proj.weight"
NORM = "model.layers.1.self_attn.kv_a_layernorm.weight"


@pytest.fixture
def fp8(checkpoints: Checkpoints, tmp_path: Path) -> Path:
    fp8_copy(checkpoints("kimi_k2").directory, tmp_path / "fp8")
    return tmp_path / "fp8"


def refused(source: Path, destination: Path) -> CheckpointError:
    with pytest.raises(CheckpointError) as caught:
        converted(source, destination)
    assert not destination.exists()
    return caught.value


def changed(
    name: str, change: Callable[[torch.Tensor], torch.Tensor]
) -> Callable[[Tensors], Tensors]:
    return lambda tensors: {**tensors, name: change(tensors[name])}


@pytest.mark.parametrize("name", [EXPERT, KV_B, NORM, f"{EXPERT}_scale_inv", "lm_head.weight"])
def test_a_missing_tensor_is_found_before_anything_is_written(
    fp8: Path, tmp_path: Path, name: str
) -> None:
    rewritten(fp8, tmp_path / "source", without(name))
    error = refused(tmp_path / "source", tmp_path / "out")
    assert error.tensor is not None
    assert name.startswith(error.tensor)
    assert not (tmp_path / "out.partial").exists()


def test_an_extra_tensor_is_found_before_anything_is_written(fp8: Path, tmp_path: Path) -> None:
    rewritten(fp8, tmp_path / "source", lambda tensors: {**tensors, "odd": torch.zeros(1)})
    assert refused(tmp_path / "source", tmp_path / "out").tensor == "odd"
    assert not (tmp_path / "out.partial").exists()


@pytest.mark.parametrize(
    ("name", "change", "problem"),
    [
        (EXPERT, lambda one: one[:-1], "has shape"),
        (f"{EXPERT}_scale_inv", lambda one: torch.cat((one, one)), "has shape"),
        (f"{EXPERT}_scale_inv", lambda one: one.bfloat16(), "expected F32"),
        (EXPERT, lambda one: one.float(), "has block scales"),
        (EXPERT, lambda one: one.to(torch.int8), "is I8"),
        (KV_B, lambda one: one.to(torch.float8_e5m2), "is F8_E5M2"),
    ],
)
def test_a_tensor_of_another_form_is_found_before_anything_is_written(
    fp8: Path,
    tmp_path: Path,
    name: str,
    change: Callable[[torch.Tensor], torch.Tensor],
    problem: str,
) -> None:
    rewritten(fp8, tmp_path / "source", changed(name, change))
    error = refused(tmp_path / "source", tmp_path / "out")
    assert error.tensor is not None
    assert name.startswith(error.tensor)
    assert problem in error.problem
    assert not (tmp_path / "out.partial").exists()


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize("name", [EXPERT, KV_B])
def test_values_that_are_not_finite_are_named(
    fp8: Path, tmp_path: Path, name: str, value: float
) -> None:
    damage = changed(f"{name}_scale_inv", lambda scale: torch.full_like(scale, value))
    rewritten(fp8, tmp_path / "source", damage)
    error = refused(tmp_path / "source", tmp_path / "out")
    assert error.tensor == name
    assert "not finite" in error.problem


def test_columns_that_are_no_whole_groups_are_named(fp8: Path, tmp_path: Path) -> None:
    def narrow(tensors: Tensors) -> Tensors:
        return {
            name: tensor[:, :24].contiguous()
            if "experts." in name and name.endswith("down_proj.weight")
            else tensor[:24].contiguous()
            if ("experts." in name) and name.endswith(("gate_proj.weight", "up_proj.weight"))
            else tensor
            for name, tensor in tensors.items()
        }

    rewritten(fp8, tmp_path / "source", narrow)
    config = read_config(tmp_path / "source") | {"moe_intermediate_size": 24}
    write_config(tmp_path / "source", config)
    error = refused(tmp_path / "source", tmp_path / "out")
    assert "24 columns, which are not whole groups of 32" in error.problem


def test_a_truncated_source_is_named(sources: Sources, tmp_path: Path) -> None:
    shutil.copytree(sources("glm52"), tmp_path / "source")
    file = sorted((tmp_path / "source").glob("*.safetensors"))[2]
    truncate(file, num_bytes=9)
    error = refused(tmp_path / "source", tmp_path / "out")
    assert error.file == str(file)
    assert "truncated" in error.problem


def test_a_source_that_lacks_a_file_is_named(sources: Sources, tmp_path: Path) -> None:
    shutil.copytree(sources("glm52"), tmp_path / "source")
    file = sorted(set(read_weight_map(tmp_path / "source").values()))[1]
    (tmp_path / "source" / file).unlink()
    error = refused(tmp_path / "source", tmp_path / "out")
    assert (error.file, error.problem) == (str(tmp_path / "source" / file), "no such file")


def test_a_model_of_another_family_is_named(fp8: Path, tmp_path: Path) -> None:
    write_config(fp8, read_config(fp8) | {"model_type": "llama"})
    assert "model_type is 'llama'" in refused(fp8, tmp_path / "out").problem


def test_an_int4_source_has_nothing_to_convert(checkpoints: Checkpoints, tmp_path: Path) -> None:
    int4_copy(torch.int32)(checkpoints("kimi_k2").directory, tmp_path / "int4")
    with pytest.raises(ConversionError, match=r"is INT4 already.*serve this directory as it is"):
        converted(tmp_path / "int4", tmp_path / "out")


def test_a_converted_source_has_nothing_to_convert(sources: Sources, tmp_path: Path) -> None:
    converted(sources("glm52"), tmp_path / "once")
    with pytest.raises(ConversionError, match="is INT4 already"):
        converted(tmp_path / "once", tmp_path / "twice")


def test_a_bf16_source_has_no_fp8_to_keep(checkpoints: Checkpoints, tmp_path: Path) -> None:
    with pytest.raises(ConversionError, match=r"no FP8 matrices.*convert with `rest` bf16"):
        converted(checkpoints("kimi_k2").directory, tmp_path / "out", rest="fp8")


def test_a_source_that_is_no_directory_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConversionError, match="name one that holds a checkpoint"):
        converted(tmp_path / "absent", tmp_path / "out")


def test_a_source_cannot_be_its_own_destination(fp8: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(fp8)
    for destination in (fp8, fp8 / ".." / "fp8", tmp_path / "link"):
        with pytest.raises(ConversionError, match="is the source"):
            converted(fp8, destination)


def test_a_destination_with_something_else_in_it_is_left_alone(fp8: Path, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "letters.txt").write_text("dear")
    with pytest.raises(ConversionError, match="exists and is no finished conversion"):
        converted(fp8, tmp_path / "out")
    assert contents(tmp_path / "out") == {"letters.txt": b"dear"}


def test_a_destination_that_is_a_file_is_left_alone(fp8: Path, tmp_path: Path) -> None:
    (tmp_path / "out").write_text("dear")
    with pytest.raises(ConversionError, match="is a file"):
        converted(fp8, tmp_path / "out")
    assert (tmp_path / "out").read_text() == "dear"


def test_an_empty_destination_is_filled(fp8: Path, tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "out").symlink_to(tmp_path / "real")
    converted(fp8, tmp_path / "out")
    assert (tmp_path / "out").is_symlink()
    assert (tmp_path / "real" / "config.json").exists()


def test_a_mount_point_is_refused_at_once(fp8: Path) -> None:
    with pytest.raises(ConversionError, match="is a mount point"):
        converted(fp8, Path("/proc"))


def test_a_destination_that_cannot_be_made_is_named(fp8: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConversionError, match="cannot be used"):
        converted(fp8, tmp_path / "file" / "out")


class Usage(NamedTuple):
    total: int
    used: int
    free: int


def test_too_little_space_is_found_before_anything_is_converted(
    sources: Sources, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    listener = Listener()
    monkeypatch.setattr(shutil, "disk_usage", lambda path: Usage(10_000, 9_000, 1_000))
    with pytest.raises(NotEnoughSpace, match="finished files are kept") as caught:
        converted(sources("glm52"), tmp_path / "out", listener=listener)
    error = caught.value
    assert error.free_bytes == 1_000
    assert error.needed_bytes is not None
    assert listener.done_bytes == 0
    monkeypatch.undo()
    converted(sources("glm52"), tmp_path / "out")
    written = sum(path.stat().st_size for path in (tmp_path / "out").iterdir())
    assert written < error.needed_bytes < written + (8 << 20)


def test_a_disk_that_fills_up_keeps_the_finished_files(
    sources: Sources, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    listener = Listener()
    write = ShardFile.write

    def write_until_full(self: ShardFile, name: str, tensor: torch.Tensor) -> None:
        if len(listener.written) == 2:
            raise OSError(errno.ENOSPC, "No space left on device")
        write(self, name, tensor)

    monkeypatch.setattr(ShardFile, "write", write_until_full)
    with pytest.raises(NotEnoughSpace, match="make room and run it again"):
        converted(sources("glm52"), tmp_path / "out", listener=listener)
    assert not (tmp_path / "out").exists()
    assert not list((tmp_path / "out.partial").glob("*.tmp"))
    monkeypatch.undo()
    again = Listener()
    converted(sources("glm52"), tmp_path / "out", listener=again)
    assert again.kept == listener.written


def test_errors_survive_a_process_boundary() -> None:
    for error in (
        ConversionError("a", "b"),
        NotEnoughSpace("a", 5, 4),
        NotEnoughSpace("a", None, None),
    ):
        copy = pickle.loads(pickle.dumps(error))
        assert (type(copy), str(copy)) == (type(error), str(error))


@pytest.mark.parametrize("values", [{"shard_bytes": 0}, {"num_threads": 0}])
def test_sizes_below_one_are_refused(values: dict[str, int], tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="must be at least 1"):
        Conversion(
            source=tmp_path,
            destination=tmp_path / "out",
            shard_bytes=values.get("shard_bytes", 1),
            num_threads=values.get("num_threads"),
        )


def test_the_source_is_never_changed(sources: Sources, tmp_path: Path) -> None:
    before = contents(sources("glm5_wide"))
    converted(sources("glm5_wide"), tmp_path / "out")
    assert contents(sources("glm5_wide")) == before
    assert INDEX in before


def test_a_tensor_s_scales_may_lie_in_another_file(sources: Sources) -> None:
    weight_map = read_weight_map(sources("glm52"))
    apart = [
        name
        for name, file in weight_map.items()
        if weight_map.get(f"{name}_scale_inv", file) != file
    ]
    # or the other tests show less than they seem to
    assert apart
