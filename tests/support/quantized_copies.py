"""Copies of a checkpoint in the released quantized formats, and what these say, decoded anew.

The copies are written with the runtime's own quantizers; `dequantized_copy` decodes the files byte
by byte with NumPy and shares no code with the runtime.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme
from safetensors.torch import load_file, save_file

from tenantry_runtime.models.quantize import quantize_fp8, quantize_int4

Tensors = Mapping[str, torch.Tensor]
Copy = Callable[[Path, Path], None]

FILE = "model.safetensors"
INT4_SCHEME = QuantizationScheme(
    targets=["Linear"],
    weights=QuantizationArgs(
        num_bits=4, type="int", symmetric=True, strategy="group", group_size=32
    ),
)
"""The released INT4 files' format, in the words of the package that wrote them."""

_ROUTED_EXPERT = re.compile(r".*\.mlp\.experts\.\d+\.(gate|up|down)_proj\.weight")
_KEPT_IN_FP8_FILES = re.compile(
    r".*(embed_tokens|lm_head|shared_head|norm|mlp\.gate\.|weights_proj|eh_proj|vision_tower|mm_projector).*"
)


def rewritten(source: Path, destination: Path, rewrite: Callable[[Tensors], Tensors]) -> None:
    """Copy a checkpoint with other tensors."""
    shutil.copytree(source, destination)
    save_file(
        {name: tensor.contiguous() for name, tensor in rewrite(load_file(source / FILE)).items()},
        destination / FILE,
        metadata={"format": "pt"},
    )


def without(name: str) -> Callable[[Tensors], Tensors]:
    """Return how to leave one tensor out."""
    return lambda tensors: {key: tensor for key, tensor in tensors.items() if key != name}


def int4_copy(shape_dtype: torch.dtype) -> Copy:
    """Return how to copy with INT4 routed experts; Kimi's files keep int32 shapes, others int64."""

    def quantized(tensors: Tensors) -> Tensors:
        copied: dict[str, torch.Tensor] = {}
        for name, tensor in tensors.items():
            if not _ROUTED_EXPERT.fullmatch(name):
                copied[name] = tensor
                continue
            matrix = quantize_int4(tensor)
            copied[f"{name}_packed"], copied[f"{name}_scale"] = matrix
            copied[f"{name}_shape"] = torch.tensor(tensor.shape, dtype=shape_dtype)
        return copied

    return lambda source, destination: rewritten(source, destination, quantized)


def fp8_copy(source: Path, destination: Path) -> None:
    """Copy with FP8 blocks in every matrix that the released files quantize."""

    def quantized(tensors: Tensors) -> Tensors:
        copied: dict[str, torch.Tensor] = {}
        for name, tensor in tensors.items():
            if tensor.dim() != 2 or _KEPT_IN_FP8_FILES.fullmatch(name):
                copied[name] = tensor
            else:
                copied[name], copied[f"{name}_scale_inv"] = quantize_fp8(tensor)
        return copied

    rewritten(source, destination, quantized)


def dequantized_copy(source: Path, destination: Path) -> None:
    """Copy a quantized checkpoint with dense float32 matrices."""
    rewritten(source, destination, dequantized)


def dequantized(tensors: Tensors) -> Tensors:
    """Return the dense float32 tensors that quantized ones stand for."""
    dense: dict[str, torch.Tensor] = {}
    for name, tensor in tensors.items():
        if name.endswith("_packed"):
            stem = name.removesuffix("_packed")
            scale = tensors[f"{stem}_scale"].float().numpy()
            dense[stem] = torch.from_numpy(int4_values(tensor.numpy()) * np.repeat(scale, 32, 1))
        elif f"{name}_scale_inv" in tensors:
            dense[name] = torch.from_numpy(fp8_values(tensor, tensors[f"{name}_scale_inv"]))
        elif not name.endswith(("_scale", "_shape", "_scale_inv")):
            dense[name] = tensor
    return dense


def int4_values(packed: npt.NDArray[np.int32]) -> npt.NDArray[np.float32]:
    """Decode words: in memory, byte b of a row holds column 2b in its low half, 2b + 1 in its high."""
    byte = packed.astype("<i4").view(np.uint8)
    values = np.empty((packed.shape[0], packed.shape[1] * 8), np.float32)
    values[:, 0::2] = (byte % 16).astype(np.float32) - 8
    values[:, 1::2] = (byte // 16).astype(np.float32) - 8
    return values


def fp8_values(weight: torch.Tensor, scale_inv: torch.Tensor) -> npt.NDArray[np.float32]:
    """Decode e4m3 bytes by their table, one 128x128 block after the other."""
    table = np.array([e4m3_value(code) for code in range(256)], np.float32)
    values: npt.NDArray[np.float32] = table[weight.view(torch.uint8).numpy()]
    for (row, column), scale in np.ndenumerate(scale_inv.numpy()):
        values[row * 128 : row * 128 + 128, column * 128 : column * 128 + 128] *= scale
    return values


def e4m3_value(code: int) -> float:
    """Return what an e4m3fn byte means: 1 sign, 4 exponent (bias 7), 3 mantissa bits, no infinity."""
    sign = -1.0 if code & 0x80 else 1.0
    exponent, mantissa = code >> 3 & 0xF, code & 0x7
    if exponent == 0:
        return sign * mantissa / 8 * 2.0**-6
    if exponent == 15 and mantissa == 7:
        return float("nan")
    return float(sign * (1 + mantissa / 8) * 2.0 ** (exponent - 7))
