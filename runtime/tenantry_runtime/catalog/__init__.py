"""The models that an operator offers."""

from .catalog import Catalog
from .context import checkpoint_context
from .entry import Capability, CatalogEntry, Prices, ReasoningEffort
from .file import load_catalog

__all__ = [
    "Capability",
    "Catalog",
    "CatalogEntry",
    "Prices",
    "ReasoningEffort",
    "checkpoint_context",
    "load_catalog",
]
