"""A decoder's products with weights that stay as their files hold them (`tenantry_kernels/stored.py`).

A shard whose cut goes through a block keeps the whole block: rows that are not its own are computed
and dropped, columns that are not meet zeros. Released models' shards of up to eight cut none.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import torch
from torch.nn.functional import linear, pad

from tenantry_kernels import on_gpu
from tenantry_kernels.choice import is_compiled, is_triton
from tenantry_kernels.cpu import ops as cpu
from tenantry_kernels.experts import route_to_experts, swiglu
from tenantry_kernels.fp8_matrix import Fp8Matrix
from tenantry_kernels.int4_matrix import Int4Matrix
from tenantry_kernels.stored import StoredFp8, StoredInt4, StoredMatrix, stored_product

from .linear import Experts, in_row_tiles


class Cut(NamedTuple):
    """A shard's part of a matrix, in whole blocks."""

    matrix: StoredMatrix
    rows: slice
    """Of the part's outputs, those that are the shard's."""
    padding: tuple[int, int]
    """Columns before and behind those that are the shard's."""

    @classmethod
    def whole(cls, matrix: StoredMatrix) -> Cut:
        return cls(matrix, slice(0, matrix.shape[0]), (0, 0))

    @classmethod
    def of_rows(cls, matrix: StoredMatrix, mine: slice) -> Cut:
        """Keep these rows of all columns."""
        height, width = matrix.shape
        held = _outward(mine, matrix.row_block, height)
        rows = slice(mine.start - held.start, mine.stop - held.start)
        return cls(matrix.part(held, slice(0, width)), rows, (0, 0))

    @classmethod
    def of_columns(cls, matrix: StoredMatrix, mine: slice) -> Cut:
        """Keep these columns of all rows."""
        height, width = matrix.shape
        held = _outward(mine, matrix.column_block, width)
        padding = (mine.start - held.start, held.stop - mine.stop)
        return cls(matrix.part(slice(0, height), held), slice(0, height), padding)


class StoredLinear:
    """Matrices [out, in] one below the other."""

    def __init__(self, cuts: Sequence[Cut], *, deterministic: bool) -> None:
        self.matrices = tuple(cut.matrix for cut in cuts)
        self._padding = cuts[0].padding
        self._rows = _joint_rows(cuts)
        self._deterministic = deterministic

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        if any(self._padding):
            x = pad(x, self._padding)
        out = stored_product(
            x,
            self.matrices,
            dense=_in_row_tiles if self._deterministic else linear,
            deterministic=self._deterministic,
        )
        if self._rows is None:
            return out
        return torch.cat([out[:, rows] for rows in self._rows], 1)


class StoredExperts:
    """Routed experts, each two products: gate and up, and down."""

    def __init__(
        self,
        products: Sequence[tuple[StoredLinear, StoredLinear]],
        *,
        grouped: Experts | None = None,
        deterministic: bool = False,
    ) -> None:
        """grouped: the same experts in one call, for a GPU (`grouped_experts`)."""
        self.products = tuple(products)
        self._grouped = grouped
        self._deterministic = deterministic

    @property
    def is_grouped(self) -> bool:
        """Whether a GPU computes them all in one call, and nothing is asked of it."""
        return self._grouped is not None

    def __call__(
        self, x_TH: torch.Tensor, expert_TK: torch.Tensor, weight_TK: torch.Tensor
    ) -> torch.Tensor:
        if self._grouped is not None and is_triton(x_TH):
            return self._grouped(x_TH, expert_TK, weight_TK)
        return route_to_experts(x_TH, expert_TK, weight_TK, len(self.products), self._expert)

    def _expert(self, expert: int, rows: torch.Tensor) -> torch.Tensor:
        gate_up, down = self.products[expert]
        raw = gate_up(rows)
        # as dense experts do it
        if not self._deterministic and is_compiled("gate", raw):
            return down(cpu.swiglu(raw))
        return down(swiglu(raw))


class ExpertStack:
    """One kind of matrix of all experts, or two kinds that share their input: filled one by one."""

    def __init__(self, num_experts: int, first: Sequence[Cut], device: str) -> None:
        """Make room for matrices like those of the first expert."""
        self._like = tuple(first)
        self._tensors = tuple(
            torch.empty((num_experts, len(first), *tensor.shape), dtype=tensor.dtype, device=device)
            for tensor in first[0].matrix.tensors()
        )
        self._num_put = 0
        self._has_all = True

    def put(self, cuts: Sequence[Cut]) -> list[Cut]:
        """Copy the next expert's matrices into their place and return them there.

        Where they are unlike the first expert's, return them as they are.
        """
        expert, self._num_put = self._num_put, self._num_put + 1
        if not all(self._is_alike(cut) for cut in cuts):
            self._has_all = False
            return list(cuts)
        placed = []
        for n, cut in enumerate(cuts):
            places = [stack[expert, n] for stack in self._tensors]
            for place, tensor in zip(places, cut.matrix.tensors(), strict=True):
                place.copy_(tensor)
            placed.append(cut._replace(matrix=cut.matrix.of(places)))
        return placed

    def int4(self) -> Int4Matrix | None:
        """Return all as one stack [E, P * out, in], P being the kinds; None if not all are whole INT4."""
        if not self._is_all(StoredInt4):
            return None
        return Int4Matrix(*(stack.flatten(1, 2) for stack in self._tensors))

    def fp8(self) -> Fp8Matrix | None:
        """Return all as one stack [E, P, out, in], with scales likewise; None if not all are whole FP8."""
        return Fp8Matrix(*self._tensors) if self._is_all(StoredFp8) else None

    def _is_all(self, kind: type[StoredMatrix]) -> bool:
        """Whether all are of this kind, and no shard's cut goes through their blocks."""
        is_whole = _joint_rows(self._like) is None and not any(self._like[0].padding)
        return self._has_all and is_whole and isinstance(self._like[0].matrix, kind)

    def _is_alike(self, cut: Cut) -> bool:
        tensors = cut.matrix.tensors()
        return type(cut.matrix) is type(self._like[0].matrix) and all(
            (tensor.dtype, tensor.shape) == (stack.dtype, stack.shape[2:])
            for tensor, stack in zip(tensors, self._tensors, strict=True)
        )


def grouped_experts(
    gate_up: ExpertStack, down: ExpertStack, *, deterministic: bool
) -> Experts | None:
    """Return what a GPU computes in one call; None where that takes one format, and there are more."""
    int4 = gate_up.int4(), down.int4()
    if int4[0] is not None and int4[1] is not None:
        return partial(
            on_gpu.int4_experts, gate_up=int4[0], down=int4[1], deterministic=deterministic
        )
    fp8 = gate_up.fp8(), down.fp8()
    if fp8[0] is not None and fp8[1] is not None:
        return partial(on_gpu.fp8_experts, gate_up=fp8[0], down=fp8[1], deterministic=deterministic)
    return None


def _in_row_tiles(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return in_row_tiles(lambda tile: linear(tile, weight), x)


def _joint_rows(cuts: Sequence[Cut]) -> list[slice] | None:
    """Return which of all outputs, one cut's after the other's, are wanted; None for all."""
    rows, start = [], 0
    for cut in cuts:
        rows.append(slice(start + cut.rows.start, start + cut.rows.stop))
        start += cut.matrix.shape[0]
    num_wanted = sum(span.stop - span.start for span in rows)
    return None if num_wanted == start else rows


def _outward(span: slice, block: int, total: int) -> slice:
    """Return the whole blocks around a span."""
    return slice(span.start - span.start % block, min(total, -(-span.stop // block) * block))
