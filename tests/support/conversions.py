"""Sources for conversions as they are released, and conversions that tests cut off."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import torch
from safetensors.torch import load_file

from tenantry_runtime.models.convert import Conversion, Recipe, Report, convert
from tenantry_runtime.models.convert.recipe import Rest

from .mtp_checkpoints import mtp_copy
from .quantized_copies import Tensors, fp8_copy, rewritten
from .released_layouts import read_config, sharded_copy, write_config
from .tiny_checkpoints import TinyCheckpoint

SHARD_BYTES = 60_000
"""Of a tiny checkpoint: enough files that a conversion can be cut off between two."""

# what text/ reads, a license, and two that must stay behind
ACCOMPANYING = {
    "tokenizer.json": "{}",
    "tokenizer_config.json": '{"é": 1}',
    "chat_template.jinja": "{{ messages }}\n",
    "generation_config.json": '{"temperature": 1.0}',
    "LICENSE": "free",
}
LEFT_BEHIND = {".gitattributes": "*.safetensors filter=lfs", "pytorch_model.bin": "old"}


class Interrupted(BaseException):
    """Stands for Ctrl-C, which a test runner would take for its own."""


class Listener:
    """Hears how a conversion goes; may cut it off."""

    def __init__(self, *, cut_off_after: int | None = None) -> None:
        self.total_bytes = 0
        self.num_shards = 0
        self.done_bytes = 0
        self.kept: list[str] = []
        self.written: list[str] = []
        self._cut_off_after = cut_off_after

    def begin(self, total_bytes: int, num_shards: int) -> None:
        self.total_bytes, self.num_shards = total_bytes, num_shards

    def advance(self, num_bytes: int) -> None:
        self.done_bytes += num_bytes
        # in the middle of a file: the one after the last that may be finished
        if len(self.written) == self._cut_off_after:
            raise Interrupted

    def finish_shard(self, file: str, num_bytes: int, *, is_kept: bool) -> None:
        (self.kept if is_kept else self.written).append(file)


def converted(
    source: Path,
    destination: Path,
    *,
    rest: Rest = "bf16",
    listener: Listener | None = None,
    shard_bytes: int = SHARD_BYTES,
) -> Report:
    """Convert a tiny checkpoint."""
    conversion = Conversion(
        source=source,
        destination=destination,
        recipe=Recipe(rest=rest),
        shard_bytes=shard_bytes,
        num_threads=2,
    )
    return convert(conversion, listener or Listener())


def released_glm(tiny: TinyCheckpoint, directory: Path) -> Path:
    """Write a GLM as it is released: MTP layer, FP8 blocks, shards, tokenizer and template."""
    mtp_copy(tiny.directory, directory / "mtp")
    rewritten(directory / "mtp", directory / "bf16", _in_bf16)
    fp8_copy(directory / "bf16", directory / "fp8")
    source = directory / "released"
    # a matrix and its scales may lie in different files
    sharded_copy(directory / "fp8", source, num_shards=5)
    config = read_config(source)
    config["quantization_config"] = {
        "quant_method": "fp8",
        "fmt": "e4m3",
        "activation_scheme": "dynamic",
        "weight_block_size": [128, 128],
        "modules_to_not_convert": ["lm_head"],
    }
    write_config(source, config)
    with_accompanying(source)
    return source


def _in_bf16(tensors: Tensors) -> Tensors:
    return {
        name: tensor if name.endswith("e_score_correction_bias") else tensor.bfloat16()
        for name, tensor in tensors.items()
    }


def with_accompanying(directory: Path) -> None:
    """Put tokenizer and the like beside the weights."""
    for name, text in (ACCOMPANYING | LEFT_BEHIND).items():
        (directory / name).write_text(text, encoding="utf-8")


def all_tensors(directory: Path) -> dict[str, torch.Tensor]:
    """Read every file that the index names, with the package that defines the format."""
    index = json.loads((directory / "model.safetensors.index.json").read_text())
    tensors: dict[str, torch.Tensor] = {}
    for file in sorted(set(index["weight_map"].values())):
        held = load_file(directory / file)
        assert {index["weight_map"][name] for name in held} == {file}
        tensors |= held
    assert tensors.keys() == index["weight_map"].keys()
    assert index["metadata"]["total_size"] == sum(one.nbytes for one in tensors.values())
    return tensors


def contents(directory: Path) -> dict[str, bytes]:
    """Return every file by name."""
    return {path.name: path.read_bytes() for path in directory.iterdir()}


Sources = Callable[[str], Path]
