"""What a decoder asks its checkpoint for, made of the tensors there: dense in the compute dtype.

Matrices are dequantized as they are read.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from .checkpoint import Checkpoint
from .config import Shard
from .linear import DenseExperts, DenseLinear, Experts, HeadMaps, Linear, Part, Split
from .quantize import (
    FP8_BLOCK,
    INT4_GROUP,
    INT4_PER_WORD,
    Fp8Matrix,
    Int4Matrix,
    dequantize_fp8,
    dequantize_int4,
)

_DENSE_DTYPES = (torch.bfloat16, torch.float16, torch.float32)


class CheckpointSource:
    """Weights of a released checkpoint, dense in the compute dtype."""

    def __init__(
        self,
        checkpoint: Checkpoint,
        *,
        prefix: str,
        dtype: torch.dtype,
        device: str,
        shard: Shard,
        deterministic: bool,
    ) -> None:
        self._checkpoint = checkpoint
        self._prefix = prefix
        self._dtype = dtype
        self._device = device
        self._shard = shard
        self._deterministic = deterministic

    @property
    def shard(self) -> Shard:
        return self._shard

    @property
    def held(self) -> str:
        """In what formats the matrices are that were given so far."""
        return dtype_name(self._dtype)

    def tensor(
        self, name: str, shape: tuple[int, ...], *, dtype: torch.dtype | None = None
    ) -> torch.Tensor:
        stored = self._read_dense(self._prefix + name, shape)
        return stored.to(dtype=dtype or self._dtype, device=self._device)

    def linear(self, parts: Sequence[Part], in_dim: int, split: Split | None = None) -> Linear:
        matrices = [
            self._shard_of(self._matrix(part.name, part.out_dim, in_dim), split) for part in parts
        ]
        weight = matrices[0] if len(matrices) == 1 else torch.cat(matrices)
        return DenseLinear(weight, deterministic=self._deterministic)

    def heads(
        self, name: str, num_heads: int, key_dim: int, value_dim: int, in_dim: int
    ) -> HeadMaps:
        rows_per_head = key_dim + value_dim
        # whole first: a quantization block may straddle two heads, and so two shards
        whole = self._matrix(name, num_heads * rows_per_head, in_dim)
        mine = self._shard.span(num_heads, "attention heads")
        weight_NRL = whole.unflatten(0, (num_heads, rows_per_head))[mine]
        if self._shard.size > 1:
            # a view would keep the other shards' heads in memory
            weight_NRL = weight_NRL.clone()
        return HeadMaps(weight_NRL, key_dim, deterministic=self._deterministic)

    def experts(
        self, prefix: str, num_experts: int, hidden_dim: int, intermediate_dim: int
    ) -> Experts:
        mine = self._shard.span(intermediate_dim, "expert columns")
        part = mine.stop - mine.start
        gate_up = self._empty(num_experts, 2 * part, hidden_dim)
        down = self._empty(num_experts, hidden_dim, part)
        for e in range(num_experts):
            name = f"{prefix}.{e}"
            gate_up[e, :part] = self._matrix(f"{name}.gate_proj", intermediate_dim, hidden_dim)[
                mine
            ]
            gate_up[e, part:] = self._matrix(f"{name}.up_proj", intermediate_dim, hidden_dim)[mine]
            down[e] = self._matrix(f"{name}.down_proj", hidden_dim, intermediate_dim)[:, mine]
        return DenseExperts(gate_up, down, deterministic=self._deterministic)

    def _empty(self, *shape: int) -> torch.Tensor:
        return torch.empty(shape, dtype=self._dtype, device=self._device)

    def _shard_of(self, matrix: torch.Tensor, split: Split | None) -> torch.Tensor:
        if split is None or self._shard.size == 1:
            return matrix
        if split == "rows":
            return matrix[self._shard.span(matrix.shape[0], "rows")].clone()
        return matrix[:, self._shard.span(matrix.shape[1], "columns")].clone()

    def _matrix(self, name: str, out_dim: int, in_dim: int) -> torch.Tensor:
        """Return matrix `name` [out, in], whatever format it is stored in."""
        match self._read_matrix(name, out_dim, in_dim):
            case Int4Matrix() as int4:
                wide = dequantize_int4(int4)
            case Fp8Matrix() as fp8:
                wide = dequantize_fp8(fp8)
            case dense:
                wide = dense
        return wide.to(dtype=self._dtype, device=self._device)

    def _read_matrix(
        self, name: str, out_dim: int, in_dim: int
    ) -> Int4Matrix | Fp8Matrix | torch.Tensor:
        full = f"{self._prefix}{name}.weight"
        # what is there decides, not the configuration: its ignore list does not name everything
        if f"{full}_packed" in self._checkpoint:
            return self._read_int4(full, out_dim, in_dim)
        if f"{full}_scale_inv" in self._checkpoint:
            return self._read_fp8(full, out_dim, in_dim)
        return self._read_dense(full, (out_dim, in_dim))

    def _read_dense(self, full: str, shape: tuple[int, ...]) -> torch.Tensor:
        tensor = self._checkpoint.read(full, shape)
        if tensor.dtype == torch.float8_e4m3fn:
            raise self._checkpoint.fail(full, "is FP8 without its weight_scale_inv")
        if tensor.dtype not in _DENSE_DTYPES:
            raise self._checkpoint.fail(full, f"is {tensor.dtype}, which is no dense weight")
        return tensor

    def _read_int4(self, full: str, out_dim: int, in_dim: int) -> Int4Matrix:
        if in_dim % INT4_GROUP:
            raise self._checkpoint.fail(f"{full}_packed", f"{in_dim} columns are not whole groups")
        shape = self._checkpoint.read(f"{full}_shape", (2,))
        if shape.dtype not in (torch.int32, torch.int64) or shape.tolist() != [out_dim, in_dim]:
            raise self._checkpoint.fail(
                f"{full}_shape", f"says {shape.tolist()}, expected {[out_dim, in_dim]}"
            )
        packed = self._checkpoint.read(f"{full}_packed", (out_dim, in_dim // INT4_PER_WORD))
        if packed.dtype != torch.int32:
            raise self._checkpoint.fail(f"{full}_packed", f"is {packed.dtype}, expected int32")
        scale = self._checkpoint.read(f"{full}_scale", (out_dim, in_dim // INT4_GROUP))
        return Int4Matrix(packed, scale)

    def _read_fp8(self, full: str, out_dim: int, in_dim: int) -> Fp8Matrix:
        weight = self._checkpoint.read(full, (out_dim, in_dim))
        if weight.dtype != torch.float8_e4m3fn:
            raise self._checkpoint.fail(full, f"is {weight.dtype}, expected float8_e4m3fn")
        blocks = (-(-out_dim // FP8_BLOCK), -(-in_dim // FP8_BLOCK))
        return Fp8Matrix(weight, self._checkpoint.read(f"{full}_scale_inv", blocks))


def dtype_name(dtype: torch.dtype) -> str:
    """Return `bfloat16` of `torch.bfloat16`."""
    return str(dtype).removeprefix("torch.")
