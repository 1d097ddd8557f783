"""One tensor of the source made into those of the output."""

from __future__ import annotations

from typing import assert_never

import torch

from tenantry_runtime.models.checkpoint import Checkpoint
from tenantry_runtime.models.quantize import Fp8Matrix, dequantize_fp8, quantize_int4

from .plan import Step


@torch.inference_mode()
def transform(checkpoint: Checkpoint, step: Step) -> dict[str, torch.Tensor]:
    """Return the step's outputs by name; raise CheckpointError for values that no format holds."""
    match step.action:
        case "copy":
            return {stored.name: checkpoint.read(stored.name) for stored in step.outputs}
        case "to_bf16":
            return {step.name: _matrix(checkpoint, step).bfloat16()}
        case "to_int4":
            packed, scale = quantize_int4(_matrix(checkpoint, step))
            shape = torch.tensor(step.shape, dtype=torch.int32)
            names = (stored.name for stored in step.outputs)
            return dict(zip(names, (packed, scale, shape), strict=True))
    assert_never(step.action)


def _matrix(checkpoint: Checkpoint, step: Step) -> torch.Tensor:
    """Return float32 [out, in]."""
    stored = checkpoint.read(step.name)
    if step.is_fp8:
        wide = dequantize_fp8(Fp8Matrix(stored, checkpoint.read(f"{step.name}_scale_inv")))
    else:
        wide = stored.float()
    if not wide.isfinite().all():
        raise checkpoint.fail(step.name, "holds values that are not finite: the file is damaged")
    return wide
