"""A checkpoint's matrices as it stores them: nothing is dequantized but what `source.py` gives."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from tenantry_kernels.stored import StoredDense, StoredFp8, StoredInt4, StoredMatrix

from .linear import DenseLinear, Experts, Linear, Part, Split
from .quantize import Fp8Matrix, Int4Matrix
from .source import CheckpointSource, dtype_name
from .stored import Cut, ExpertStack, StoredExperts, StoredLinear, grouped_experts


class StoredSource(CheckpointSource):
    """Weights of a released checkpoint, as stored where they are narrower than the compute dtype."""

    _formats: frozenset[str] = frozenset()

    @property
    def held(self) -> str:
        """In what formats the matrices are that were given so far, the compute dtype last."""
        return "+".join([*sorted(self._formats), dtype_name(self._dtype)])

    def linear(self, parts: Sequence[Part], in_dim: int, split: Split | None = None) -> Linear:
        cuts = [self._cut(self._stored(p.name, p.out_dim, in_dim), split) for p in parts]
        if any(self._is_narrow(cut.matrix) for cut in cuts):
            return StoredLinear(cuts, deterministic=self._deterministic)
        weights = [weight for cut in cuts for weight in cut.matrix.tensors()]
        weight = weights[0] if len(weights) == 1 else torch.cat(weights)
        return DenseLinear(weight, deterministic=self._deterministic)

    def experts(
        self, prefix: str, num_experts: int, hidden_dim: int, intermediate_dim: int
    ) -> Experts:
        # raises where they cannot be divided
        self._shard.span(intermediate_dim, "expert columns")
        if self._is_dense(f"{prefix}.0.up_proj"):
            return super().experts(prefix, num_experts, hidden_dim, intermediate_dim)
        stacks: tuple[ExpertStack, ExpertStack] | None = None
        products: list[tuple[StoredLinear, StoredLinear]] = []
        for e in range(num_experts):
            name = f"{prefix}.{e}"
            gate_up = [
                self._cut(self._stored(f"{name}.{part}", intermediate_dim, hidden_dim), "rows")
                for part in ("gate_proj", "up_proj")
            ]
            down = [
                self._cut(
                    self._stored(f"{name}.down_proj", hidden_dim, intermediate_dim), "columns"
                )
            ]
            if stacks is None:
                stacks = (
                    ExpertStack(num_experts, gate_up, self._device),
                    ExpertStack(num_experts, down, self._device),
                )
            products.append((self._linear(stacks[0], gate_up), self._linear(stacks[1], down)))
        assert stacks is not None
        grouped = grouped_experts(*stacks, deterministic=self._deterministic)
        return StoredExperts(products, grouped=grouped, deterministic=self._deterministic)

    def _linear(self, stack: ExpertStack, cuts: list[Cut]) -> StoredLinear:
        return StoredLinear(stack.put(cuts), deterministic=self._deterministic)

    def _cut(self, matrix: StoredMatrix, split: Split | None) -> Cut:
        if self._is_narrow(matrix):
            self._formats |= {matrix.format}
        if split is None or self._shard.size == 1:
            return Cut.whole(matrix)
        height, width = matrix.shape
        if split == "rows":
            return Cut.of_rows(matrix, self._shard.span(height, "rows"))
        return Cut.of_columns(matrix, self._shard.span(width, "columns"))

    def _stored(self, name: str, out_dim: int, in_dim: int) -> StoredMatrix:
        match self._read_matrix(name, out_dim, in_dim):
            case Int4Matrix(packed, scale):
                # BF16 in released files; float32 holds any other
                scale = scale if scale.dtype == torch.bfloat16 else scale.float()
                return StoredInt4(Int4Matrix(packed.to(self._device), scale.to(self._device)))
            case Fp8Matrix(weight, scale_inv):
                scale_inv = scale_inv.to(device=self._device, dtype=torch.float32)
                return StoredFp8(Fp8Matrix(weight.to(self._device), scale_inv))
            case dense:
                dtype = dense.dtype if self._keeps(dense.dtype) else self._dtype
                return StoredDense(dense.to(device=self._device, dtype=dtype))

    def _keeps(self, dtype: torch.dtype | None) -> bool:
        # what the compiled products read
        return dtype == torch.bfloat16 and self._dtype == torch.float32

    def _is_narrow(self, matrix: StoredMatrix) -> bool:
        return matrix.format != dtype_name(self._dtype)

    def _is_dense(self, name: str) -> bool:
        """Return whether a matrix will be a dense one of the compute dtype."""
        full = f"{self._prefix}{name}.weight"
        if f"{full}_packed" in self._checkpoint or f"{full}_scale_inv" in self._checkpoint:
            return False
        return full not in self._checkpoint or not self._keeps(self._checkpoint.dtype(full))
