"""Runs the parts of a deployment that belong to this machine: what `workerctl serve` and `dev` share."""

from __future__ import annotations

from .parts import Modules
from .serve import serve

__all__ = ["Modules", "serve"]
