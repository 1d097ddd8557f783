"""The same checkpoint in the layouts that model directories come in."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from .quantized_copies import FILE

INDEX = "model.safetensors.index.json"


def sharded_copy(source: Path, destination: Path, *, num_shards: int = 3) -> list[str]:
    """Copy a single-file checkpoint as shards with an index; return the shards' names."""
    shutil.copytree(source, destination, ignore=shutil.ignore_patterns(FILE))
    tensors = load_file(source / FILE)
    names = [f"model-{n + 1:05}-of-{num_shards:05}.safetensors" for n in range(num_shards)]
    weight_map = {name: names[n * num_shards // len(tensors)] for n, name in enumerate(tensors)}
    for file in names:
        held = {name: tensors[name] for name, of in weight_map.items() if of == file}
        save_file(held, destination / file, metadata={"format": "pt"})
    total = sum(tensor.nbytes for tensor in tensors.values())
    write_index(destination, weight_map, total)
    return names


def write_index(directory: Path, weight_map: Mapping[str, str], total: int = 0) -> None:
    index = {"metadata": {"total_size": total}, "weight_map": dict(weight_map)}
    (directory / INDEX).write_text(json.dumps(index))


def read_weight_map(directory: Path) -> dict[str, str]:
    weight_map: dict[str, str] = json.loads((directory / INDEX).read_text())["weight_map"]
    return weight_map


def read_config(directory: Path) -> dict[str, Any]:
    config: dict[str, Any] = json.loads((directory / "config.json").read_text())
    return config


def write_config(directory: Path, config: Mapping[str, Any]) -> None:
    (directory / "config.json").write_text(json.dumps(config))


def moonshots_form(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return a text configuration in the keys that Moonshot ships and transformers renames."""
    released = dict(config)
    scaling = dict(released.pop("rope_parameters"))
    released["rope_theta"] = scaling.pop("rope_theta")
    scaling["type"] = scaling.pop("rope_type")
    return released | {"rope_scaling": scaling, "model_type": "kimi_k2"}


def with_tensors(directory: Path, added: Mapping[str, torch.Tensor]) -> None:
    """Put more tensors into a single-file checkpoint."""
    tensors = load_file(directory / FILE)
    save_file({**tensors, **added}, directory / FILE, metadata={"format": "pt"})


def truncate(file: Path, *, num_bytes: int) -> None:
    """Cut bytes off a file's end, as an interrupted download does."""
    content = file.read_bytes()
    file.write_bytes(content[: len(content) - num_bytes])
