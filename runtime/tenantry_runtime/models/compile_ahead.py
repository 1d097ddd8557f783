"""Compile what a node runs for these checkpoints: `python -m tenantry_runtime.models.compile_ahead DIRECTORY...`.

A first start does so too, and takes some seconds longer for it.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch

from tenantry_runtime.cache.paged import PagedCache

from .loader import load_model
from .warm_up import warm_up


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directories", type=Path, nargs="+", metavar="DIRECTORY")
    for directory in parser.parse_args().directories:
        # in a node's default formats: each combination is compiled for itself
        decoder = load_model(directory)
        warm_up(decoder, PagedCache.allocate(decoder.config, num_pages=1, dtype=torch.bfloat16))


if __name__ == "__main__":
    main()
