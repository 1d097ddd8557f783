"""Decode steps of one model on a CPU as one compiled call each, by one thread or several.

T rows, R of them wanted, P page-table columns, H hidden values, E experts, K choices, I values
inside an expert or MLP, N heads, d no-rope and V value dims of a head, r rotated values, Q and L low
ranks of queries and keys, J index heads of D values.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from tenantry_kernels.choice import HAS_COMPILER

from .ops import Integers

if HAS_COMPILER:
    from numba import int64, typeof

    from . import shares, step


@dataclass(frozen=True, slots=True, kw_only=True)
class StepModel:
    """What all layers have in common; dimensions by the names that the loops know."""

    embedding: torch.Tensor
    norm: torch.Tensor
    frequencies: torch.Tensor
    """float32 [r / 2]."""
    vocab_size: int
    hidden_dim: int
    num_heads: int
    q_rank: int
    latent_dim: int
    nope_dim: int
    rope_dim: int
    value_dim: int
    num_experts: int
    num_choices: int
    expert_dim: int
    num_groups: int
    num_kept: int
    is_normalized: bool
    index_heads: int
    """This and the next two are 0 where no layer has an indexer."""
    index_dim: int
    top_k: int
    page_tokens: int
    norm_eps: float
    low_eps: float
    index_eps: float
    scale: float
    routed_scaling: float
    index_scale: float
    """Of the index heads' weights."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepLayer:
    """One layer's weights; all of one dtype but the router's, which are float32."""

    input_norm: torch.Tensor
    down: torch.Tensor
    """[Q + L + r, H]."""
    q_norm: torch.Tensor
    q_up: torch.Tensor
    """[N * (d + r), Q]."""
    kv_norm: torch.Tensor
    heads: torch.Tensor
    """[N, d + V, L]."""
    output: torch.Tensor
    """[H, N * V]."""
    mlp_norm: torch.Tensor
    gate_up: torch.Tensor
    """[2 I, H], of the shared expert or of a dense MLP."""
    mlp_down: torch.Tensor
    """[H, I]."""
    router: torch.Tensor | None = None
    """[E, H]; None: this layer's MLP is dense."""
    router_bias: torch.Tensor | None = None
    experts_gate_up: torch.Tensor | None = None
    """[E, 2 I, H]."""
    experts_down: torch.Tensor | None = None
    """[E, H, I]."""
    index_queries: torch.Tensor | None = None
    """[J * D, Q]; None: this layer has no indexer of its own."""
    index_keys: torch.Tensor | None = None
    """[D, H]."""
    index_norm: torch.Tensor | None = None
    index_bias: torch.Tensor | None = None
    index_weights: torch.Tensor | None = None
    """[J, H]."""


class StepPages(Protocol):
    """Pools by layer, the last page of each a sink: floats [pages + 1, page size, values] or FP8."""

    @property
    def latent_N(self) -> Sequence[torch.Tensor]: ...

    @property
    def index_keys(self) -> Mapping[int, torch.Tensor]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRows:
    """One row of each sequence: int64."""

    token_T: torch.Tensor
    position_T: torch.Tensor
    page_table_TP: torch.Tensor
    read_len_T: Integers
    write_slot_T: torch.Tensor
    wanted_R: torch.Tensor


_WEIGHTS = tuple(field.name for field in fields(StepLayer))
_ROWS = ("tokens", "positions", "page_table", "read_len", "write_slots", "wanted")
_BUFFERS = (
    *("x", "turn", "low", "query", "sums", "value", "shared", "gated"),
    *("pair_row", "pair_factor", "start", "used", "index_query", "head_weight", "chosen"),
)
_COUNTS = ("kind", "is_broken", "num_rows", "num_columns", "num_wanted", "num_slots", "longest")
_PRODUCT = ("input", "weight", "num_in", "num_out")

_LAYER = np.dtype([(name, np.int64) for name in (*_WEIGHTS, "mlp_dim", "pool", "index_pool")])
_MODEL = np.dtype(
    [(field.name, np.float64 if field.type == "float" else np.int64) for field in fields(StepModel)]
)
_JOB = np.dtype([(name, np.int64) for name in (*_COUNTS, *_ROWS, "out", *_BUFFERS, *_PRODUCT)])


