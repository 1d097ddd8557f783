"""A model directory on disk: which file holds which tensor, read one at a time.

| file | what |
|---|---|
| config.json | the model's description |
| model.safetensors | all tensors, or |
| model.safetensors.index.json | `weight_map`: tensor to shard file |
| model-*-of-*.safetensors | the shards |
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import Any

import torch

from tenantry_runtime.errors import CheckpointError

from .safetensors_file import DTYPES, StoredTensor, read_header, read_tensor

INDEX_FILE = "model.safetensors.index.json"
SINGLE_FILE = "model.safetensors"
SUFFIX = ".safetensors"
SAMPLE_BYTES = 256
"""Of each tensor, in a revision: any training moves some value among its first hundred."""


def read_json(path: Path) -> dict[str, Any]:
    """Return a JSON object; raise CheckpointError naming the file otherwise."""
    try:
        value = json.loads(path.read_bytes())
    except FileNotFoundError as error:
        raise CheckpointError(str(path), None, "no such file") from error
    except (OSError, ValueError) as error:
        raise CheckpointError(str(path), None, f"cannot be read as JSON: {error}") from error
    if not isinstance(value, dict):
        raise CheckpointError(str(path), None, "is not a JSON object")
    return value


class Checkpoint:
    """The tensors of one model directory, and which of them have been asked for."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._stored = self._locate()
        self._unread = set(self._stored)

    def __contains__(self, name: str) -> bool:
        return name in self._stored

    @property
    def names(self) -> tuple[str, ...]:
        """All tensors, in the order of the files' own lists."""
        return tuple(self._stored)

    def dtype(self, name: str) -> torch.dtype | None:
        """Return what a tensor that is here is stored as; None if that is nothing known."""
        return DTYPES.get(self._stored[name].dtype)

    def look_up(self, name: str, shape: tuple[int, ...] | None = None) -> StoredTensor:
        """Return where a tensor lies, which counts as asked for; raise if it is missing or misshaped."""
        stored = self._stored.get(name)
        if stored is None:
            raise self.fail(name, "is missing")
        if shape is not None and stored.shape != shape:
            raise self.fail(name, f"has shape {list(stored.shape)}, expected {list(shape)}")
        self._unread.discard(name)
        return stored

    def read(self, name: str, shape: tuple[int, ...] | None = None) -> torch.Tensor:
        """Return a tensor as stored, in memory of its own; raise if it is missing or misshaped."""
        return read_tensor(name, self.look_up(name, shape))

    def fail(self, name: str, problem: str) -> CheckpointError:
        """Return the error that names this tensor and its file."""
        stored = self._stored.get(name)
        return CheckpointError(str(stored.path if stored else self.directory), name, problem)

    def require_all_read(self, skipped: Iterable[str]) -> None:
        """Raise if a tensor was never asked for and matches none of the skipped patterns."""
        patterns = [re.compile(pattern) for pattern in skipped]
        extra = sorted(
            name for name in self._unread if not any(p.fullmatch(name) for p in patterns)
        )
        if extra:
            more = f" (and {len(extra) - 1} more)" if len(extra) > 1 else ""
            raise self.fail(extra[0], f"is not part of the model that config.json describes{more}")

    def revision(self) -> str:
        """Return SHA-256 over config.json, each file's name, size and header, and a sample of each tensor.

        Samples tell retrained weights of the same shapes apart without reading a terabyte.
        """
        digest = hashlib.sha256((self.directory / "config.json").read_bytes())
        held = sorted(self._stored.values(), key=attrgetter("path", "start"))
        for path, tensors in groupby(held, attrgetter("path")):
            with path.open("rb") as stream:
                header_size = int.from_bytes(stream.read(8), "little")
                digest.update(f"{path.name}:{path.stat().st_size}:".encode())
                digest.update(stream.read(header_size))
                for stored in tensors:
                    stream.seek(stored.start)
                    digest.update(stream.read(min(SAMPLE_BYTES, stored.num_bytes)))
        return digest.hexdigest()

    def _locate(self) -> dict[str, StoredTensor]:
        index = self.directory / INDEX_FILE
        if not index.exists():
            return read_header(self.directory / SINGLE_FILE)
        weight_map = read_json(index).get("weight_map")
        if not isinstance(weight_map, dict):
            raise CheckpointError(str(index), None, "has no weight_map")
        for name, file in weight_map.items():
            # a path could reach outside the model's directory
            if not isinstance(file, str) or Path(file).name != file or Path(file).suffix != SUFFIX:
                raise CheckpointError(
                    str(index), name, f"is in {file!r}, which is no name of a {SUFFIX} file"
                )
        held = {
            file: read_header(self.directory / file) for file in sorted(set(weight_map.values()))
        }
        for name, file in weight_map.items():
            if name not in held[file]:
                raise CheckpointError(
                    str(self.directory / file), name, f"is missing, but {INDEX_FILE} names it"
                )
        unlisted = sorted(
            (name, file)
            for file, names in held.items()
            for name in names
            if weight_map.get(name) != file
        )
        if unlisted:
            name, file = unlisted[0]
            raise CheckpointError(
                str(self.directory / file), name, f"is here, which {INDEX_FILE} does not say"
            )
        return {name: held[file][name] for name, file in weight_map.items()}
