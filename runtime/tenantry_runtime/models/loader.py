"""From a model directory to a decoder, one tensor at a time.

The decoder asks for its weights by name and shape; what it does not get, or does not ask for, is
an error that names file and tensor. Where matrices are dense, they are dequantized as they are read,
so that host memory holds the model in its compute dtype and one tensor more.

| `weights` | INT4 and FP8 matrices, and BF16 ones beside float32 rows | memory |
|---|---|---|
| `stored` | stay as the file holds them (`stored.py`) | the files' bytes, and a tile per product |
| `dense` | become the compute dtype | all weights in the compute dtype |

In either, some tensors have the compute dtype: the embedding, norms and kv_b_proj, whose absorbed
products go along both of its axes and whose heads FP8 blocks straddle (GLM-5.2: 29 MB of BF16 per
layer, 2.3 GB in all, 1.2 GB more than its FP8; Kimi K2.6 stores it in BF16). The router is float32.

Unless told, a model whose dense weights fit `DENSE_BYTES` is dense: it may then take the compiled
decode step, which a small model's speed is made of, since calls cost it more than reading weights
does. What is larger is bound by reading weights and stays as stored.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Literal, TypeAlias

import torch

from tenantry_runtime.errors import CheckpointError

from . import glm, kimi
from .checkpoint import Checkpoint, read_json
from .config import ModelConfig, Shard
from .decoder import Decoder, Reduce
from .fields import Fields
from .sizes import WeightFormat, weight_bytes
from .source import CheckpointSource
from .stored_source import StoredSource

Weights: TypeAlias = Literal["stored", "dense"]

DENSE_BYTES = 1 << 30
"""Of a whole model in its compute dtype, up to which weights are dense unless asked for otherwise."""

_DESCRIBE: Mapping[str, Callable[[str, Fields], ModelConfig]] = {
    **dict.fromkeys(kimi.MODEL_TYPES, kimi.describe),
    **dict.fromkeys(glm.MODEL_TYPES, glm.describe),
}


def load_config(directory: Path) -> ModelConfig:
    """Return the description of a model directory; raise CheckpointError if there is none here."""
    file = directory / "config.json"
    values = read_json(file)
    model_type = values.get("model_type")
    describe = _DESCRIBE.get(str(model_type))
    if describe is None:
        known = ", ".join(_DESCRIBE)
        raise CheckpointError(str(file), None, f"model_type is {model_type!r}, none of {known}")
    return describe(str(model_type), Fields(values, file=str(file)))


def load_model(
    directory: Path,
    *,
    dtype: torch.dtype = torch.float32,
    device: str = "cpu",
    weights: Weights | None = None,
    shard: Shard | None = None,
    deterministic: bool = False,
    reduce: Reduce = lambda partial: partial,
) -> Decoder:
    """Return the decoder in `directory`, which computes in `dtype` (router: float32).

    weights: how matrices are kept; None: as the table above says.

    `deterministic` fixes row tiles, so that a sequence's tokens do not depend on its batch. On the
    CPU this holds on one thread: torch cuts elementwise work in the middle of a row otherwise.
    Raises CheckpointError.
    """
    config = load_config(directory)
    checkpoint = Checkpoint(directory)
    kept = weights or default_weights(config, dtype)
    source = (StoredSource if kept == "stored" else CheckpointSource)(
        checkpoint,
        prefix=config.tensor_prefix,
        dtype=dtype,
        device=device,
        shard=shard or Shard(),
        deterministic=deterministic,
    )
    decoder = Decoder(
        config,
        source,
        revision=checkpoint.revision(),
        deterministic=deterministic,
        reduce=reduce,
    )
    decoder.weights = source.held
    checkpoint.require_all_read(config.skipped_tensors)
    return decoder


def default_weights(config: ModelConfig, dtype: torch.dtype) -> Weights:
    """Return how a model's matrices are kept unless told."""
    num_values = weight_bytes(config, WeightFormat(experts="bf16")).total // torch.bfloat16.itemsize
    return "dense" if num_values * dtype.itemsize <= DENSE_BYTES else "stored"