class DecodeStep:
    """The loops with one model's weights, and the threads that share them. For one caller at a time."""

    def __init__(
        self,
        model: StepModel,
        layers: Sequence[StepLayer],
        *,
        head: torch.Tensor,
        num_threads: int = 1,
    ) -> None:
        """head: [vocabulary, H]. All tensors are contiguous; the object keeps them."""
        self._model, self._layers, self._head = model, tuple(layers), head
        self._num_threads = num_threads
        self._models = _record(
            _MODEL, {field.name: getattr(model, field.name) for field in fields(model)}
        )
        self._table = np.zeros(len(layers), _LAYER)
        for record, layer in zip(self._table, layers, strict=True):
            for name in _WEIGHTS:
                record[name] = _number(getattr(layer, name))
            record["mlp_dim"] = layer.mlp_down.shape[1]
        self._jobs = np.zeros(1, _JOB)
        self._buffers = np.empty(0, np.uint8)
        self._num_rows_most = 0
        self._pages: StepPages | None = None
        self._team: _Team | None = None

    def use(self, pages: StepPages) -> None:
        """Take the pages that later steps write and read."""
        if pages is self._pages:
            return
        self._pages = pages
        self._table["pool"] = [pool.data_ptr() for pool in pages.latent_N]
        for n, pool in pages.index_keys.items():
            self._table["index_pool"][n] = pool.data_ptr()
        pool_like = _no_values(pages.latent_N[0].dtype)
        # what has no indexer is compiled with those that do
        key_like = _no_values(next((p.dtype for p in pages.index_keys.values()), torch.uint8))
        self._jobs["num_slots"] = pages.latent_N[0].shape[0] * self._model.page_tokens
        likes = (_no_values(self._head.dtype), pool_like, key_like)
        self._team = _Team(
            (self._models, self._table, self._jobs, *likes),
            num_phases=2 + len(self._layers) * len(step.PHASES),
            num_threads=self._num_threads,
        )

    def run(self, rows: StepRows) -> torch.Tensor:
        """Write the rows into the pages; return the wanted rows' states [R, H] after the final norm.

        Sequences that read nothing attend to nothing: their sums are exactly 0.
        """
        num_rows = len(rows.token_T)
        if num_rows > self._num_rows_most:
            self._make_buffers(num_rows)
        out = self._head.new_empty((len(rows.wanted_R), self._model.hidden_dim))
        page_table_TP = rows.page_table_TP.contiguous()
        self._do(
            kind=step.STEP_JOB,
            num_rows=num_rows,
            num_columns=page_table_TP.shape[1],
            num_wanted=len(rows.wanted_R),
            longest=rows.read_len_T.max(),
            tokens=rows.token_T,
            positions=rows.position_T,
            page_table=page_table_TP,
            read_len=rows.read_len_T.ctypes.data,
            write_slots=rows.write_slot_T,
            wanted=rows.wanted_R,
            out=out,
        )
        return out

    def logits(self, hidden_RH: torch.Tensor) -> torch.Tensor:
        """Return hidden @ head.T, float32 [R, vocabulary]."""
        num_out, num_in = self._head.shape
        x_RH = hidden_RH.contiguous()
        out = torch.empty((len(x_RH), num_out))
        self._do(
            kind=step.PRODUCT_JOB,
            num_rows=len(x_RH),
            num_in=num_in,
            num_out=num_out,
            weight=self._head,
            input=x_RH,
            out=out,
        )
        return out

    def _do(self, **job: int | torch.Tensor) -> None:
        """Do a job; the tensors are kept for so long by the caller."""
        record = self._jobs[0]
        for name, value in job.items():
            record[name] = _number(value)
        assert self._team is not None
        if not self._team.lead():
            raise IndexError(
                "a token is outside the vocabulary, or a page table names fewer tokens than are "
                "read or a page outside the pool"
            )

    def _make_buffers(self, num_rows: int) -> None:
        m, value_bytes = self._model, self._head.dtype.itemsize
        bytes_of = {
            "x": 4 * m.hidden_dim,
            "turn": 4 * m.rope_dim,
            "low": 4 * (m.q_rank + m.latent_dim + m.rope_dim + m.index_dim + m.index_heads),
            "query": value_bytes * m.num_heads * (m.latent_dim + m.rope_dim),
            "sums": value_bytes * m.num_heads * m.latent_dim,
            "value": value_bytes * m.num_heads * m.value_dim,
            "shared": value_bytes * int(self._table["mlp_dim"].max()),
            "gated": value_bytes * m.num_choices * m.expert_dim,
            "pair_row": 8 * m.num_choices,
            "pair_factor": 4 * m.num_choices,
            "start": 8 * (m.num_experts + 1),
            "used": 8 * (m.num_experts + 1),
            "index_query": value_bytes * m.index_heads * m.index_dim,
            "head_weight": 4 * m.index_heads,
            "chosen": 8 * m.top_k,
        }
        # each from a cache line of its own on
        sizes = [-(-num_rows * bytes_of[name] // 64) * 64 for name in _BUFFERS]
        self._buffers = np.zeros(sum(sizes) + 64, np.uint8)
        start = -(-self._buffers.ctypes.data // 64) * 64
        for name, size in zip(_BUFFERS, sizes, strict=True):
            self._jobs[name] = start
            start += size
        self._num_rows_most = num_rows


class _Team:
    """The caller and its helpers, threads that sleep between jobs and end with this object."""

    def __init__(
        self, arguments: tuple[NDArray[Any], ...], *, num_phases: int, num_threads: int
    ) -> None:
        num_helpers = num_threads - 1
        self._gates = np.zeros(num_helpers * shares.GATE, np.int64)
        self._board = np.zeros(num_phases * 2 * shares.LINE, np.int64)
        self._bells = np.array([os.eventfd(0) for _ in range(num_helpers)], np.int32)
        models, layers, jobs, *likes = arguments
        calls = _addresses(models, layers, jobs, self._board, likes)
        self._arguments = (self._gates, calls, models, layers, jobs, self._board, *likes)
        helpers = [
            threading.Thread(
                target=step.work, args=(n, self._bells[n : n + 1], *self._arguments), daemon=True
            )
            for n in range(num_helpers)
        ]
        for thread in helpers:
            thread.start()
        weakref.finalize(self, _dismiss, self._gates, self._bells, helpers)

    def lead(self) -> bool:
        """Do the job that the arguments describe; return whether all tokens and pages were there."""
        is_done: bool = step.work(step.LEADER, self._bells, *self._arguments)
        return is_done


def _addresses(
    models: NDArray[np.void],
    layers: NDArray[np.void],
    jobs: NDArray[np.void],
    board: Integers,
    likes: Sequence[NDArray[np.generic]],
) -> Integers:
    """Return where the phases' code for these types is, compiled or loaded now."""
    common = (*(typeof(table).dtype for table in (models, layers, jobs)), typeof(board), int64)
    like, pool_like, key_like = map(typeof, likes)
    addresses = []
    for n, phase in enumerate(step.PHASES):
        pages = (pool_like, key_like) if n in step.ON_PAGES else (like, like)
        kinds = (*common, like, *pages)
        phase.compile(kinds)
        code = phase.overloads[kinds]
        addresses.append(code.library.get_pointer_to_function(code.fndesc.llvm_func_name))
    return np.array(addresses, np.int64)


def _dismiss(
    gates: Integers, bells: NDArray[np.int32], helpers: Sequence[threading.Thread]
) -> None:
    gates[:: shares.GATE] = shares.DISMISSED
    for bell, helper in zip(bells.tolist(), helpers, strict=True):
        os.eventfd_write(bell, 1)
        helper.join()
        os.close(bell)


def _record(dtype: np.dtype[np.void], values: Mapping[str, object]) -> NDArray[np.void]:
    record = np.zeros(1, dtype)
    for name, value in values.items():
        record[name] = _number(value)
    return record


def _number(value: Any) -> Any:
    """Return a tensor's address, 0 for none, and numbers as they are."""
    if isinstance(value, torch.Tensor):
        return value.data_ptr()
    return 0 if value is None else value


_BITS = {torch.float32: np.float32, torch.bfloat16: np.uint16, torch.uint8: np.uint8}


def _no_values(dtype: torch.dtype) -> NDArray[np.generic]:
    return np.empty(0, _BITS[dtype])
