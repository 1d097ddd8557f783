"""A conversion that was cut off goes on, and never looks finished before it is."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from support.conversions import (
    SHARD_BYTES,
    Interrupted,
    Listener,
    Sources,
    contents,
    converted,
)
from tenantry_runtime.errors import CheckpointError, ConversionError
from tenantry_runtime.models.checkpoint import Checkpoint
from tenantry_runtime.models.convert import read_manifest
from tenantry_runtime.models.loader import load_model


@pytest.fixture
def source(sources: Sources) -> Path:
    return sources("glm52")


def cut_off(source: Path, destination: Path, *, after: int) -> Listener:
    """Convert until so many files are finished and the next is begun."""
    listener = Listener(cut_off_after=after)
    with pytest.raises(Interrupted):
        converted(source, destination, listener=listener)
    assert len(listener.written) == after
    return listener


def partial(destination: Path) -> Path:
    return destination.with_name(destination.name + ".partial")


@pytest.mark.parametrize("after", [0, 1, 3])
def test_an_interrupted_run_keeps_what_it_finished_and_goes_on(
    source: Path, tmp_path: Path, after: int
) -> None:
    whole = converted(source, tmp_path / "whole")
    first = cut_off(source, tmp_path / "out", after=after)
    again = Listener()
    report = converted(source, tmp_path / "out", listener=again)
    assert again.kept == first.written
    assert sorted(again.kept + again.written) == sorted(
        name for name in whole.manifest.files if name.endswith(".safetensors")
    )
    assert (report.num_kept, report.was_complete) == (after, False)
    assert again.done_bytes == again.total_bytes
    # as if nothing had happened
    assert contents(tmp_path / "out") == contents(tmp_path / "whole")
    assert not partial(tmp_path / "out").exists()


def test_an_interrupted_run_leaves_no_half_file_and_nothing_that_loads(
    source: Path, tmp_path: Path
) -> None:
    first = cut_off(source, tmp_path / "out", after=2)
    assert not (tmp_path / "out").exists()
    left = partial(tmp_path / "out")
    assert {path.name for path in left.iterdir()} == {"manifest.json", *first.written}
    manifest = read_manifest(left)
    assert manifest is not None
    assert not manifest.is_complete
    with pytest.raises(CheckpointError, match=r"config\.json: no such file"):
        load_model(left)


def test_a_killed_run_leaves_a_file_that_the_next_one_writes_anew(
    source: Path, tmp_path: Path
) -> None:
    first = cut_off(source, tmp_path / "out", after=2)
    left = partial(tmp_path / "out")
    # what a kill leaves: half a file, one that has its name but is not listed, half a manifest
    number = first.written[0].replace("00001", "00003", 1)
    (left / f"{number}.tmp").write_bytes(b"half")
    (left / number).write_bytes(b"whole, perhaps")
    (left / "manifest.json.tmp").write_bytes(b"{")
    again = Listener()
    converted(source, tmp_path / "out", listener=again)
    assert again.kept == first.written
    converted(source, tmp_path / "whole")
    assert contents(tmp_path / "out") == contents(tmp_path / "whole")


@pytest.mark.parametrize(
    "damage",
    [
        lambda file: file.write_bytes(file.read_bytes()[:-1]),
        lambda file: file.write_bytes(file.read_bytes()[:-1] + b"\x55"),
        lambda file: file.unlink(),
    ],
    ids=["shorter", "one byte other", "gone"],
)
def test_a_finished_file_that_changed_is_written_anew(
    source: Path, tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    first = cut_off(source, tmp_path / "out", after=3)
    damage(partial(tmp_path / "out") / first.written[1])
    again = Listener()
    converted(source, tmp_path / "out", listener=again)
    assert again.kept == [first.written[0], first.written[2]]
    converted(source, tmp_path / "whole")
    assert contents(tmp_path / "out") == contents(tmp_path / "whole")


def test_a_run_cut_off_between_the_last_file_and_its_name_only_needs_the_name(
    source: Path, tmp_path: Path
) -> None:
    converted(source, tmp_path / "out")
    expected = contents(tmp_path / "out")
    (tmp_path / "out").rename(partial(tmp_path / "out"))
    again = Listener()
    report = converted(source, tmp_path / "out", listener=again)
    assert again.written == []
    assert report.num_kept == report.num_shards
    assert contents(tmp_path / "out") == expected


def test_another_recipe_does_not_go_on_with_it(source: Path, tmp_path: Path) -> None:
    cut_off(source, tmp_path / "out", after=1)
    with pytest.raises(ConversionError, match=r"rest='bf16'.*not.*rest='fp8'") as caught:
        converted(source, tmp_path / "out", rest="fp8")
    assert caught.value.path == str(partial(tmp_path / "out"))
    # and harms nothing
    again = Listener()
    converted(source, tmp_path / "out", listener=again)
    assert len(again.kept) == 1


def test_another_size_of_files_does_not_go_on_with_it(source: Path, tmp_path: Path) -> None:
    cut_off(source, tmp_path / "out", after=1)
    with pytest.raises(ConversionError, match=f"{SHARD_BYTES}, not 70000"):
        converted(source, tmp_path / "out", shard_bytes=70_000)


def test_another_source_does_not_go_on_with_it(
    source: Path, sources: Sources, tmp_path: Path
) -> None:
    cut_off(source, tmp_path / "out", after=1)
    with pytest.raises(ConversionError, match="its source has revision"):
        converted(sources("glm5_wide"), tmp_path / "out")


def test_a_source_that_moved_is_the_same(source: Path, tmp_path: Path) -> None:
    cut_off(source, tmp_path / "out", after=1)
    shutil.copytree(source, tmp_path / "elsewhere")
    again = Listener()
    converted(tmp_path / "elsewhere", tmp_path / "out", listener=again)
    assert len(again.kept) == 1


def test_two_at_once_are_refused(source: Path, tmp_path: Path) -> None:
    cut_off(source, tmp_path / "out", after=1)
    other = os.open(partial(tmp_path / "out"), os.O_RDONLY)
    fcntl.flock(other, fcntl.LOCK_EX)
    with pytest.raises(ConversionError, match="another conversion is writing here"):
        converted(source, tmp_path / "out")
    os.close(other)
    converted(source, tmp_path / "out")


def test_a_directory_of_that_name_that_is_no_conversion_is_left_alone(
    source: Path, tmp_path: Path
) -> None:
    partial(tmp_path / "out").mkdir()
    (partial(tmp_path / "out") / "letters.txt").write_text("dear")
    with pytest.raises(ConversionError, match="is no conversion that was cut off"):
        converted(source, tmp_path / "out")
    assert (partial(tmp_path / "out") / "letters.txt").read_text() == "dear"


def test_the_manifest_has_every_file_s_sha256_the_source_and_the_recipe(
    source: Path, tmp_path: Path
) -> None:
    converted(source, tmp_path / "out")
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    files = manifest.pop("files")
    on_disk = contents(tmp_path / "out")
    del on_disk["manifest.json"]
    assert files == {
        name: {"sha256": hashlib.sha256(content).hexdigest(), "size_bytes": len(content)}
        for name, content in on_disk.items()
    }
    assert manifest == {
        "version": 1,
        "source": {"name": "released", "revision": Checkpoint(source).revision()},
        "recipe": {
            "experts": "int4",
            "group_size": 32,
            "scales": "least-squares-1",
            "rest": "bf16",
        },
        "shard_bytes": SHARD_BYTES,
        "is_complete": True,
    }


def test_a_finished_conversion_is_verified_not_written_again(source: Path, tmp_path: Path) -> None:
    converted(source, tmp_path / "out")
    times = {path: path.stat().st_mtime_ns for path in (tmp_path / "out").iterdir()}
    again = Listener()
    report = converted(source, tmp_path / "out", listener=again)
    assert report.was_complete
    assert again.done_bytes == again.total_bytes
    assert times == {path: path.stat().st_mtime_ns for path in (tmp_path / "out").iterdir()}
    assert not partial(tmp_path / "out").exists()


@pytest.mark.parametrize("file", ["tokenizer.json", "model.safetensors.index.json"])
def test_a_finished_conversion_that_changed_is_named(
    source: Path, tmp_path: Path, file: str
) -> None:
    converted(source, tmp_path / "out")
    (tmp_path / "out" / file).write_text("other")
    with pytest.raises(ConversionError, match=r"is not as manifest\.json says") as caught:
        converted(source, tmp_path / "out")
    assert caught.value.path == str(tmp_path / "out" / file)


def test_a_finished_conversion_of_another_kind_is_not_touched(source: Path, tmp_path: Path) -> None:
    converted(source, tmp_path / "out")
    before = contents(tmp_path / "out")
    with pytest.raises(ConversionError, match="exists and is another conversion"):
        converted(source, tmp_path / "out", rest="fp8")
    assert contents(tmp_path / "out") == before
