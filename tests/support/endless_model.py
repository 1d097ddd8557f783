"""A model whose answers end at `max_tokens` and nowhere else."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from safetensors.torch import load_file, save_file

from tenantry_runtime.catalog import load_catalog
from tenantry_runtime.text import load_text

NAME = "endless"


def a_catalog_of_an_endless_model(folder: Path) -> Path:
    """Copy a nano checkpoint, with the rows of the output layer for its stop tokens zeroed.

    Their logits are 0 then, which is never the greatest: the model does not stop at temperature 0.
    """
    original = Path(load_catalog().entries[1].directory)
    directory = folder / NAME
    shutil.copytree(original, directory)
    weights = directory / "model.safetensors"
    tensors = load_file(weights)
    tensors["lm_head.weight"][sorted(load_text(original).stop_token_ids)] = 0
    save_file(tensors, weights, metadata={"format": "pt"})
    catalog = folder / "catalog.json"
    catalog.write_text(json.dumps({"models": [{"id": NAME, "directory": str(directory)}]}))
    return catalog
