"""What works on pages: one table by op, row format and device.

`models/attend.py` takes its functions from here and nowhere else, and reports of what the check of
pages covers are made from `OPS`. A row format without an entry is not served. Where a decoder has
compiled decode steps (`models/decode_step.py`), batches of one row per sequence go through those.

| op | pages are | what |
|---|---|---|
| append, index append | written | a step's rows, at their slots |
| read, index read | read | rows at slots, as float32: of prefill chunks, and where nothing is compiled |
| decode attention | read | one query per sequence over its own latents |
| index scores | read | one query per sequence over its own index keys |
| decode step | read and written | all of the above of one row per sequence, in one call |
| wire as ... | read | whole pages, latents or index keys, in the format that a hand-off sends |
| ... of rows | not touched | over rows that were read |

T rows, N heads, C cached values, J index heads, D index values, K positions, P pages.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias

import torch

from tenantry_kernels import fp8_rows, paged_mla, sparse_index
from tenantry_kernels.choice import is_compiled
from tenantry_kernels.cpu import fp8_ops, ops as cpu
from tenantry_kernels.cpu.decode import DecodeStep
from tenantry_runtime.errors import ConfigurationError

from .formats import RowFormat, RowName

DeviceName: TypeAlias = Literal["cpu", "cuda"]
OpName: TypeAlias = Literal[
    "append",
    "read",
    "decode attention",
    "index append",
    "index read",
    "index scores",
    "decode step",
    "wire as float32",
    "wire as bf16",
    "wire as fp8",
    "decode attention of rows",
    "chunk attention of rows",
    "compiled chunk attention of rows",
    "index scores of rows",
    "batched index scores of rows",
]


class OpKey(NamedTuple):
    """What an op is found by."""

    op: OpName
    rows: RowName
    """The format of the pages; float32 of rows that were read."""
    device: DeviceName


class Op(NamedTuple):
    """One entry of the table."""

    function: Callable[..., Any]
    touches_pages: bool


class Append(Protocol):
    """Write rows [T, C] at int64 slots [T]; slots past the pool go to the sink."""

    def __call__(
        self, pool: torch.Tensor, slot_T: torch.Tensor, row_TC: torch.Tensor, /
    ) -> None: ...


class Read(Protocol):
    """Return the rows at int64 slots [...] as float32 [..., C]."""

    def __call__(self, pool: torch.Tensor, slot: torch.Tensor, /) -> torch.Tensor: ...


class DecodeAttention(Protocol):
    """Write the latent sums of the sequences' rows into `out`; 0 for one that reads nothing."""

    def __call__(
        self,
        q_TNC: torch.Tensor,
        pool: torch.Tensor,
        rows: cpu.DecodeRows,
        position_TK: torch.Tensor | None,
        scale: float,
        out_TNL: torch.Tensor,
        /,
    ) -> None: ...


class IndexScores(Protocol):
    """Return float32 scores [S, longest] of the sequences' rows, -inf past a sequence's end."""

    def __call__(
        self,
        q_TJD: torch.Tensor,
        weight_TJ: torch.Tensor,
        pool: torch.Tensor,
        rows: cpu.DecodeRows,
        /,
    ) -> torch.Tensor: ...


