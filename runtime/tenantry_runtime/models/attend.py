"""How layers reach the cache: the `Attend` seam and its paged implementation.

A layer hands over its queries and the new rows; where they are kept is the implementation's
business. Serving uses pages (`PagedAttend`); training attends densely (recipes).

T rows, S sequences, N heads, J index heads, D index values, L latent values, V values per head,
C = L + rope cached values, K chosen positions or gathered rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Protocol

import numpy as np
import torch

from tenantry_kernels.choice import is_compiled
from tenantry_kernels.cpu.ops import DecodeRows
from tenantry_kernels.paged_mla import slots_of
from tenantry_runtime.cache.checked import CheckedBatch
from tenantry_runtime.cache.ops import page_ops, row_ops
from tenantry_runtime.cache.paged import PagedCache
from tenantry_runtime.core import PAGE_TOKENS

from .linear import HeadMaps

MAX_EXPANDED_VALUES = 2**24
"""Of the heads' keys and values that a chunk makes at a time: 32 MB in BF16."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionRows:
    """What one layer computed for the step's rows."""

    q_nope_TNd: torch.Tensor
    q_rope_TNr: torch.Tensor
    """Rotated."""
    latent_TL: torch.Tensor
    """Normed."""
    k_rope_Tr: torch.Tensor
    """Rotated."""
    head_maps: HeadMaps
    scale: float


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexRows:
    """What one layer's indexer computed for the step's rows."""

    q_TJD: torch.Tensor
    weight_TJ: torch.Tensor
    key_TD: torch.Tensor
    top_k: int


class Selection(Protocol):
    """Which positions each row may see; opaque to layers, which only pass it on."""


class Attend(Protocol):
    """The cache as a layer sees it. Calls of one layer come in this order: select, attend."""

    def select(self, layer: int, rows: IndexRows) -> Selection | None:
        """Keep the rows' index keys and choose what each row may see; None: everything."""
        ...

    def attend(self, layer: int, rows: AttentionRows, selection: Selection | None) -> torch.Tensor:
        """Keep the rows' latents and return the attention's values [T, N, V], before o_proj."""
        ...


@dataclass(frozen=True, slots=True)
class ChosenPositions:
    """Positions per row [T, K]; -1 fills rows that see fewer."""

    position_TK: torch.Tensor


