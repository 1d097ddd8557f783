"""A whole runtime on one machine: what `workerctl dev` adds to the supervisor."""

from __future__ import annotations

from .serve import serve

__all__ = ["serve"]
