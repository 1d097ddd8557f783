"""Reading a checkpoint's small files; what is wrong with one is a `CheckpointError` that names it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from tenantry_runtime.errors import CheckpointError


def read_bytes(path: Path) -> bytes:
    """Read a file that a checkpoint must have."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise CheckpointError(str(path), None, f"cannot be read: {error.strerror}") from error


def read_object(path: Path) -> dict[str, Any]:
    """Read a JSON object that a checkpoint must have."""
    try:
        return msgspec.json.decode(read_bytes(path), type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise CheckpointError(str(path), None, f"is not a JSON object: {error}") from error