class PagedAttend:
    """Attention through a checked batch's pages.

    Sequences with one new row (decode) go through compiled loops over their pages, or batched
    gathers where there are none; those with more (prefill chunks) one by one. `deterministic` takes
    every row by itself, so that its sums run over shapes that depend on its own length alone.
    Sequences with nothing to read get exactly 0.
    """

    def __init__(
        self,
        checked: CheckedBatch,
        cu_len: tuple[int, ...],
        cache: PagedCache,
        *,
        deterministic: bool,
    ) -> None:
        self._write_slot_T = checked.write_slot_T
        self._landing = checked.landing
        self._cache = cache
        self._latents = page_ops(cache.cache_format.latent, cache.device)
        self._keys = page_ops(cache.cache_format.index, cache.device)
        self._rows = row_ops(cache.device)
        spans = [
            Span(sequence, start, stop, checked.read_len_S[sequence])
            for sequence, (start, stop) in enumerate(pairwise(cu_len))
            if stop > start
        ]
        if deterministic:
            spans = [row for span in spans for row in span.rows()]
        self._longest = max((span.read_len for span in spans), default=0)
        decoding, others = _split(spans, deterministic=deterministic)
        self._compiled: DecodeRows | None = None
        self._groups: list[DecodeGroup] = []
        compiles = self._latents.decode is not None and is_compiled(
            "attention", cache.latent_N[0], deterministic=deterministic
        )
        if decoding and compiles:
            self._compiled = _decode_rows(decoding, checked)
        elif decoding:
            self._groups = _decode_groups(decoding, len(spans), checked)
        self._chunks = [Chunk.of(span, checked, is_compiled=compiles) for span in others]
        self._num_parts = len(spans)

    def select(self, layer: int, rows: IndexRows) -> ChosenPositions | None:
        keys, ops = self._cache.index_keys[layer], self._keys
        ops.append(keys, self._write_slot_T, rows.key_TD)
        self._landing.landed(self._write_slot_T)
        if self._longest <= rows.top_k:
            return None
        chosen = torch.full((rows.q_TJD.shape[0], rows.top_k), -1, device=keys.device)
        if self._compiled is not None:
            assert ops.scores is not None
            score = ops.scores(rows.q_TJD, rows.weight_TJ, keys, self._compiled)
            chosen[self._compiled.row_S] = _top_positions(score, rows.top_k)
        for group in self._groups:
            at = group.rows
            key_SKD = ops.read(keys, group.slot_SK)
            score = self._rows.scores_batch(rows.q_TJD[at], rows.weight_TJ[at], key_SKD)
            chosen[at] = _top_positions(score + group.bias_SK, rows.top_k)
        for chunk in self._chunks:
            q_TJD, weight_TJ = rows.q_TJD[chunk.rows], rows.weight_TJ[chunk.rows]
            key_KD = ops.read(keys, chunk.slot_K)
            if chunk.is_compiled:
                assert self._rows.compiled_index is not None
                best = self._rows.compiled_index(q_TJD, weight_TJ, key_KD, rows.top_k)
            else:
                score = self._rows.scores(q_TJD, weight_TJ, key_KD)
                best = _top_positions(score + chunk.bias(None), rows.top_k)
            chosen[chunk.rows] = best
        return ChosenPositions(chosen)

    def attend(self, layer: int, rows: AttentionRows, selection: Selection | None) -> torch.Tensor:
        pool = self._cache.latent_N[layer]
        row_TC = torch.cat((rows.latent_TL, rows.k_rope_Tr), -1)
        self._latents.append(pool, self._write_slot_T, row_TC)
        self._landing.landed(self._write_slot_T)
        chosen = selection.position_TK if isinstance(selection, ChosenPositions) else None
        expanded: list[Chunk] = []
        absorbed: list[Chunk] = []
        for chunk in self._chunks:
            is_expanded = chunk.is_compiled and chunk.expands(rows, chosen)
            (expanded if is_expanded else absorbed).append(chunk)
        if expanded and len(expanded) == self._num_parts:
            value_TNV = rows.q_nope_TNd.new_zeros(
                *rows.q_nope_TNd.shape[:2], rows.head_maps.value_NVL.shape[1]
            )
        else:
            value_TNV = self._attend_latents(pool, rows, chosen, absorbed)
        for chunk in expanded:
            value_TNV[chunk.rows] = self._expand_and_attend(pool, rows, chunk, chosen)
        return value_TNV

    def _attend_latents(
        self,
        pool: torch.Tensor,
        rows: AttentionRows,
        chosen: torch.Tensor | None,
        chunks: Sequence[Chunk],
    ) -> torch.Tensor:
        """Return the values of all rows but other chunks', through sums in the latent space."""
        maps = rows.head_maps
        q_TNC = torch.cat((maps.absorb(rows.q_nope_TNd), rows.q_rope_TNr), -1)
        latent_dim = rows.latent_TL.shape[-1]
        out_TNL = q_TNC.new_zeros(*q_TNC.shape[:2], latent_dim)
        ops = self._latents
        if self._compiled is not None:
            assert ops.decode is not None
            ops.decode(q_TNC, pool, self._compiled, chosen, rows.scale, out_TNL)
        for group in self._groups:
            slot, bias = group.slot_SK, group.bias_SK
            if chosen is not None:
                slot, bias = group.narrowed(chosen[group.rows])
            kv = ops.read(pool, slot)
            sums = self._rows.decode(q_TNC[group.rows], kv, bias, rows.scale, latent_dim)
            out_TNL[group.rows] = sums.to(out_TNL.dtype)
        for chunk in chunks:
            q, kv = q_TNC[chunk.rows], ops.read(pool, chunk.slot_K)
            if chunk.is_compiled:
                out_TNL[chunk.rows] = self._attend_compiled(
                    q, kv.to(q.dtype), chunk, chosen, rows.scale, latent_dim
                )
            else:
                bias_TK = chunk.bias(chosen)
                sums = self._rows.chunk(q, kv, bias_TK, rows.scale, latent_dim)
                out_TNL[chunk.rows] = sums.to(out_TNL.dtype)
        return maps.expand(out_TNL)

    def _attend_compiled(
        self,
        q_TNC: torch.Tensor,
        kv_KC: torch.Tensor,
        chunk: Chunk,
        chosen: torch.Tensor | None,
        scale: float,
        latent_dim: int,
    ) -> torch.Tensor:
        """Return a chunk's sums in the latent space, of the chosen tokens alone where there are."""
        if chosen is None:
            assert self._rows.compiled_chunk is not None
            kv_1KC = kv_KC[None]
            return self._rows.compiled_chunk(q_TNC, kv_1KC, kv_1KC, None, scale, latent_dim)
        assert self._rows.compiled_choice is not None
        return self._rows.compiled_choice(q_TNC, kv_KC, chosen[chunk.rows], scale, latent_dim)

    def _expand_and_attend(
        self,
        pool: torch.Tensor,
        rows: AttentionRows,
        chunk: Chunk,
        chosen: torch.Tensor | None,
    ) -> torch.Tensor:
        """Return a chunk's values [T, N, V] through keys and values of each head."""
        attend = self._rows.compiled_chunk
        assert attend is not None
        latent_dim = rows.latent_TL.shape[-1]
        kv_KC = self._latents.read(pool, chunk.slot_K).to(rows.latent_TL.dtype)
        bias_TK = chunk.chosen_bias(chosen)
        q_TND = torch.cat((rows.q_nope_TNd[chunk.rows], rows.q_rope_TNr[chunk.rows]), -1)
        num_heads, width, _ = rows.head_maps.dims
        step = max(MAX_EXPANDED_VALUES // (width * kv_KC.shape[0]), 1)
        values = []
        for first in range(0, num_heads, step):
            heads = slice(first, first + step)
            key_NKd, value_NKV = rows.head_maps.keys_and_values(kv_KC[:, :latent_dim], heads)
            rope_NKr = kv_KC[:, latent_dim:].expand(len(key_NKd), -1, -1)
            key_NKD = torch.cat((key_NKd, rope_NKr), -1)
            values.append(
                attend(
                    q_TND[:, heads], key_NKD, value_NKV, bias_TK, rows.scale, value_NKV.shape[-1]
                )
            )
        return values[0] if len(values) == 1 else torch.cat(values, 1)


@dataclass(frozen=True, slots=True)
class Span:
    """Consecutive rows of one sequence, the last of which sees `read_len` tokens."""

    sequence: int
    start: int
    stop: int
    read_len: int

    def rows(self) -> list[Span]:
        """Split into one span per row."""
        return [
            Span(self.sequence, row, row + 1, max(self.read_len - (self.stop - 1 - row), 0))
            for row in range(self.start, self.stop)
        ]


@dataclass(frozen=True, kw_only=True)
class Chunk:
    """Rows of one sequence and the slots of all that the last of them sees."""

    rows: slice
    slot_K: torch.Tensor
    is_compiled: bool

    @classmethod
    def of(cls, span: Span, checked: CheckedBatch, *, is_compiled: bool) -> Chunk:
        position_K = torch.arange(span.read_len, device=checked.page_table_SL.device)
        return cls(
            rows=slice(span.start, span.stop),
            slot_K=slots_of(checked.page_table_SL[span.sequence], position_K, PAGE_TOKENS),
            is_compiled=is_compiled,
        )

    def bias(self, chosen_TK: torch.Tensor | None) -> torch.Tensor:
        """Return float32 [T, K]: 0 where a row sees a token, -inf where not."""
        chosen = self.chosen_bias(chosen_TK)
        return self._causal_TK if chosen is None else self._causal_TK + chosen

    def chosen_bias(self, chosen_TK: torch.Tensor | None) -> torch.Tensor | None:
        """Return the choice alone as `bias` does; None where everything is chosen."""
        if chosen_TK is None:
            return None
        return _chosen_bias(chosen_TK[self.rows], len(self.slot_K))

    @cached_property
    def _causal_TK(self) -> torch.Tensor:
        # one for all layers, and none where compiled loops stop at each row by themselves
        num_keys = len(self.slot_K)
        position_K = torch.arange(num_keys, device=self.slot_K.device)
        first = num_keys - (self.rows.stop - self.rows.start)
        return _bias(position_K <= position_K[first:, None])

    def expands(self, rows: AttentionRows, chosen_TK: torch.Tensor | None) -> bool:
        """Return whether keys and values of each head take fewer products than absorbed queries.

        For every pair of row and token those are narrower; but they are made for every token, where
        absorbing is for every row, and they are multiplied with all that a row could see, where
        absorbed queries are with what was chosen.
        """
        num_rows: int = self.rows.stop - self.rows.start
        num_keys = len(self.slot_K)
        _, width, latent_dim = rows.head_maps.dims
        rope_dim = rows.k_rope_Tr.shape[-1]
        num_pairs = num_rows * num_keys - num_rows * (num_rows - 1) // 2
        num_chosen = num_pairs
        if chosen_TK is not None:
            num_chosen = min(num_pairs, num_rows * chosen_TK.shape[1])
        expanding = num_keys * width * latent_dim + num_pairs * (width + rope_dim)
        absorbing = num_rows * width * latent_dim + num_chosen * (2 * latent_dim + rope_dim)
        return expanding < absorbing


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodeGroup:
    """Sequences with one new row each and similar lengths: one gather serves them all.

    Where a sequence is shorter than the longest, its last token's slot stands in: nobody else's
    memory is read, not even to be masked.
    """

    rows: slice | torch.Tensor
    page_table_SP: torch.Tensor
    slot_SK: torch.Tensor
    bias_SK: torch.Tensor

    @classmethod
    def of(
        cls,
        spans: list[Span],
        rows: slice | torch.Tensor,
        checked: CheckedBatch,
    ) -> DecodeGroup:
        device = checked.page_table_SL.device
        longest = max(span.read_len for span in spans)
        sequences = torch.tensor([span.sequence for span in spans], device=device)
        read_len_S1 = torch.tensor([[span.read_len] for span in spans], device=device)
        position_K = torch.arange(longest, device=device)
        page_table_SP = checked.page_table_SL[sequences]
        return cls(
            rows=rows,
            page_table_SP=page_table_SP,
            slot_SK=slots_of(page_table_SP, position_K.minimum(read_len_S1 - 1), PAGE_TOKENS),
            bias_SK=_bias(position_K < read_len_S1),
        )

    def narrowed(self, position_SK: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return slots and bias of chosen positions, of which -1 chooses nothing."""
        # position 0 stands in for nothing: it is the sequence's own
        slot = slots_of(self.page_table_SP, position_SK.clamp(min=0), PAGE_TOKENS)
        return slot, _bias(position_SK >= 0)


def _split(spans: list[Span], *, deterministic: bool) -> tuple[list[Span], list[Span]]:
    """Return the spans that read something: those of one row, to be taken together, and the others."""
    reading = [span for span in spans if span.read_len > 0]
    if deterministic:
        return [], reading
    decoding = [span for span in reading if span.stop - span.start == 1]
    return decoding, [span for span in reading if span.stop - span.start > 1]


def _decode_rows(decoding: list[Span], checked: CheckedBatch) -> DecodeRows:
    page_table_SP = checked.page_table_SL.numpy()
    return DecodeRows(
        row_S=np.array([span.start for span in decoding]),
        page_table_SP=page_table_SP[[span.sequence for span in decoding]],
        read_len_S=np.array([span.read_len for span in decoding]),
    )


def _decode_groups(
    decoding: list[Span], num_spans: int, checked: CheckedBatch
) -> list[DecodeGroup]:
    """Return one-row spans in groups whose padding at most doubles what is read."""
    groups: list[list[Span]] = []
    for span in sorted(decoding, key=lambda span: span.read_len):
        # below a page, padding costs less than another round of calls
        if groups and span.read_len <= max(2 * groups[-1][0].read_len, PAGE_TOKENS):
            groups[-1].append(span)
        else:
            groups.append([span])
    if len(groups) == 1 and len(decoding) == num_spans:
        # a pure decode batch needs no reordering
        return [DecodeGroup.of(decoding, slice(None), checked)]
    device = checked.page_table_SL.device
    return [
        DecodeGroup.of(
            group,
            torch.tensor([span.start for span in group], device=device),
            checked,
        )
        for group in groups
    ]


def _bias(is_read: torch.Tensor) -> torch.Tensor:
    """Return float32 0 where true, -inf where false."""
    return torch.zeros(is_read.shape, device=is_read.device).masked_fill_(~is_read, -torch.inf)


def _top_positions(score_TK: torch.Tensor, top_k: int) -> torch.Tensor:
    """Return the best positions [T, top_k]; -1 where fewer score above -inf."""
    best = score_TK.topk(min(top_k, score_TK.shape[1]), -1)
    position = best.indices.masked_fill(best.values == -torch.inf, -1)
    return torch.nn.functional.pad(position, (0, top_k - position.shape[1]), value=-1)


def _chosen_bias(position_TK: torch.Tensor, num_keys: int) -> torch.Tensor:
    """Return float32 [T, num_keys]: 0 at each row's chosen positions, -inf elsewhere."""
    # one spare column takes the -1s
    bias = torch.full((position_TK.shape[0], num_keys + 1), -torch.inf, device=position_TK.device)
    column = position_TK.masked_fill(position_TK < 0, num_keys)
    return bias.scatter_(1, column, 0.0)[:, :num_keys]
