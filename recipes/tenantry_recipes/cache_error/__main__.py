"""Compare row formats by the error of attention's output: `python -m tenantry_recipes.cache_error`.

Prints Markdown: for each nano model, format and kind of cache the relative RMS error of all rows, and
in parentheses the error that one row in a hundred exceeds; then what FP8 index keys change in what
indexers choose.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import islice

import torch

from tenantry_recipes.bench.table import table
from tenantry_recipes.nano.models import NANO_MODELS, checkpoint_directory
from tenantry_runtime.cache.formats import BF16, FP8, FP8_576, FP8_644, FP8_656, RowFormat
from tenantry_runtime.models.loader import load_model
from tenantry_runtime.text import load_text

from .capture import SeenIndex, SeenLayer, prompts, record
from .outliers import INJECTIONS
from .round_trip import round_trip

COMPARED = (BF16, FP8_576, FP8, FP8_644, FP8_656)
RELEASED_LATENT, RELEASED_ROPE = 512, 64


@dataclass(frozen=True, slots=True)
class Error:
    """Of attention's output, relative to its size."""

    rms: float
    worst_percent: float
    """Exceeded by one row in a hundred."""

    def __str__(self) -> str:
        return f"{100 * self.rms:.2f}% ({100 * self.worst_percent:.1f}%)"


def scaled_down(rows: RowFormat, latent_dim: int) -> RowFormat:
    """Return the format with as many scales per row as a released model's rows have."""
    if rows.scale_block is None:
        return rows
    return replace(rows, scale_block=rows.scale_block * latent_dim // RELEASED_LATENT)


def output_error(layers: Sequence[SeenLayer], rows: RowFormat) -> Error:
    """Return the error over all layers and rows; each row counts by its relative error."""
    relative = []
    for layer in layers:
        latent_dim = layer.value_NVL.shape[-1]
        kept = round_trip(
            layer.row_KC,
            scaled_down(rows, latent_dim),
            rope_dim=layer.row_KC.shape[1] - latent_dim,
        )
        exact, actual = (layer.values(each).flatten(1) for each in (layer.row_KC, kept))
        relative.append((actual - exact).norm(dim=-1) / exact.norm(dim=-1))
    every = torch.cat(relative)
    return Error(every.square().mean().sqrt().item(), every.quantile(0.99).item())


def agreement(indexers: Sequence[SeenIndex], rows: RowFormat) -> float:
    """Return the share of the positions chosen by exact keys that rounded keys choose too."""
    num_same = num_chosen = 0
    for index in indexers:
        exact = index.chosen(index.key_KD)
        kept = index.chosen(round_trip(index.key_KD, rows, rope_dim=0))
        num_same += int((exact & kept).sum())
        num_chosen += int(exact.sum())
    return num_same / num_chosen


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--prompts", type=int, default=6, help="of each model")
    parser.add_argument("--tokens", type=int, default=1000, help="of the shortest")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    torch.set_num_threads(1)
    for name in NANO_MODELS:
        layers, indexers = seen(
            name, number=options.prompts, least_tokens=options.tokens, seed=options.seed
        )
        print(f"\n{name}, {options.prompts} prompts of {options.tokens} tokens or more\n")
        print(error_table(layers))
        if indexers:
            print(f"\nIndexers choose the same: {index_line(indexers)}")


def seen(
    name: str, *, number: int, least_tokens: int, seed: int
) -> tuple[list[SeenLayer], list[SeenIndex]]:
    """Run prompts through a nano model."""
    directory = checkpoint_directory(name)
    decoder, text = load_model(directory), load_text(directory)
    layers: list[SeenLayer] = []
    indexers: list[SeenIndex] = []
    for token_ids in islice(prompts(text, least_tokens=least_tokens, seed=seed), number):
        recorder = record(decoder, token_ids)
        layers += recorder.layers
        indexers += recorder.indexers
    return layers, indexers


def error_table(layers: Sequence[SeenLayer]) -> str:
    """Lay out the formats' errors by kind of cache."""
    caches = [[inject(layer) for layer in layers] for inject in INJECTIONS.values()]
    lines = [
        (
            rows.name,
            str(rows.row_bytes(RELEASED_LATENT + RELEASED_ROPE, RELEASED_ROPE)),
            *(str(output_error(cache, rows)) for cache in caches),
        )
        for rows in COMPARED
    ]
    return table(["rows", "bytes of 512 + 64", *INJECTIONS], lines)


def index_line(indexers: Sequence[SeenIndex]) -> str:
    """Say how far choices agree."""
    return ", ".join(
        f"{100 * agreement(indexers, rows):.2f}% with {rows.name} keys" for rows in (BF16, FP8)
    )


if __name__ == "__main__":
    main()