class Wire(Protocol):
    """Return the pages at int64 [P] as uint8 [P, bytes of one on the wire]."""

    def __call__(self, pool: torch.Tensor, page_P: torch.Tensor, /) -> torch.Tensor: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class PageOps:
    """All that works on pages of one row format on one kind of device."""

    append: Append
    read: Read
    decode: DecodeAttention | None = None
    """Compiled; None: attention over rows that `read` returns."""
    scores: IndexScores | None = None
    """Compiled; None as for `decode`."""
    step: Callable[..., torch.Tensor] | None = None
    """Compiled whole decode steps, which do all of the above but `read`; None: layer by layer."""
    wire: Mapping[RowName, Wire]
    """By the receiving member's format."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowOps:
    """All that works on float32 rows that were read from pages, on one kind of device."""

    decode: Callable[..., torch.Tensor]
    """`paged_mla.decode_attention`."""
    chunk: Callable[..., torch.Tensor]
    """`paged_mla.prefill_attention`."""
    compiled_chunk: Callable[..., torch.Tensor] | None = None
    """`cpu.ops.chunk_attention`."""
    scores: Callable[..., torch.Tensor]
    """`sparse_index.index_scores`."""
    scores_batch: Callable[..., torch.Tensor]
    """`sparse_index.index_scores_batch`."""


def _append_fp8(pool: torch.Tensor, slot_T: torch.Tensor, row_TC: torch.Tensor) -> None:
    append = fp8_ops.append_rows if is_compiled("rows", pool) else fp8_rows.append_rows
    append(pool, slot_T, row_TC)


def _read_fp8(pool: torch.Tensor, slot: torch.Tensor) -> torch.Tensor:
    read = fp8_ops.gather_rows if is_compiled("rows", pool) else fp8_rows.gather_rows
    return read(pool, slot)


def _wire_as_kept(pool: torch.Tensor, page_P: torch.Tensor) -> torch.Tensor:
    return pool.index_select(0, page_P).flatten(1).view(torch.uint8)


def _wire_quantised(pool: torch.Tensor, page_P: torch.Tensor) -> torch.Tensor:
    return fp8_rows.pack_pages(pool.index_select(0, page_P))


_PAGE_OPS: Mapping[tuple[RowName, DeviceName], PageOps] = {
    ("float32", "cpu"): PageOps(
        append=paged_mla.append_rows,
        read=paged_mla.gather_rows,
        decode=cpu.decode_attention,
        scores=cpu.index_scores,
        step=DecodeStep.run,
        wire={"float32": _wire_as_kept},
    ),
    ("bf16", "cpu"): PageOps(
        append=paged_mla.append_rows,
        read=paged_mla.gather_rows,
        decode=cpu.decode_attention,
        scores=cpu.index_scores,
        step=DecodeStep.run,
        wire={"bf16": _wire_as_kept, "fp8": _wire_quantised},
    ),
    ("fp8", "cpu"): PageOps(
        append=_append_fp8,
        read=_read_fp8,
        decode=fp8_ops.decode_attention,
        scores=fp8_ops.index_scores,
        step=DecodeStep.run,
        wire={"fp8": _wire_as_kept},
    ),
    ("float32", "cuda"): PageOps(
        append=paged_mla.append_rows, read=paged_mla.gather_rows, wire={"float32": _wire_as_kept}
    ),
    ("bf16", "cuda"): PageOps(
        append=paged_mla.append_rows,
        read=paged_mla.gather_rows,
        wire={"bf16": _wire_as_kept, "fp8": _wire_quantised},
    ),
    ("fp8", "cuda"): PageOps(
        append=fp8_rows.append_rows, read=fp8_rows.gather_rows, wire={"fp8": _wire_as_kept}
    ),
}

_ROW_OPS: Mapping[DeviceName, RowOps] = {
    "cpu": RowOps(
        decode=paged_mla.decode_attention,
        chunk=paged_mla.prefill_attention,
        compiled_chunk=cpu.chunk_attention,
        scores=sparse_index.index_scores,
        scores_batch=sparse_index.index_scores_batch,
    ),
    "cuda": RowOps(
        decode=paged_mla.decode_attention,
        chunk=paged_mla.prefill_attention,
        scores=sparse_index.index_scores,
        scores_batch=sparse_index.index_scores_batch,
    ),
}


def page_ops(rows: RowFormat, device: torch.device) -> PageOps:
    """Return what works on such pages; raise ConfigurationError where nothing does."""
    ops = _PAGE_OPS.get((rows.name, _kind(device)))
    if ops is None:
        raise ConfigurationError(f"pages of {rows.name} are not served on {device.type!r}")
    return ops


def row_ops(device: torch.device) -> RowOps:
    """Return what works on rows that were read; raise ConfigurationError where nothing does."""
    return _ROW_OPS[_kind(device)]


def served_rows(device: torch.device) -> frozenset[RowName]:
    """Return the row formats that have ops on a device."""
    return frozenset(name for name, kind in _PAGE_OPS if kind == _kind(device))


def _kind(device: torch.device) -> DeviceName:
    match device.type:
        case "cpu" | "cuda" as kind:
            return kind
        case other:
            raise ConfigurationError(f"device must be 'cpu' or 'cuda', not {other!r}")


def _of_pages(rows: RowName, device: DeviceName, ops: PageOps) -> Iterator[tuple[OpKey, Op]]:
    wires = {_WIRES[target]: function for target, function in ops.wire.items()}
    named: dict[OpName, Callable[..., Any] | None] = {
        "append": ops.append,
        "read": ops.read,
        "decode attention": ops.decode,
        "index append": ops.append,
        "index read": ops.read,
        "index scores": ops.scores,
        "decode step": ops.step,
        **wires,
    }
    for name, function in named.items():
        if function is not None:
            yield OpKey(name, rows, device), Op(function, touches_pages=True)


def _of_rows(device: DeviceName, ops: RowOps) -> Iterator[tuple[OpKey, Op]]:
    named: dict[OpName, Callable[..., Any] | None] = {
        "decode attention of rows": ops.decode,
        "chunk attention of rows": ops.chunk,
        "compiled chunk attention of rows": ops.compiled_chunk,
        "index scores of rows": ops.scores,
        "batched index scores of rows": ops.scores_batch,
    }
    for name, function in named.items():
        if function is not None:
            yield OpKey(name, "float32", device), Op(function, touches_pages=False)


_WIRES: Mapping[RowName, OpName] = {
    "float32": "wire as float32",
    "bf16": "wire as bf16",
    "fp8": "wire as fp8",
}

OPS: Mapping[OpKey, Op] = {
    key: op
    for entries in (
        *(_of_pages(rows, device, ops) for (rows, device), ops in _PAGE_OPS.items()),
        *(_of_rows(device, ops) for device, ops in _ROW_OPS.items()),
    )
    for key, op in entries
}
"""Everything that page and row ops are, one by one."""
