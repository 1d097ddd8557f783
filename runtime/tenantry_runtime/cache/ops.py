"""What works on pages: one table by op, row format and device.

`models/attend.py` and `models/device_attend.py` take their functions from here and nowhere else, and
reports of what the check of pages covers are made from `ops_on`. A row format without an entry is
not served. Where a decoder has compiled decode steps (`models/decode_step.py`), batches of one row
per sequence go through those. What a GPU has is in `gpu_ops.py`, which imports Triton: asking for a
GPU's ops is what loads it.

| op | pages are | what |
|---|---|---|
| append, index append | written | a step's rows, at their slots |
| read, index read | read | rows at slots, as float32: of prefill chunks, and where nothing is compiled |
| decode attention | read | one query per sequence over its own latents |
| index scores | read | one query per sequence over its own index keys |
| decode step | read and written | all of the above of one row per sequence, in one call |
| page attention | read | one or more queries per sequence over its own latents, lengths from the device |
| sparse page attention | read | the same over the positions that were chosen for each query |
| index choice | read | scores over a sequence's own index keys, and the best positions |
| wire as ... | read | whole pages, latents or index keys, in the format that a hand-off sends |
| wire digest | read | the digest of whole pages' bytes as they are kept |
| ... of rows | not touched | over rows that were read |

T rows, N heads, C cached values, J index heads, D index values, K positions, P pages.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias, assert_never

import torch

from tenantry_kernels import choice, fp8_rows, page_check, page_digest, paged_mla, sparse_index
from tenantry_kernels.choice import DeviceName, is_compiled
from tenantry_kernels.cpu import fp8_ops, ops as cpu
from tenantry_kernels.cpu.decode import DecodeStep
from tenantry_runtime.errors import ConfigurationError

from .checked import AppendCount
from .formats import RowFormat, RowName

OpName: TypeAlias = Literal[
    "append",
    "read",
    "decode attention",
    "index append",
    "index read",
    "index scores",
    "decode step",
    "page attention",
    "sparse page attention",
    "index choice",
    "wire as float32",
    "wire as bf16",
    "wire as fp8",
    "wire digest",
    "decode attention of rows",
    "chunk attention of rows",
    "compiled chunk attention of rows",
    "compiled sparse chunk attention of rows",
    "index scores of rows",
    "compiled index choice of rows",
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


class Digest(Protocol):
    """Return int64 digests [P] of the pages at int64 [P] (`tenantry_kernels.page_digest`)."""

    def __call__(self, pool: torch.Tensor, page_P: torch.Tensor, /) -> torch.Tensor: ...


class CountedAppend(Protocol):
    """Append, and count what has landed; rows whose slot no pool has are not written."""

    def __call__(
        self,
        pool: torch.Tensor,
        slot_T: torch.Tensor,
        row_TC: torch.Tensor,
        count: AppendCount | None = None,
        /,
    ) -> None: ...


class PageAttention(Protocol):
    """Return the latent sums [S, Q, N, L] of each sequence's last Q tokens; 0 for what sees nothing.

    `num_splits`: into how many parts contexts are cut; None: as many as fill the device.
    """

    def __call__(
        self,
        q_SQNC: torch.Tensor,
        pool: torch.Tensor,
        page_table_SP: torch.Tensor,
        read_len_S: torch.Tensor,
        /,
        *,
        scale: float,
        latent_dim: int,
        num_splits: int | None,
    ) -> torch.Tensor: ...


class SparsePageAttention(Protocol):
    """`PageAttention` over the positions chosen for each query [S, Q, K], of which -1 is nothing."""

    def __call__(
        self,
        q_SQNC: torch.Tensor,
        pool: torch.Tensor,
        page_table_SP: torch.Tensor,
        read_len_S: torch.Tensor,
        chosen_SQK: torch.Tensor,
        /,
        *,
        scale: float,
        latent_dim: int,
        num_splits: int | None,
    ) -> torch.Tensor: ...


class IndexChoice(Protocol):
    """Return the int32 positions [S, Q, K] that score best for each query, ascending, then -1."""

    def __call__(
        self,
        q_SQJD: torch.Tensor,
        weight_SQJ: torch.Tensor,
        pool: torch.Tensor,
        page_table_SP: torch.Tensor,
        read_len_S: torch.Tensor,
        num_choices: int,
        /,
    ) -> torch.Tensor: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceOps:
    """What works on pages with lengths that only the device knows, so that no step waits for it."""

    append: CountedAppend
    attend: PageAttention
    attend_chosen: SparsePageAttention
    choose: IndexChoice


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckOps:
    """The check of pages, and what keeps sequences that failed it off them."""

    check: Callable[..., None]
    """`page_check.check_pages`."""
    mask: Callable[..., tuple[torch.Tensor, torch.Tensor, torch.Tensor]]
    """`page_check.mask_batch`."""


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
    digest: Digest
    on_device: DeviceOps | None = None
    """None: lengths must be known to the host."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowOps:
    """All that works on float32 rows that were read from pages, on one kind of device."""

    decode: Callable[..., torch.Tensor]
    """`paged_mla.decode_attention`."""
    chunk: Callable[..., torch.Tensor]
    """`paged_mla.prefill_attention`."""
    compiled_chunk: Callable[..., torch.Tensor] | None = None
    """`paged_mla.fused_attention`, in the form that is fastest for its rows."""
    compiled_choice: Callable[..., torch.Tensor] | None = None
    """`cpu.ops.chosen_attention`."""
    compiled_index: Callable[..., torch.Tensor] | None = None
    """`cpu.ops.chunk_choices`."""
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


