"""How layers reach the cache: the `Attend` seam and its paged implementation.

A layer hands over its queries and the new rows; where they are kept is the implementation's
business. Serving uses pages (`PagedAttend`); training attends densely (recipes).

T rows, S sequences, N heads, J index heads, D index values, L latent values, V values per head,
C = L + rope cached values, K chosen positions or gathered rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Protocol

import torch

from tenantry_kernels.paged_mla import (
    append_rows,
    decode_attention,
    gather_rows,
    prefill_attention,
)
from tenantry_kernels.sparse_index import index_scores, index_scores_batch
from tenantry_runtime.cache.checked import CheckedBatch
from tenantry_runtime.cache.paged import PagedCache

from .linear import HeadMaps


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

    Sequences with one new row (decode) go through one batched gather; those with more (prefill
    chunks) one by one. `deterministic` takes every row by itself, so that its sums run over shapes
    that depend on its own length alone.
    """

    def __init__(
        self,
        checked: CheckedBatch,
        cu_len: tuple[int, ...],
        cache: PagedCache,
        *,
        deterministic: bool,
    ) -> None:
        self._checked = checked
        self._cache = cache
        self._page_tokens = cache.latent_N[0].shape[1]
        self._device = cache.latent_N[0].device
        self._spans = [
            Span(sequence, start, stop, checked.read_len_S[sequence], self._page_tokens)
            for sequence, (start, stop) in enumerate(pairwise(cu_len))
            if stop > start
        ]
        if deterministic:
            self._spans = [row for span in self._spans for row in span.rows()]
        self._groups = [] if deterministic else _decode_groups(self._spans, checked)
        grouped = {span.start for group in self._groups for span in group.spans}
        self._singles = [span for span in self._spans if span.start not in grouped]

    def select(self, layer: int, rows: IndexRows) -> ChosenPositions | None:
        keys = self._cache.index_keys[layer]
        append_rows(keys, self._checked.write_slot_T, rows.key_TD)
        if max((span.read_len for span in self._spans), default=0) <= rows.top_k:
            return None
        num_rows = rows.q_TJD.shape[0]
        chosen = torch.full((num_rows, rows.top_k), -1, device=self._device)
        for group in self._groups:
            at = group.row_S
            scores = index_scores_batch(
                rows.q_TJD[at], rows.weight_TJ[at], gather_rows(keys, group.page_table_SP)
            )
            chosen[at] = _top_positions(scores, group.is_read_SK, rows.top_k)
        for span in self._singles:
            q_TJD, weight_TJ = rows.q_TJD[span.at], rows.weight_TJ[span.at]
            scores = index_scores(q_TJD, weight_TJ, self._gather(keys, span))
            chosen[span.at] = _top_positions(scores, span.is_read_TK(self._device), rows.top_k)
        return ChosenPositions(chosen)

    def attend(self, layer: int, rows: AttentionRows, selection: Selection | None) -> torch.Tensor:
        pool = self._cache.latent_N[layer]
        new_rows = torch.cat((rows.latent_TL, rows.k_rope_Tr), -1)
        append_rows(pool, self._checked.write_slot_T, new_rows)
        maps = rows.head_maps
        q_TNC = torch.cat((maps.absorb(rows.q_nope_TNd), rows.q_rope_TNr), -1)
        latent_dim = rows.latent_TL.shape[-1]
        out_TNL = torch.empty(*q_TNC.shape[:2], latent_dim, device=self._device)
        chosen = selection.position_TK if isinstance(selection, ChosenPositions) else None
        for group in self._groups:
            if chosen is None:
                kv, is_read = gather_rows(pool, group.page_table_SP), group.is_read_SK
            else:
                kv, is_read = self._gather_chosen(pool, group, chosen[group.row_S])
            out_TNL[group.row_S] = decode_attention(
                q_TNC[group.row_S], kv, is_read, rows.scale, latent_dim
            )
        for span in self._singles:
            is_read = span.is_read_TK(self._device)
            if chosen is not None:
                is_read = is_read & _chosen_mask(chosen[span.at], is_read.shape[1])
            kv = self._gather(pool, span)
            out_TNL[span.at] = prefill_attention(
                q_TNC[span.at], kv, is_read, rows.scale, latent_dim
            )
        return maps.expand(out_TNL.to(rows.latent_TL.dtype))

    def _gather(self, pool: torch.Tensor, span: Span) -> torch.Tensor:
        return gather_rows(pool, self._checked.page_table_SL[span.sequence, : span.num_pages])

    def _gather_chosen(
        self, pool: torch.Tensor, group: DecodeGroup, position_SK: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        is_read = position_SK >= 0
        position = position_SK.clamp(min=0)
        page = group.page_table_SP.gather(1, position // self._page_tokens)
        slot = page * self._page_tokens + position % self._page_tokens
        return pool.view(-1, pool.shape[-1])[slot].float(), is_read


@dataclass(frozen=True, slots=True)
class Span:
    """Consecutive rows of one sequence, the last of which sees `read_len` tokens."""

    sequence: int
    start: int
    stop: int
    read_len: int
    page_tokens: int

    @property
    def at(self) -> slice:
        return slice(self.start, self.stop)

    @property
    def num_pages(self) -> int:
        return -(-self.read_len // self.page_tokens)

    def rows(self) -> list[Span]:
        """Split into one span per row."""
        missing = [self.stop - 1 - row for row in range(self.start, self.stop)]
        return [
            Span(
                self.sequence,
                self.stop - 1 - m,
                self.stop - m,
                max(self.read_len - m, 0),
                self.page_tokens,
            )
            for m in missing
        ]

    def is_read_TK(self, device: torch.device) -> torch.Tensor:
        """Return which gathered rows each row may see: those at or before its own position."""
        num_rows = self.stop - self.start
        key = torch.arange(self.num_pages * self.page_tokens, device=device)
        last = torch.arange(self.read_len - num_rows, self.read_len, device=device)
        return key <= last[:, None]


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodeGroup:
    """Sequences with one new row each and similar lengths: one gather serves them all."""

    spans: tuple[Span, ...]
    row_S: torch.Tensor
    page_table_SP: torch.Tensor
    is_read_SK: torch.Tensor


def _decode_groups(spans: list[Span], checked: CheckedBatch) -> list[DecodeGroup]:
    """Group one-row spans so that padding at most doubles what a gather reads."""
    decoding = sorted(
        (span for span in spans if span.stop - span.start == 1), key=lambda span: span.num_pages
    )
    groups: list[list[Span]] = []
    for span in decoding:
        if groups and span.num_pages <= 2 * max(groups[-1][0].num_pages, 1):
            groups[-1].append(span)
        else:
            groups.append([span])
    return [_decode_group(group, checked) for group in groups]


def _decode_group(spans: list[Span], checked: CheckedBatch) -> DecodeGroup:
    num_pages = max(spans[-1].num_pages, 1)
    device = checked.page_table_SL.device
    sequences = torch.tensor([span.sequence for span in spans], device=device)
    read_len = torch.tensor([span.read_len for span in spans], device=device)
    key = torch.arange(num_pages * spans[0].page_tokens, device=device)
    return DecodeGroup(
        spans=tuple(spans),
        row_S=torch.tensor([span.start for span in spans], device=device),
        page_table_SP=checked.page_table_SL[sequences, :num_pages],
        is_read_SK=key < read_len[:, None],
    )


def _top_positions(score_TK: torch.Tensor, is_read_TK: torch.Tensor, top_k: int) -> torch.Tensor:
    """Return the best readable positions [T, top_k], -1 where a row has fewer."""
    masked = score_TK.masked_fill(~is_read_TK, -torch.inf)
    best = masked.topk(min(top_k, masked.shape[1]), -1)
    position = best.indices.masked_fill(best.values == -torch.inf, -1)
    return torch.nn.functional.pad(position, (0, top_k - position.shape[1]), value=-1)


def _chosen_mask(position_TK: torch.Tensor, num_keys: int) -> torch.Tensor:
    """Return bool [T, num_keys], true at each row's chosen positions."""
    # one spare column takes the -1s
    mask = torch.zeros(
        position_TK.shape[0], num_keys + 1, dtype=torch.bool, device=position_TK.device
    )
    column = position_TK.masked_fill(position_TK < 0, num_keys)
    return mask.scatter_(1, column, True)[:, :num_keys]
