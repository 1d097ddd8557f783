"""Decode steps of one model without an engine: the same one, as often as it is to be timed.

Its pages are full of zeros: no loop over pages looks at their content.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import torch

from tenantry_runtime.cache.allocator import PageAllocator
from tenantry_runtime.cache.formats import CACHE_FORMATS
from tenantry_runtime.cache.owners import OwnerSlot
from tenantry_runtime.cache.page_batch import PageBatch
from tenantry_runtime.cache.paged import PagedCache
from tenantry_runtime.cache.tags import PageTags, Tracker
from tenantry_runtime.core import PAGE_TOKENS
from tenantry_runtime.models import Decoder, ForwardBatch


class Rig:
    """Sequences of one length in the pages of one model."""

    def __init__(self, decoder: Decoder, *, cache: str, length: int, concurrency: int) -> None:
        num_pages = -(-length // PAGE_TOKENS) * concurrency
        self._decoder = decoder
        self._cache = PagedCache.allocate(
            decoder.config, num_pages=num_pages, cache_format=CACHE_FORMATS[cache]
        )
        self.tags = PageTags(num_pages, num_appends=self._cache.num_appends)
        pool = PageAllocator(num_pages, stamp=self.tags.stamp)
        owners = [OwnerSlot(1 + s) for s in range(concurrency)]
        leases = [pool.reserve(owner, num_pages // concurrency) for owner in owners]

        def pages(start: int, end: int) -> PageBatch:
            return PageBatch(
                leases_S=leases,
                owner_S=owners,
                start_S=[start] * concurrency,
                read_len_S=[end] * concurrency,
            )

        written = self.tags.check(pages(0, length - 1))
        written.landing.landed(written.write_slot_T, self._cache.num_appends)
        assert self.tags.confirm(written).all()
        self._pages = pages(length - 1, length)
        self._fill_P = self.tags.arrays.fill_P.clone()
        self._batch = ForwardBatch(
            token_ids_T=torch.arange(concurrency),
            positions_T=torch.full((concurrency,), length - 1),
            cu_len=tuple(range(concurrency + 1)),
            logit_rows_R=torch.arange(concurrency),
        )

    def check(self, tracker: Tracker) -> None:
        """What a tracker does in a step."""
        checked = tracker.check(self._pages)
        checked.landing.landed(checked.write_slot_T, self._cache.num_appends)
        assert all(tracker.confirm(checked).tolist())

    def step(self, tracker: Tracker) -> None:
        checked = tracker.check(self._pages)
        hidden_RH = self._decoder.forward(self._batch, checked, self._cache)
        self._decoder.logits(hidden_RH)
        assert all(tracker.confirm(checked).tolist())

    def timed(self, work: Callable[[Tracker], None], tracker: Tracker) -> float:
        """Return the seconds of one call; then the step has not happened."""
        started_s = time.perf_counter()
        work(tracker)
        took_s = time.perf_counter() - started_s
        self.tags.arrays.fill_P.copy_(self._fill_P)
        return took_s
