"""How many pages fit into how many bytes, by the format of the cache (`formats.py`).

A page has no padding: 64 rows of whole values and their scales are multiples of 128 bytes in every
released model. Each GPU of a member holds every page, because its heads attend over whole latents:
more GPUs hold more tokens only in that each holds fewer weights.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tenantry_runtime.core import PAGE_TOKENS

from .formats import CacheFormat

if TYPE_CHECKING:
    # importing it imports torch, which this arithmetic does without
    from tenantry_runtime.models.config import ModelConfig

DEFAULT_MEMORY_FRACTION = 0.831
"""Of a GPU's memory, for weights, activations and pages: of an H200's, where the published 686,000 tokens
of Kimi fit (`models/plan.py`). The rest is the driver's and the libraries'."""

SINK_PAGES = 1
"""That a pool allocates and never hands out (`cache/paged.py`)."""


def bytes_per_page(config: ModelConfig, cache: CacheFormat) -> int:
    """Return the bytes of a page over all layers."""
    return PAGE_TOKENS * cache.bytes_per_token(config)


def usable_bytes(total_bytes: int, memory_fraction: float) -> int:
    """Return what one process may fill of a device's memory: weights, activations and pages."""
    return int(total_bytes * memory_fraction)


def num_pages(cache_bytes: int, page_bytes: int) -> int:
    """Return how many pages can be handed out where `cache_bytes` hold them and the sink."""
    return max(cache_bytes // page_bytes - SINK_PAGES, 0)
