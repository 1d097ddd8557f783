"""The control plane, as `workerctl` speaks to it."""

from __future__ import annotations

from .control_plane import ControlPlane, Page, Refused, Unreachable

__all__ = ["ControlPlane", "Page", "Refused", "Unreachable"]
