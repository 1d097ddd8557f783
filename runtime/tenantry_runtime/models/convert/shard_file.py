"""One safetensors file, written tensor by tensor.

The header comes first and says where each tensor lies, so shapes and dtypes are known beforehand and
no more than one tensor is in memory. Wide dtypes lie first: then all are aligned.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import torch

from tenantry_runtime.models.safetensors_file import DTYPES

from .plan import Stored

_ALIGNMENT = 8


class ShardFile:
    """A file that is under way; leaving without an error means that it is whole and on the disk."""

    def __init__(self, path: Path, tensors: Sequence[Stored]) -> None:
        self._path = path
        self._missing = {stored.name: stored for stored in tensors}
        self._header, self._starts = _layout(tensors)

    def __enter__(self) -> Self:
        self._stream = self._path.open("wb")
        self._stream.write(len(self._header).to_bytes(8, "little") + self._header)
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        with self._stream:
            if exc is None:
                assert not self._missing, f"{sorted(self._missing)} were not written"
                self._stream.flush()
                os.fsync(self._stream.fileno())

    def write(self, name: str, tensor: torch.Tensor) -> None:
        """Put a tensor in its place; it must be as announced."""
        stored = self._missing.pop(name)
        assert tensor.dtype == DTYPES[stored.dtype], f"{name} is {tensor.dtype}"
        assert tuple(tensor.shape) == stored.shape, f"{name} is {tuple(tensor.shape)}"
        self._stream.seek(self._starts[name])
        self._stream.write(tensor.contiguous().flatten().view(torch.uint8).numpy().data)


def file_bytes(tensors: Sequence[Stored]) -> int:
    """Return the size of the file that would hold these."""
    header, _ = _layout(tensors)
    return 8 + len(header) + sum(stored.num_bytes for stored in tensors)


def _layout(tensors: Sequence[Stored]) -> tuple[bytes, dict[str, int]]:
    """Return the header, and where in the file each tensor begins."""
    entries: dict[str, object] = {"__metadata__": {"format": "pt"}}
    offsets: dict[str, int] = {}
    at = 0
    for stored in sorted(tensors, key=lambda one: (-DTYPES[one.dtype].itemsize, one.name)):
        offsets[stored.name] = at
        entries[stored.name] = {
            "dtype": stored.dtype,
            "shape": stored.shape,
            "data_offsets": (at, at + stored.num_bytes),
        }
        at += stored.num_bytes
    header = json.dumps(entries, separators=(",", ":")).encode()
    header += b" " * (-len(header) % _ALIGNMENT)
    return header, {name: 8 + len(header) + offset for name, offset in offsets.items()}
