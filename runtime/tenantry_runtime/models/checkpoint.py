"""A model directory on disk: which file holds which tensor, read one at a time.

| file | what |
|---|---|
| config.json | the model's description |
| model.safetensors | all tensors, or |
| model.safetensors.index.json | `weight_map`: tensor to shard file |
| model-*-of-*.safetensors | the shards |

Files are memory-mapped, so that what is read does not stay in this process's own memory.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open

from tenantry_runtime.errors import CheckpointError

INDEX_FILE = "model.safetensors.index.json"
SINGLE_FILE = "model.safetensors"


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
        self._handles: dict[str, Any] = {}
        self._file_of = self._locate()
        self._unread = set(self._file_of)

    def __contains__(self, name: str) -> bool:
        return name in self._file_of

    def read(self, name: str, shape: tuple[int, ...] | None = None) -> torch.Tensor:
        """Return a tensor as stored; raise if it is missing or not of this shape."""
        file = self._file_of.get(name)
        if file is None:
            raise CheckpointError(str(self.directory), name, "is missing")
        self._unread.discard(name)
        try:
            tensor: torch.Tensor = self._handles[file].get_tensor(name)
        except (SafetensorError, RuntimeError, ValueError) as error:
            raise CheckpointError(self._path(file), name, f"cannot be read: {error}") from error
        if shape is not None and tuple(tensor.shape) != shape:
            raise CheckpointError(
                self._path(file), name, f"has shape {list(tensor.shape)}, expected {list(shape)}"
            )
        return tensor

    def fail(self, name: str, problem: str) -> CheckpointError:
        """Return the error that names this tensor and its file."""
        file = self._file_of.get(name)
        return CheckpointError(self._path(file) if file else str(self.directory), name, problem)

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
        """Return SHA-256 over config.json and, per file, its name, size and header."""
        digest = hashlib.sha256((self.directory / "config.json").read_bytes())
        for file in sorted(self._handles):
            path = self.directory / file
            with path.open("rb") as stream:
                header_size = int.from_bytes(stream.read(8), "little")
                digest.update(f"{file}:{path.stat().st_size}:".encode())
                digest.update(stream.read(header_size))
        return digest.hexdigest()

    def _locate(self) -> dict[str, str]:
        index = self.directory / INDEX_FILE
        if not index.exists():
            return dict.fromkeys(self._open(SINGLE_FILE), SINGLE_FILE)
        weight_map = read_json(index).get("weight_map")
        if not isinstance(weight_map, dict):
            raise CheckpointError(str(index), None, "has no weight_map")
        held = {file: set(self._open(file)) for file in sorted(set(weight_map.values()))}
        for name, file in weight_map.items():
            if name not in held[file]:
                raise CheckpointError(
                    self._path(file), name, f"is missing, but {INDEX_FILE} names it"
                )
        unlisted = sorted((n, f) for f, names in held.items() for n in names - weight_map.keys())
        if unlisted:
            name, file = unlisted[0]
            raise CheckpointError(self._path(file), name, f"is not in {INDEX_FILE}")
        return dict(weight_map)

    def _open(self, file: str) -> list[str]:
        path = self._path(file)
        try:
            handle = safe_open(path, framework="pt")
        except FileNotFoundError as error:
            raise CheckpointError(path, None, "no such file") from error
        except (SafetensorError, OSError) as error:
            raise CheckpointError(
                path, None, f"is truncated or not safetensors: {error}"
            ) from error
        self._handles[file] = handle
        return list(handle.keys())

    def _path(self, file: str) -> str:
        return str(self.directory / file)
