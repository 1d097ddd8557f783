"""Compile what a node runs for checkpoints: `python -m tenantry_runtime.models.compile_ahead [--dtype D] DIRECTORY...`.

A first start does so too, and takes some seconds longer for it.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch

from tenantry_runtime.cache.formats import CACHE_FORMATS
from tenantry_runtime.cache.paged import PagedCache
from tenantry_runtime.cache.tags import PageTags

from .loader import load_model
from .warm_up import warm_up


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--dtype",
        choices=("float32", "bfloat16"),
        default="float32",
        help="A node's; default: float32.",
    )
    parser.add_argument("directories", type=Path, nargs="+", metavar="DIRECTORY")
    given = parser.parse_args()
    PageTags(1, num_appends=1)
    for directory in given.directories:
        # each combination of a dtype and a format is compiled for itself
        decoder = load_model(directory, dtype=getattr(torch, given.dtype))
        for name in ("bf16", "fp8"):
            cache_format = CACHE_FORMATS[name]
            warm_up(
                decoder,
                PagedCache.allocate(decoder.config, num_pages=1, cache_format=cache_format),
            )


if __name__ == "__main__":
    main()
