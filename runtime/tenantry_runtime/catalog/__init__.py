"""The models that an operator offers."""

from .catalog import Catalog
from .context import checkpoint_context
from .entry import Capability, CatalogEntry, Prices, ReasoningEffort
from .file import load_catalog
from .pricing import FREE, TokenPrices, cost, neurons, token_prices

__all__ = [
    "FREE",
    "Capability",
    "Catalog",
    "CatalogEntry",
    "Prices",
    "ReasoningEffort",
    "TokenPrices",
    "checkpoint_context",
    "cost",
    "load_catalog",
    "neurons",
    "token_prices",
]
