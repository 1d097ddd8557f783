"""Compile what a node runs for these checkpoints: `python -m tenantry_runtime.models.compile_ahead DIRECTORY...`.

A first start does so too, and takes some seconds longer for it.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from tenantry_runtime.cache.formats import CACHE_FORMATS
from tenantry_runtime.cache.paged import PagedCache
from tenantry_runtime.cache.tags import PageTags

from .loader import load_model
from .warm_up import warm_up


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directories", type=Path, nargs="+", metavar="DIRECTORY")
    PageTags(1, num_appends=1)
    for directory in parser.parse_args().directories:
        # in a node's default dtype: each combination of formats is compiled for itself
        decoder = load_model(directory)
        for name in ("bf16", "fp8"):
            cache_format = CACHE_FORMATS[name]
            warm_up(
                decoder,
                PagedCache.allocate(decoder.config, num_pages=1, cache_format=cache_format),
            )


if __name__ == "__main__":
    main()
