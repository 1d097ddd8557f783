"""A conversion from its source to its destination."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Protocol

from tenantry_runtime.errors import ConversionError
from tenantry_runtime.models.checkpoint import INDEX_FILE, Checkpoint, read_json
from tenantry_runtime.models.loader import load_config

from .ahead import Ahead
from .manifest import MANIFEST_FILE, Manifest, SourceRecord, is_intact, read_manifest
from .plan import Plan, Shard, make_plan
from .recipe import Recipe, converted_config
from .shard_file import ShardFile, file_bytes
from .transform import transform
from .workspace import Workspace

CONFIG_FILE = "config.json"

DEFAULT_SHARD_BYTES = 4 << 30
"""As released files have it, about."""

# for index and configuration, and what a file system takes for itself
_SPARE_BYTES = 4 << 20

_WEIGHT_SUFFIXES = {".safetensors", ".bin", ".pt", ".pth", ".gguf", ".onnx", ".h5", ".msgpack"}


class Progress(Protocol):
    """Who hears how a conversion goes."""

    def begin(self, total_bytes: int, num_shards: int) -> None:
        """The source's tensors have so many bytes."""
        ...

    def advance(self, num_bytes: int) -> None:
        """So many more of them are done."""
        ...

    def finish_shard(self, file: str, num_bytes: int, *, is_kept: bool) -> None:
        """A file of so many bytes is there, perhaps from an earlier run."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversion:
    """What is asked for."""

    source: Path
    destination: Path
    recipe: Recipe = field(default_factory=Recipe)
    shard_bytes: int = DEFAULT_SHARD_BYTES
    """Of a file at most, unless one tensor is larger."""
    num_threads: int | None = None
    """None: as many as this process may use cores."""

    def __post_init__(self) -> None:
        if self.shard_bytes < 1:
            raise ValueError(f"shard_bytes must be at least 1, not {self.shard_bytes!r}")
        if self.num_threads is not None and self.num_threads < 1:
            raise ValueError(f"num_threads must be at least 1, not {self.num_threads!r}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What a conversion made."""

    manifest: Manifest
    num_shards: int
    num_kept: int
    """Of the shards, from earlier runs."""
    was_complete: bool
    """Everything was there already, and is as it was."""
    source_expert_bytes: int
    source_rest_bytes: int
    expert_bytes: int
    rest_bytes: int


def convert(conversion: Conversion, progress: Progress) -> Report:
    """Convert a checkpoint, or finish what an earlier call of the same conversion began.

    Raises CheckpointError for an unusable source; ConversionError, NotEnoughSpace among them, for
    anything else. After an error or an interrupt the finished files are kept for the next call.
    """
    # through links: a rename would replace the link, or fail at the very end
    source, destination = conversion.source, conversion.destination.resolve()
    _require_usable(source, destination)
    config = load_config(source)
    checkpoint = Checkpoint(source)
    plan = make_plan(checkpoint, config, conversion.recipe, shard_bytes=conversion.shard_bytes)
    manifest = Manifest(
        source=SourceRecord(name=source.resolve().name, revision=checkpoint.revision()),
        recipe=conversion.recipe,
        shard_bytes=conversion.shard_bytes,
        is_complete=False,
        files={},
    )
    progress.begin(sum(step.source_bytes for step in plan.steps), len(plan.shards))
    if _is_there(destination):
        finished = _verified(destination, manifest, plan, progress)
        return _report(plan, finished, len(plan.shards), was_complete=True)
    with Workspace.open(destination, manifest) as workspace:
        kept = _keep(workspace, plan, progress)
        missing = [shard for shard in plan.shards if shard.file not in kept]
        workspace.require_space(_needed_bytes(missing, source))
        with Ahead(conversion.num_threads or len(os.sched_getaffinity(0))) as ahead:
            for shard in missing:
                _write_shard(workspace, shard, checkpoint, ahead, progress)
        _write_rest(workspace, source, plan, conversion.recipe)
        return _report(plan, workspace.publish(), len(kept), was_complete=False)


def _require_usable(source: Path, destination: Path) -> None:
    if not source.is_dir():
        raise ConversionError(str(source), "is no directory; name one that holds a checkpoint")
    if destination.resolve() == source.resolve():
        raise ConversionError(str(destination), "is the source; name another destination")
    if os.path.ismount(destination):
        raise ConversionError(
            str(destination), "is a mount point, which no rename replaces; name a directory in it"
        )


