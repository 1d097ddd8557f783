"""What is uploaded of a worker: its files, and what it depends on."""

from __future__ import annotations

from .bundle import Bundle, Module, make_bundle, sources, write_bundle
from .requirements import Requirements, read_requirements

__all__ = [
    "Bundle",
    "Module",
    "Requirements",
    "make_bundle",
    "read_requirements",
    "sources",
    "write_bundle",
]
