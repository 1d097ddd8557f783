"""A nano model with the pages of the real one: as many layers, latents as wide, and random weights.

What a step takes of a page's bytes is as at the real size, 4.3 MiB in BF16; what it computes is not.
Random weights end no answer by themselves.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from safetensors.torch import save_file

from tenantry_recipes.bench.random_weights import random_weights
from tenantry_recipes.nano.models import checkpoint_directory
from tenantry_runtime.engine.config import GPU_HANDOFF_BYTES

NAME = "kimi-k2.6-pages"
CACHE_BYTES = 3 << 30
"""Of the decode node: a batch, and some prompts that come in."""
HANDOFF_BYTES = GPU_HANDOFF_BYTES
"""In a turn: with a CPU's few, one page in each would bring 60 MB/s into steps this long."""

_NANO = "kimi-k2.6-nano"

# of Kimi K2.6
_DIMENSIONS: Mapping[str, Any] = {
    "num_hidden_layers": 61,
    "kv_lora_rank": 512,
    "qk_rope_head_dim": 64,
}


@contextmanager
def checkpoint() -> Iterator[Path]:
    """Write the checkpoint to a directory that is removed in the end."""
    with tempfile.TemporaryDirectory(prefix="tenantry-bench-") as folder:
        directory = Path(folder) / NAME
        nano = checkpoint_directory(_NANO)
        shutil.copytree(nano, directory, ignore=shutil.ignore_patterns("*.safetensors"))
        config = json.loads((nano / "config.json").read_text())
        text = config["text_config"] | _DIMENSIONS
        del text["quantization_config"]
        (directory / "config.json").write_text(json.dumps(config | {"text_config": text}))
        weights = random_weights(directory)
        prefixed = {f"language_model.{name}": weight for name, weight in weights.items()}
        save_file(prefixed, directory / "model.safetensors", metadata={"format": "pt"})
        yield directory