def _attend_chunk(q_TND: torch.Tensor, *rest: Any) -> torch.Tensor:
    if is_compiled("chunk", q_TND):
        return cpu.chunk_attention(q_TND, *rest)
    is_wide = q_TND.dtype == torch.float32
    attend = paged_mla.tiled_attention if is_wide else paged_mla.fused_attention
    return attend(q_TND, *rest)


def wire_as_kept(pool: torch.Tensor, page_P: torch.Tensor) -> torch.Tensor:
    """`Wire` of rows that need no conversion."""
    return pool.index_select(0, page_P).flatten(1).view(torch.uint8)


def wire_quantised(pool: torch.Tensor, page_P: torch.Tensor) -> torch.Tensor:
    """`Wire` of wider rows in FP8."""
    return fp8_rows.pack_pages(pool.index_select(0, page_P))


def _digest(pool: torch.Tensor, page_P: torch.Tensor) -> torch.Tensor:
    return page_digest.page_digests(pool.index_select(0, page_P))


_CPU_OPS: Mapping[RowName, PageOps] = {
    "float32": PageOps(
        append=paged_mla.append_rows,
        read=paged_mla.gather_rows,
        decode=cpu.decode_attention,
        scores=cpu.index_scores,
        step=DecodeStep.run,
        wire={"float32": wire_as_kept, "fp8": wire_quantised},
        digest=_digest,
    ),
    "bf16": PageOps(
        append=paged_mla.append_rows,
        read=paged_mla.gather_rows,
        decode=cpu.decode_attention,
        scores=cpu.index_scores,
        step=DecodeStep.run,
        wire={"bf16": wire_as_kept, "fp8": wire_quantised},
        digest=_digest,
    ),
    "fp8": PageOps(
        append=_append_fp8,
        read=_read_fp8,
        decode=fp8_ops.decode_attention,
        scores=fp8_ops.index_scores,
        step=DecodeStep.run,
        wire={"fp8": wire_as_kept},
        digest=_digest,
    ),
}

_TORCH_ROW_OPS = RowOps(
    decode=paged_mla.decode_attention,
    chunk=paged_mla.prefill_attention,
    scores=sparse_index.index_scores,
    scores_batch=sparse_index.index_scores_batch,
)