def _is_there(destination: Path) -> bool:
    if not destination.is_dir():
        if destination.exists():
            raise ConversionError(str(destination), "is a file; name another destination")
        return False
    return any(destination.iterdir())


def _verified(destination: Path, expected: Manifest, plan: Plan, progress: Progress) -> Manifest:
    """Return the manifest of a finished conversion, after reading every file of it."""
    found = read_manifest(destination)
    if found is None or not found.is_complete:
        raise ConversionError(
            str(destination), "exists and is no finished conversion; name another, or remove it"
        )
    if (difference := found.difference(expected)) is not None:
        raise ConversionError(
            str(destination),
            f"exists and is another conversion ({difference}); name another, or remove it",
        )
    shards = {shard.file: shard for shard in plan.shards}
    for file, recorded in found.files.items():
        if not is_intact(destination / file, recorded):
            raise ConversionError(
                str(destination / file),
                f"is not as {MANIFEST_FILE} says; remove {destination} and convert again",
            )
        if file in shards:
            _count_kept(shards[file], recorded.size_bytes, progress)
    return found


def _keep(workspace: Workspace, plan: Plan, progress: Progress) -> frozenset[str]:
    kept = []
    for shard in plan.shards:
        if workspace.keeps(shard.file):
            kept.append(shard.file)
            _count_kept(shard, workspace.size_bytes(shard.file), progress)
    return frozenset(kept)


def _count_kept(shard: Shard, num_bytes: int, progress: Progress) -> None:
    progress.advance(sum(step.source_bytes for step in shard.steps))
    progress.finish_shard(shard.file, num_bytes, is_kept=True)


def _needed_bytes(missing: Sequence[Shard], source: Path) -> int:
    weights = sum(file_bytes(shard.outputs) for shard in missing)
    return weights + sum(path.stat().st_size for path in _accompanying(source)) + _SPARE_BYTES


def _write_shard(
    workspace: Workspace,
    shard: Shard,
    checkpoint: Checkpoint,
    ahead: Ahead,
    progress: Progress,
) -> None:
    with workspace.writing(shard.file) as path, ShardFile(path, shard.outputs) as file:
        for step, tensors in ahead.results(partial(transform, checkpoint), shard.steps):
            for name, tensor in tensors.items():
                file.write(name, tensor)
            progress.advance(step.source_bytes)
    progress.finish_shard(shard.file, workspace.size_bytes(shard.file), is_kept=False)


def _write_rest(workspace: Workspace, source: Path, plan: Plan, recipe: Recipe) -> None:
    for path in _accompanying(source):
        with workspace.writing(path.name) as copy:
            shutil.copyfile(path, copy)
    total = sum(step.output_bytes for step in plan.steps)
    index = {"metadata": {"total_size": total}, "weight_map": dict(plan.weight_map)}
    config = converted_config(read_json(source / CONFIG_FILE), recipe)
    for name, value in ((INDEX_FILE, index), (CONFIG_FILE, config)):
        with workspace.writing(name) as written:
            text = json.dumps(value, indent=2, ensure_ascii=False)
            written.write_text(text + "\n", encoding="utf-8")


def _accompanying(source: Path) -> list[Path]:
    """Return tokenizer, template and whatever else lies beside the weights."""
    ours = {CONFIG_FILE, MANIFEST_FILE}
    return sorted(
        path
        for path in source.iterdir()
        # in a Hugging Face cache these are links
        if path.is_file()
        and not path.name.startswith(".")
        and path.name not in ours
        and path.suffix not in _WEIGHT_SUFFIXES
        and not path.name.endswith(".index.json")
    )


def _report(plan: Plan, manifest: Manifest, num_kept: int, *, was_complete: bool) -> Report:
    experts = [step for step in plan.steps if step.is_expert]
    rest = [step for step in plan.steps if not step.is_expert]
    return Report(
        manifest=manifest,
        num_shards=len(plan.shards),
        num_kept=num_kept,
        was_complete=was_complete,
        source_expert_bytes=sum(step.source_bytes for step in experts),
        source_rest_bytes=sum(step.source_bytes for step in rest),
        expert_bytes=sum(step.output_bytes for step in experts),
        rest_bytes=sum(step.output_bytes for step in rest),
    )
