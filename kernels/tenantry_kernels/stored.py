"""Products with matrices that stay in memory as files hold them: INT4 groups, FP8 blocks, BF16.

| where | how |
|---|---|
| CPU, few rows (`choice.py`) | compiled loops that read the stored bytes alone (`cpu/packed.py`) |
| GPU, BF16 rows, FP8 blocks | Triton's product (`gpu/fp8_product.py`) |
| else, and in deterministic mode on a CPU | a tile of weights at a time is widened to the rows' dtype and multiplied as dense weights are |

A tile holds at most `TILE_VALUES`, whatever the model. Results against those of widened weights:
the same bits where tiles are multiplied and the matrices fit one; equal up to the order of sums for
float32 rows; for BF16 rows the loops do not round weights to BF16 (2^-9 of each) as widening does.

T rows, H values in, O outputs, N weight rows of a tile.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple, Protocol, TypeAlias

import torch
from torch.nn.functional import linear

from . import on_gpu
from .choice import HAS_COMPILER, is_compiled, is_triton
from .cpu import ops as cpu, packed_ops
from .fp8_matrix import FP8_BLOCK, Fp8Matrix, dequantize_fp8
from .int4_matrix import INT4_GROUP, INT4_PER_WORD, Int4Matrix, dequantize_int4

TILE_VALUES = 1 << 21
"""Weights widened at one time: 4 MiB of BF16, 8 MiB of float32. A longer row is a tile by itself."""

DenseProduct: TypeAlias = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
"""Rows [T, H] and weights [O, H] to [T, O]."""


class StoredMatrix(Protocol):
    """A matrix [O, H] as it is stored."""

    row_block: ClassVar[int]
    """Rows that are not cut apart, for they share scales; the last block may be partial."""
    column_block: ClassVar[int]

    @property
    def format(self) -> str: ...

    @property
    def shape(self) -> tuple[int, int]: ...

    def part(self, rows: slice, columns: slice) -> StoredMatrix:
        """Return whole blocks of rows and columns in memory of their own."""
        ...

    def tensors(self) -> tuple[torch.Tensor, ...]: ...

    def of(self, tensors: Sequence[torch.Tensor]) -> StoredMatrix:
        """Return the matrix of the same format that these tensors hold."""
        ...

    def widen(self, first: int, out_NH: torch.Tensor) -> None:
        """Write the rows from `first` on, as many as `out` has, in its dtype."""
        ...

    def multiply(
        self, x_TH: torch.Tensor, out_TO: torch.Tensor, column: int, *, deterministic: bool
    ) -> bool:
        """Write x @ matrix.T into `out` from `column` on; False where nothing but tiles can."""
        ...


@dataclass(frozen=True, slots=True)
class StoredInt4:
    """Groups of 32 columns with a scale each."""

    row_block: ClassVar[int] = 1
    column_block: ClassVar[int] = INT4_GROUP
    matrix: Int4Matrix

    @property
    def format(self) -> str:
        return "int4"

    @property
    def shape(self) -> tuple[int, int]:
        num_rows, num_groups = self.matrix.scale.shape
        return num_rows, num_groups * INT4_GROUP

    def part(self, rows: slice, columns: slice) -> StoredInt4:
        packed = self.matrix.packed[rows, _divided(columns, INT4_PER_WORD)]
        scale = self.matrix.scale[rows, _divided(columns, INT4_GROUP)]
        return StoredInt4(Int4Matrix(packed.clone(), scale.clone()))

    def tensors(self) -> tuple[torch.Tensor, ...]:
        return self.matrix

    def of(self, tensors: Sequence[torch.Tensor]) -> StoredInt4:
        return StoredInt4(Int4Matrix(*tensors))

    def widen(self, first: int, out_NH: torch.Tensor) -> None:
        if _has_loops(out_NH):
            packed_ops.widen_int4(self.matrix, first, out_NH)
        else:
            rows = slice(first, first + out_NH.shape[0])
            out_NH.copy_(
                dequantize_int4(Int4Matrix(self.matrix.packed[rows], self.matrix.scale[rows]))
            )

    def multiply(
        self, x_TH: torch.Tensor, out_TO: torch.Tensor, column: int, *, deterministic: bool
    ) -> bool:
        has_loops = is_compiled("stored", x_TH, deterministic=deterministic)
        if not has_loops or self.shape[0] < packed_ops.LEAST_OUTPUTS:
            return False
        packed_ops.int4_product(x_TH, self.matrix, out_TO, column)
        return True


@dataclass(frozen=True, slots=True)
class StoredFp8:
    """Blocks of 128x128 with a scale each."""

    row_block: ClassVar[int] = FP8_BLOCK
    column_block: ClassVar[int] = FP8_BLOCK
    matrix: Fp8Matrix

    @property
    def format(self) -> str:
        return "fp8"

    @property
    def shape(self) -> tuple[int, int]:
        num_rows, num_columns = self.matrix.weight.shape
        return num_rows, num_columns

    def part(self, rows: slice, columns: slice) -> StoredFp8:
        scale_inv = self.matrix.scale_inv[_divided(rows, FP8_BLOCK), _divided(columns, FP8_BLOCK)]
        return StoredFp8(Fp8Matrix(self.matrix.weight[rows, columns].clone(), scale_inv.clone()))

    def tensors(self) -> tuple[torch.Tensor, ...]:
        return self.matrix

    def of(self, tensors: Sequence[torch.Tensor]) -> StoredFp8:
        return StoredFp8(Fp8Matrix(*tensors))

    def widen(self, first: int, out_NH: torch.Tensor) -> None:
        if _has_loops(out_NH) and self._is_whole_vectors:
            packed_ops.widen_fp8(self.matrix, first, out_NH)
            return
        last, skipped = first + out_NH.shape[0], first % FP8_BLOCK
        blocks = Fp8Matrix(
            self.matrix.weight[first - skipped : last],
            self.matrix.scale_inv[first // FP8_BLOCK : -(-last // FP8_BLOCK)],
        )
        out_NH.copy_(dequantize_fp8(blocks)[skipped:])

    def multiply(
        self, x_TH: torch.Tensor, out_TO: torch.Tensor, column: int, *, deterministic: bool
    ) -> bool:
        num_outputs = self.shape[0]
        if is_triton(x_TH):
            product = on_gpu.fp8_product(x_TH, self.matrix, deterministic=deterministic)
            out_TO[:, column : column + num_outputs] = product
            return True
        has_loops = is_compiled("stored", x_TH, deterministic=deterministic)
        if not has_loops or num_outputs < packed_ops.LEAST_OUTPUTS or not self._is_whole_vectors:
            return False
        packed_ops.fp8_product(x_TH, self.matrix, out_TO, column)
        return True

    @property
    def _is_whole_vectors(self) -> bool:
        return self.shape[1] % packed_ops.STEP == 0


@dataclass(frozen=True, slots=True)
class StoredDense:
    """Numbers, perhaps narrower than those that they are multiplied by."""

    row_block: ClassVar[int] = 1
    column_block: ClassVar[int] = 1
    weight: torch.Tensor

    @property
    def format(self) -> str:
        return str(self.weight.dtype).removeprefix("torch.")

    @property
    def shape(self) -> tuple[int, int]:
        num_rows, num_columns = self.weight.shape
        return num_rows, num_columns

    def part(self, rows: slice, columns: slice) -> StoredDense:
        return StoredDense(self.weight[rows, columns].clone())

    def tensors(self) -> tuple[torch.Tensor, ...]:
        return (self.weight,)

    def of(self, tensors: Sequence[torch.Tensor]) -> StoredDense:
        return StoredDense(*tensors)

    def widen(self, first: int, out_NH: torch.Tensor) -> None:
        out_NH.copy_(self.weight[first : first + out_NH.shape[0]])

    def multiply(
        self, x_TH: torch.Tensor, out_TO: torch.Tensor, column: int, *, deterministic: bool
    ) -> bool:
        if not is_compiled("product", x_TH, deterministic=deterministic):
            return False
        out_TO[:, column : column + self.shape[0]] = cpu.linear(x_TH, self.weight)
        return True


class _Piece(NamedTuple):
    """Rows of a matrix, and where in the result their products go."""

    matrix: StoredMatrix
    first: int
    last: int
    column: int


def stored_product(
    x_TH: torch.Tensor,
    matrices: Sequence[StoredMatrix],
    *,
    dense: DenseProduct = linear,
    deterministic: bool = False,
) -> torch.Tensor:
    """Return x @ w.T [T, O], w being the matrices one below the other.

    dense: the product with a tile of widened weights.
    """
    num_outputs = sum(matrix.shape[0] for matrix in matrices)
    out_TO = x_TH.new_empty((x_TH.shape[0], num_outputs))
    waiting: list[_Piece] = []
    column = 0
    for matrix in matrices:
        height = matrix.shape[0]
        if not matrix.multiply(x_TH, out_TO, column, deterministic=deterministic):
            waiting.append(_Piece(matrix, 0, height, column))
        column += height
    if len(waiting) == len(matrices) and num_outputs * x_TH.shape[1] <= TILE_VALUES:
        return dense(x_TH, _widened(waiting, x_TH))
    for tile in _tiles(waiting):
        first = tile.column
        out_TO[:, first : first + tile.last - tile.first] = dense(x_TH, _widened([tile], x_TH))
    return out_TO


def _has_loops(out_NH: torch.Tensor) -> bool:
    return HAS_COMPILER and out_NH.is_cpu and out_NH.dtype in (torch.float32, torch.bfloat16)


def _widened(pieces: Sequence[_Piece], like: torch.Tensor) -> torch.Tensor:
    weight_NH = like.new_empty((sum(p.last - p.first for p in pieces), like.shape[1]))
    row = 0
    for piece in pieces:
        height = piece.last - piece.first
        piece.matrix.widen(piece.first, weight_NH[row : row + height])
        row += height
    return weight_NH


def _tiles(pieces: Sequence[_Piece]) -> Iterator[_Piece]:
    """Cut pieces into what is widened at one time."""
    for matrix, _, height, column in pieces:
        num_rows = max(1, TILE_VALUES // matrix.shape[1])
        if num_rows > matrix.row_block:
            num_rows -= num_rows % matrix.row_block
        for first in range(0, height, num_rows):
            yield _Piece(matrix, first, min(first + num_rows, height), column + first)


def _divided(span: slice, size: int) -> slice:
    """Return which of the blocks of `size` hold this span, which begins with one."""
    return slice(span.start // size, -(-span.stop // size))