_ROW_OPS: Mapping[DeviceName, RowOps] = {
    "cpu": replace(
        _TORCH_ROW_OPS,
        compiled_chunk=_attend_chunk,
        compiled_choice=cpu.chosen_attention,
        compiled_index=cpu.chunk_choices,
    ),
    "cuda": _TORCH_ROW_OPS,
}


_CHECK_OPS = CheckOps(check=page_check.check_pages, mask=page_check.mask_batch)


def page_ops(rows: RowFormat, device: torch.device) -> PageOps:
    """Return what works on such pages; raise ConfigurationError where nothing does."""
    ops = _page_ops_on(device_kind(device)).get(rows.name)
    if ops is None:
        raise ConfigurationError(f"pages of {rows.name} are not served on {device.type!r}")
    return ops


def row_ops(device: torch.device) -> RowOps:
    """Return what works on rows that were read; raise ConfigurationError where nothing does."""
    return _ROW_OPS[device_kind(device)]


def check_ops(device: torch.device) -> CheckOps:
    """Return the check of pages as torch's operators; on a GPU as Triton's kernels."""
    match device_kind(device):
        case "cpu":
            return _CHECK_OPS
        case "cuda":
            from .gpu_ops import CHECK_OPS

            return CHECK_OPS
        case other:
            assert_never(other)


def served_rows(device: torch.device) -> frozenset[RowName]:
    """Return the row formats that have ops on a device."""
    return frozenset(_page_ops_on(device_kind(device)))


def ops_on(device: DeviceName) -> Mapping[OpKey, Op]:
    """Return everything that page and row ops of a kind of device are, one by one."""
    return {
        key: op
        for entries in (
            *(_of_pages(rows, device, ops) for rows, ops in _page_ops_on(device).items()),
            _of_rows(device, _ROW_OPS[device]),
        )
        for key, op in entries
    }


def _page_ops_on(device: DeviceName) -> Mapping[RowName, PageOps]:
    match device:
        case "cpu":
            return _CPU_OPS
        case "cuda":
            # it imports Triton, which a node without a GPU does without
            from .gpu_ops import PAGE_OPS

            return PAGE_OPS
        case other:
            assert_never(other)


def device_kind(device: torch.device) -> DeviceName:
    """Return whose ops serve tensors on a device; raise ConfigurationError where nobody's do."""
    match choice.kind_of(device):
        case "cpu" | "cuda" as kind:
            return kind
        case other:
            raise ConfigurationError(f"device must be 'cpu' or 'cuda', not {other!r}")


def _of_pages(rows: RowName, device: DeviceName, ops: PageOps) -> Iterator[tuple[OpKey, Op]]:
    on_device = ops.on_device
    append = ops.append if on_device is None else on_device.append
    wires = {_WIRES[target]: function for target, function in ops.wire.items()}
    named: dict[OpName, Callable[..., Any] | None] = {
        "append": append,
        "read": ops.read,
        "decode attention": ops.decode,
        "index append": append,
        "index read": ops.read,
        "index scores": ops.scores,
        "decode step": ops.step,
        "wire digest": ops.digest,
        **wires,
    }
    if on_device is not None:
        named["page attention"] = on_device.attend
        named["sparse page attention"] = on_device.attend_chosen
        named["index choice"] = on_device.choose
    for name, function in named.items():
        if function is not None:
            yield OpKey(name, rows, device), Op(function, touches_pages=True)


def _of_rows(device: DeviceName, ops: RowOps) -> Iterator[tuple[OpKey, Op]]:
    named: dict[OpName, Callable[..., Any] | None] = {
        "decode attention of rows": ops.decode,
        "chunk attention of rows": ops.chunk,
        "compiled chunk attention of rows": ops.compiled_chunk,
        "compiled sparse chunk attention of rows": ops.compiled_choice,
        "index scores of rows": ops.scores,
        "compiled index choice of rows": ops.compiled_index,
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
