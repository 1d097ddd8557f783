"""Attention through pages whose lengths only the device knows: `Attend` for a GPU.

A sequence that did not pass the check is seen by the device alone, in the step that it fails in:
its length there is 0. So shapes follow what the host planned, and ops read lengths where they are.

| rows | go through |
|---|---|
| consecutive sequences with equally many rows | one call of each op, rows as query tokens |
| `deterministic` | every row as a sequence of its own, contexts uncut: sums depend on its length alone |

S sequences, Q query tokens of each, T rows, N heads, C cached values, L latent values, K choices,
J index heads, D index values, P page-table columns.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby, pairwise

import torch

from tenantry_runtime.cache.checked import CheckedBatch, CountsOnDevice
from tenantry_runtime.cache.ops import DeviceOps, page_ops
from tenantry_runtime.cache.paged import PagedCache

from .attend import AttentionRows, ChosenPositions, IndexRows, Selection

_ONE_SPLIT = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryGroup:
    """Consecutive sequences with the same number of rows."""

    rows: slice
    num_queries: int
    page_table_SP: torch.Tensor
    read_len_S: torch.Tensor

    def queries(self, x_T: torch.Tensor) -> torch.Tensor:
        """Return the group's rows [S, Q, ...] of all rows [T, ...]."""
        grouped: torch.Tensor = x_T[self.rows].unflatten(0, (-1, self.num_queries))
        return grouped

    def rows_apart(self) -> QueryGroup:
        """Return the same rows as sequences of one row each."""
        if self.num_queries == 1:
            return self
        before_Q = torch.arange(1 - self.num_queries, 1, device=self.read_len_S.device)
        # of a sequence that reads nothing, no row does
        read_len_SQ = (self.read_len_S[:, None] + before_Q).clamp(min=0)
        table_SQP = self.page_table_SP[:, None].expand(-1, self.num_queries, -1)
        return QueryGroup(
            rows=self.rows,
            num_queries=1,
            page_table_SP=table_SQP.flatten(0, 1).contiguous(),
            read_len_S=read_len_SQ.flatten(),
        )


class DeviceAttend:
    """Attention through a checked batch's pages, without asking the device for anything."""

    def __init__(
        self,
        checked: CheckedBatch,
        cu_len: tuple[int, ...],
        cache: PagedCache,
        *,
        deterministic: bool,
    ) -> None:
        self._slot_T = checked.write_slot_T
        self._landing = checked.landing
        self._cache = cache
        self._latents = _on_device(page_ops(cache.cache_format.latent, cache.device).on_device)
        self._keys = _on_device(page_ops(cache.cache_format.index, cache.device).on_device)
        self._longest = max(checked.read_len_S, default=0)
        self._num_splits = _ONE_SPLIT if deterministic else None
        self._groups = [
            group.rows_apart() if deterministic else group for group in _groups(checked, cu_len)
        ]

    def select(self, layer: int, rows: IndexRows) -> ChosenPositions | None:
        keys = self._cache.index_keys[layer]
        self._append(self._keys, keys, rows.key_TD)
        if self._longest <= rows.top_k:
            return None
        chosen = [
            self._keys.choose(
                group.queries(rows.q_TJD),
                group.queries(rows.weight_TJ),
                keys,
                group.page_table_SP,
                group.read_len_S,
                rows.top_k,
            ).flatten(0, 1)
            for group in self._groups
        ]
        return ChosenPositions(_joined(chosen))

    def attend(self, layer: int, rows: AttentionRows, selection: Selection | None) -> torch.Tensor:
        pool = self._cache.latent_N[layer]
        self._append(self._latents, pool, torch.cat((rows.latent_TL, rows.k_rope_Tr), -1))
        chosen = selection.position_TK if isinstance(selection, ChosenPositions) else None
        maps = rows.head_maps
        q_TNC = torch.cat((maps.absorb(rows.q_nope_TNd), rows.q_rope_TNr), -1)
        latent_dim = rows.latent_TL.shape[-1]
        sums = [
            self._sums(group, pool, q_TNC, chosen, rows.scale, latent_dim).flatten(0, 1)
            for group in self._groups
        ]
        return maps.expand(_joined(sums))

    def _sums(
        self,
        group: QueryGroup,
        pool: torch.Tensor,
        q_TNC: torch.Tensor,
        chosen_TK: torch.Tensor | None,
        scale: float,
        latent_dim: int,
    ) -> torch.Tensor:
        """Return a group's latent sums [S, Q, N, L]."""
        q_SQNC, table_SP, len_S = group.queries(q_TNC), group.page_table_SP, group.read_len_S
        ops, splits = self._latents, self._num_splits
        if chosen_TK is None:
            return ops.attend(
                q_SQNC, pool, table_SP, len_S,
                scale=scale, latent_dim=latent_dim, num_splits=splits,
            )  # fmt: skip
        chosen_SQK = group.queries(chosen_TK)
        return ops.attend_chosen(
            q_SQNC, pool, table_SP, len_S, chosen_SQK,
            scale=scale, latent_dim=latent_dim, num_splits=splits,
        )  # fmt: skip

    def _append(self, ops: DeviceOps, pool: torch.Tensor, row_TC: torch.Tensor) -> None:
        landing = self._landing
        if isinstance(landing, CountsOnDevice):
            ops.append(pool, self._slot_T, row_TC, landing.next_append())
        else:
            ops.append(pool, self._slot_T, row_TC)
            landing.landed(self._slot_T)


def reads_on_device(cache: PagedCache) -> bool:
    """Return whether the ops of a cache's pages take lengths from the device."""
    return page_ops(cache.cache_format.latent, cache.device).on_device is not None


def _groups(checked: CheckedBatch, cu_len: tuple[int, ...]) -> list[QueryGroup]:
    read_len_S = checked.device_len_S
    if read_len_S is None:
        # a batch that no tracker of this device made: first passes
        read_len_S = torch.tensor(checked.read_len_S, device=checked.page_table_SL.device)
    groups, s = [], 0
    counts = [stop - start for start, stop in pairwise(cu_len)]
    for num_queries, equal in groupby(counts):
        sequences = slice(s, s := s + len(list(equal)))
        if num_queries:
            groups.append(
                QueryGroup(
                    rows=slice(cu_len[sequences.start], cu_len[sequences.stop]),
                    num_queries=num_queries,
                    page_table_SP=checked.page_table_SL[sequences],
                    read_len_S=read_len_S[sequences],
                )
            )
    return groups


def _on_device(ops: DeviceOps | None) -> DeviceOps:
    assert ops is not None, "latents and index keys must both be served on the device"
    return ops


def _joined(parts: list[torch.Tensor]) -> torch.Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(parts)
