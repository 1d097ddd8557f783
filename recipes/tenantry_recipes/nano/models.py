"""The nano models by name: where they live and what their configuration says."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import tenantry_runtime
from tenantry_runtime.models.checkpoint import read_json
from tenantry_runtime.models.config import Family, ModelConfig
from tenantry_runtime.models.loader import load_config

CHECKPOINTS = Path(tenantry_runtime.__file__).parent / "checkpoints"


@dataclass(frozen=True, slots=True, kw_only=True)
class NanoModel:
    """One nano model, as its folder's config.json describes it."""

    name: str
    family: Family
    config: dict[str, Any]
    decoder_config: ModelConfig


def checkpoint_directory(name: str) -> Path:
    """Return the folder that is served, which also holds the tokenizer."""
    return CHECKPOINTS / name


def _read(name: str) -> NanoModel:
    directory = checkpoint_directory(name)
    decoder_config = load_config(directory)
    return NanoModel(
        name=name,
        family=decoder_config.family,
        config=read_json(directory / "config.json"),
        decoder_config=decoder_config,
    )


NANO_MODELS: dict[str, Callable[[], NanoModel]] = {
    name: partial(_read, name) for name in ("kimi-k2.6-nano", "glm-5.2-nano")
}
