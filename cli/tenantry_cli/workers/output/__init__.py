"""What commands show: as wrangler's users know it, in color only where a person reads it."""

from __future__ import annotations

from .screen import Screen

__all__ = ["Screen"]
