"""How many tokens a checkpoint was made for."""

from __future__ import annotations

from pathlib import Path

import msgspec

from tenantry_runtime.errors import CheckpointError

CONFIG_FILE = "config.json"


class _TextConfig(msgspec.Struct):
    max_position_embeddings: int | None = None


class _Config(_TextConfig):
    text_config: _TextConfig | None = None


def checkpoint_context(directory: Path) -> int:
    """Return the context that `config.json` declares, prompt and answer together."""
    path = directory / CONFIG_FILE
    try:
        config = msgspec.json.decode(path.read_bytes(), type=_Config)
    except OSError as error:
        raise CheckpointError(str(path), None, f"cannot be read: {error.strerror}") from error
    except msgspec.DecodeError as error:
        raise CheckpointError(str(path), None, str(error)) from error
    context = (config.text_config or config).max_position_embeddings
    if context is None or context < 1:
        raise CheckpointError(str(path), None, "does not say max_position_embeddings")
    return context
