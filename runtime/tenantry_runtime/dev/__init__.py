"""A whole runtime on one machine: the supervisor behind `workerctl dev`."""

from __future__ import annotations

from .serve import serve

__all__ = ["serve"]
