"""Runs versions of workers: isolates kept ready, shared, held to their limits, and replaced.

async with (
    open_templates(interpreter=interpreter, bundles=bundles, config=config) as templates,
    open_engine(templates, bindings=bindings, bundles=bundles, sink=sink, config=config) as engine,
):
    ...
    await engine.drain()
"""

from __future__ import annotations

from .config import EngineConfig
from .engine import EngineStatistics, WorkerEngine, open_engine
from .interface import Confined, Exit, IsolateProcess, Nursery, TemplateKey
from .templates import Templates, open_templates

__all__ = [
    "Confined",
    "EngineConfig",
    "EngineStatistics",
    "Exit",
    "IsolateProcess",
    "Nursery",
    "TemplateKey",
    "Templates",
    "WorkerEngine",
    "open_engine",
    "open_templates",
]
