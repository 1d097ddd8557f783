"""Hand-offs that a deployment's check lets pass are those that the cache has an op for."""

from __future__ import annotations

from itertools import product

import pytest
import torch

from tenantry_runtime.cache.formats import SERVED_FORMATS, CacheName
from tenantry_runtime.cache.ops import page_ops
from tenantry_runtime.deployment.pairing import CONVERSIONS


@pytest.mark.parametrize(("source", "target"), list(product(SERVED_FORMATS, repeat=2)))
def test_what_passes_is_what_pages_can_become(source: CacheName, target: CacheName) -> None:
    kept, wanted = SERVED_FORMATS[source], SERVED_FORMATS[target]
    device = torch.device("cpu")
    is_possible = all(
        there.name in page_ops(here, device).wire
        for here, there in ((kept.latent, wanted.latent), (kept.index, wanted.index))
    )
    assert (target in CONVERSIONS[source]) == is_possible
