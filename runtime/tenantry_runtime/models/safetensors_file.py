"""One safetensors file, read tensor by tensor into memory of this process.

The format (huggingface/safetensors): 8 bytes little-endian header size, a JSON header with dtype,
shape and byte range of each tensor, then the bytes. The safetensors package checks a file; it would
then map it, and mapped pages stay resident until the file is closed, which for a checkpoint means
the model's size a second time.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors import SafetensorError, safe_open

from tenantry_runtime.errors import CheckpointError

DTYPES = {
    "BOOL": torch.bool,
    "U8": torch.uint8,
    "I8": torch.int8,
    "I16": torch.int16,
    "I32": torch.int32,
    "I64": torch.int64,
    "F8_E4M3": torch.float8_e4m3fn,
    "F8_E5M2": torch.float8_e5m2,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "F32": torch.float32,
    "F64": torch.float64,
}
"""By the format's own words."""


class StoredTensor(NamedTuple):
    """Where a tensor lies and what it is."""

    path: Path
    dtype: str
    """In the format's own words."""
    shape: tuple[int, ...]
    start: int
    """Bytes from the file's beginning."""
    num_bytes: int


def read_header(path: Path) -> dict[str, StoredTensor]:
    """Return what the file holds, by name; raise CheckpointError unless it holds all of it."""
    try:
        with safe_open(str(path), framework="pt"):
            pass
    except FileNotFoundError as error:
        raise CheckpointError(str(path), None, "no such file") from error
    except (SafetensorError, OSError) as error:
        raise CheckpointError(
            str(path), _first_cut_tensor(path), f"is truncated or not safetensors: {error}"
        ) from error
    return _parse_header(path)


def read_tensor(name: str, stored: StoredTensor) -> torch.Tensor:
    """Return the tensor, in memory of its own."""
    dtype = DTYPES.get(stored.dtype)
    if dtype is None:
        raise CheckpointError(str(stored.path), name, f"is stored as {stored.dtype}")
    content = torch.empty(stored.num_bytes, dtype=torch.uint8)
    try:
        with stored.path.open("rb") as stream:
            stream.seek(stored.start)
            num_read = stream.readinto(content.numpy().data)
    except OSError as error:
        raise CheckpointError(str(stored.path), name, f"cannot be read: {error}") from error
    if num_read != stored.num_bytes:
        raise CheckpointError(
            str(stored.path), name, f"has {num_read} of {stored.num_bytes} bytes: truncated"
        )
    return content.view(dtype).view(stored.shape)


def _parse_header(path: Path) -> dict[str, StoredTensor]:
    with path.open("rb") as stream:
        header_size = int.from_bytes(stream.read(8), "little")
        if header_size > path.stat().st_size:
            raise ValueError("the header is longer than the file")
        header: dict[str, Any] = json.loads(stream.read(header_size))
    stored = {}
    for name, entry in header.items():
        if name != "__metadata__":
            start, stop = entry["data_offsets"]
            stored[name] = StoredTensor(
                path, entry["dtype"], tuple(entry["shape"]), 8 + header_size + start, stop - start
            )
    return stored


def _first_cut_tensor(path: Path) -> str | None:
    """Return the first tensor whose bytes end past the file; None if the header is unusable too."""
    try:
        stored = _parse_header(path)
        size = path.stat().st_size
        cut = [name for name, at in stored.items() if at.start + at.num_bytes > size]
        return min(cut, key=lambda name: stored[name].start, default=None)
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return None
