"""A node with one model, as the contenders run it."""

from __future__ import annotations

from tenantry_runtime.engine.config import ModelSource, NodeConfig

from .contender import EngineSettings

MODEL = "benched"
"""Its id."""


def node_config(settings: EngineSettings, *, vocab_limit: int | None = None) -> NodeConfig:
    """Return what the engine is built with; ids from `vocab_limit` on are never sampled."""
    return NodeConfig(
        models=(ModelSource(id=MODEL, directory=str(settings.directory), vocab_limit=vocab_limit),),
        dtype=settings.dtype,
        cache=settings.cache,
        threads=settings.threads,
        max_batch=settings.max_batch,
    )
