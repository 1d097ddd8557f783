"""A page on its way from one member to another, in the format of the member that gets it.

A page is one run of bytes, all layers of it:

| part | in order of | bytes of each |
|---|---|---|
| latent rows | layers | 64 rows in the format's own page layout (`paged.py`) |
| index keys | the layers that have them | as above |

In fp8 a layer's page is 64 rows of bytes, then 64 scales. Rows behind a page's last token are zero:
what somebody else left there stays where it is. The digest is that of `page_digest` over the whole
run, bound to hand-off, logical page, layer group (0: all layers) and tag.

Pages are read and written through a `CheckedBatch` alone: of a sequence that does not pass, nothing
is sent and nothing is written. S pushed pages, P pages of a lease, B bytes of one on the wire,
R runs of pages (`Reservation.accept`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate

import numpy as np
import torch

from tenantry_kernels.choice import HAS_COMPILER, is_compiled, kind_of
from tenantry_kernels.fp8_rows import page_scales, page_values, page_width
from tenantry_kernels.page_digest import bind, page_digests
from tenantry_runtime.core import PAGE_TOKENS

from .checked import CheckedBatch
from .formats import SERVED_FORMATS, CacheFormat, CacheName, RowFormat
from .ops import Wire, page_ops
from .owners import OwnerSlot
from .page_batch import PageBatch
from .paged import PagedCache
from .pages import Lease, Tag
from .tags import Tracker
from .wire import Arrivals, ArrivedPage, Departure, Outcome, WirePage

if HAS_COMPILER:
    from tenantry_kernels.cpu import page_digest as compiled
    from tenantry_kernels.cpu.page_copies import PageCopies

LAYER_GROUP = 0
"""All layers travel together."""


@dataclass(frozen=True, slots=True)
class _Store:
    """One layer's memory of one kind."""

    pool: torch.Tensor
    rows: RowFormat
    is_index: bool

    @property
    def width(self) -> int:
        """Values of a row."""
        if self.rows.has_scale:
            return page_width(self.pool.shape[-1])
        return self.pool.shape[-1]

    def wire_rows(self, target: CacheFormat) -> RowFormat:
        return target.index if self.is_index else target.latent

    def wire_bytes(self, target: CacheFormat) -> int:
        return PAGE_TOKENS * self.wire_rows(target).row_bytes(self.width)


class WirePages:
    """Sends and takes the pages of one cache."""

    def __init__(self, cache: PagedCache, tracker: Tracker) -> None:
        self._cache_format = cache.cache_format
        self._tracker = tracker
        self._device = cache.device
        self._num_appends = cache.num_appends
        latents = [_Store(pool, cache.cache_format.latent, False) for pool in cache.latent_N]
        keys = [
            _Store(pool, cache.cache_format.index, True)
            for _, pool in sorted(cache.index_keys.items())
        ]
        self._stores = (*latents, *keys)
        self._copies = None
        if HAS_COMPILER and kind_of(self._device) == "cpu":
            self._copies = PageCopies([store.pool for store in self._stores])
            self._warm_up()

    @cached_property
    def page_bytes(self) -> int:
        """Of a page that comes in."""
        return sum(store.wire_bytes(self._cache_format) for store in self._stores)

    @property
    def layout(self) -> str:
        """What a page of this cache is on the wire; two members that say the same understand each other."""
        latents = [store for store in self._stores if not store.is_index]
        keys = [store for store in self._stores if store.is_index]
        parts = [
            f"{len(stores)}x{stores[0].rows.name}[{PAGE_TOKENS},{stores[0].width}]"
            for stores in (latents, keys)
            if stores
        ]
        return "+".join(parts)

    def sent_bytes(self, cache: CacheName) -> int | None:
        """Return the bytes of a page in another member's format; None if it cannot be sent so."""
        target = SERVED_FORMATS[cache]
        if any(self._wire(store, target) is None for store in self._stores):
            return None
        return sum(store.wire_bytes(target) for store in self._stores)

    @torch.inference_mode()
    def to_wire(self, departure: Departure, cache: CacheName) -> tuple[list[WirePage], int]:
        """Return the pages in another member's format, or none and the fault word of the check."""
        first, end = departure.first_page, departure.num_tokens
        checked = self._tracker.check(_reads(departure.lease, departure.owner, first, end))
        page_P = checked.page_table_SL[0, first : -(-end // PAGE_TOKENS)]
        data_PB = self._converted(page_P, end - first * PAGE_TOKENS, SERVED_FORMATS[cache])
        digest_P = _digests(data_PB)
        # the bytes leave only if what they were read from was the sequence's own
        if not bool(self._tracker.confirm(checked)[0]):
            return [], self._tracker.faults(checked)[0]
        host_PB = data_PB.cpu().numpy()
        pages = [
            WirePage(
                logical_page=first + place,
                num_tokens=min(PAGE_TOKENS, end - (first + place) * PAGE_TOKENS),
                data=host_PB[place].data,
                digest=digest,
            )
            for place, digest in enumerate(digest_P)
        ]
        return pages, 0

    def bind(self, digest: int, handoff: int, logical_page: int, tag: Tag) -> int:
        """Return the digest of a page that a hand-off brings to a place under a tag."""
        return bind(digest, handoff, logical_page, LAYER_GROUP, tag)

    @torch.inference_mode()
    def load(self, arrived: Sequence[ArrivedPage]) -> Arrivals:
        """Bring the bytes of pages, at least one, to the cache's device.

        They are valid until the next `load`. What is verified and written is this copy: the bytes
        themselves are somebody else's memory.
        """
        if self._copies is not None:
            data_SB, digest_S = self._copies.gather([page.data for page in arrived])
            return Arrivals(arrived, data_SB, digest_S)
        data = bytearray().join([page.data for page in arrived])
        data_SB = torch.frombuffer(data, dtype=torch.uint8).view(len(arrived), -1)
        return Arrivals(arrived, data_SB.to(self._device, non_blocking=True))

    @torch.inference_mode()
    def verify(self, arrivals: Arrivals) -> list[bool]:
        """Return of each page whether its bytes are what its sender made of that page and tag."""
        digest_S = arrivals.digest_S
        if digest_S is None:
            digest_S = _digests(arrivals.data_SB)
        return [
            page.digest == bound
            for page, bound in zip(arrivals.pages, _bound(digest_S, arrivals.pages), strict=True)
        ]

    @torch.inference_mode()
    def from_wire(self, writes: PageBatch, arrivals: Arrivals) -> list[Outcome]:
        """Write verified pages where `Reservation.accept` lets them; return what the check says of each run.

        The pages are those of the runs, in their order.
        """
        checked = self._tracker.check(writes)
        self._write(self._written_pages(checked, writes), arrivals.data_SB)
        checked.landing.landed(checked.write_slot_T, self._num_appends)
        ok_R = self._tracker.confirm(checked).tolist()
        fault_R = (0,) * len(ok_R) if all(ok_R) else self._tracker.faults(checked)
        return [Outcome(ok, fault) for ok, fault in zip(ok_R, fault_R, strict=True)]

    @torch.inference_mode()
    def fault(self, lease: Lease, owner: OwnerSlot, num_tokens: int) -> int:
        """Check all pages of a sequence as a step would that reads them; return the fault word."""
        checked = self._tracker.check(_reads(lease, owner, 0, num_tokens))
        ok = bool(self._tracker.confirm(checked)[0])
        return 0 if ok else self._tracker.faults(checked)[0]

    def _converted(
        self, page_P: torch.Tensor, num_tokens: int, target: CacheFormat
    ) -> torch.Tensor:
        parts = []
        for store in self._stores:
            wire = self._wire(store, target)
            assert wire is not None, f"rows of {store.rows.name} cannot be sent so"
            part_PB = wire(store.pool, page_P)
            _clear(part_PB, store.wire_rows(target), num_tokens)
            parts.append(part_PB)
        return torch.cat(parts, 1)

    def _wire(self, store: _Store, target: CacheFormat) -> Wire | None:
        return page_ops(store.rows, self._device).wire.get(store.wire_rows(target).name)

    def _written_pages(self, checked: CheckedBatch, writes: PageBatch) -> torch.Tensor:
        """Return the pool's page of each pushed page; the sink of one that did not pass."""
        counts = [end - start for start, end in zip(writes.start_S, writes.read_len_S, strict=True)]
        ends = list(accumulate(counts))
        slot_S = torch.cat(
            [
                checked.write_slot_T[end - count : end : PAGE_TOKENS]
                for count, end in zip(counts, ends, strict=True)
            ]
        )
        sink = self._stores[0].pool.shape[0] - 1
        return (slot_S // PAGE_TOKENS).clamp(max=sink)

    def _write(self, page_S: torch.Tensor, data_SB: torch.Tensor) -> None:
        if self._copies is not None:
            self._copies.scatter(data_SB, page_S.numpy())
            return
        sizes = [store.wire_bytes(self._cache_format) for store in self._stores]
        for store, part_SB in zip(self._stores, data_SB.split(sizes, 1), strict=True):
            # in words: five times as fast as in bytes
            store.pool.flatten(1).view(torch.int64).index_copy_(
                0, page_S, part_SB.view(torch.int64)
            )

    def _warm_up(self) -> None:
        """Compile, or load what was compiled, now and not in the first request."""
        assert self._copies is not None
        data_SB, digest_S = self._copies.gather([])
        self._copies.scatter(data_SB, np.empty(0, np.int64))
        _bound(digest_S, [])


def _reads(lease: Lease, owner: OwnerSlot, first_page: int, num_tokens: int) -> PageBatch:
    return PageBatch(
        leases_S=(lease,),
        owner_S=(owner,),
        start_S=(num_tokens,),
        read_len_S=(num_tokens,),
        first_page_S=(first_page,),
    )


def _digests(data_PB: torch.Tensor) -> list[int]:
    # whatever the number of rows, the sum is one of integers: the same in any mode
    digests = compiled.page_digests if is_compiled("rows", data_PB) else page_digests
    found: list[int] = digests(data_PB).tolist()
    return found


def _bound(digest_S: Sequence[int], pages: Sequence[ArrivedPage]) -> list[int]:
    """Return the digests as their senders should have bound them."""
    fields = [(page.handoff, page.logical_page, LAYER_GROUP, page.tag) for page in pages]
    if HAS_COMPILER:
        field_SF = np.array(fields, np.int64).reshape(-1, 4)
        return compiled.bind_digests(digest_S, field_SF)
    return [bind(digest, *each) for digest, each in zip(digest_S, fields, strict=True)]


def _clear(page_PB: torch.Tensor, rows: RowFormat, num_tokens: int) -> None:
    """Zero the rows behind the last token of consecutive pages."""
    used = num_tokens % PAGE_TOKENS
    if not used:
        return
    last_B = page_PB[-1]
    if rows.has_scale:
        page_values(last_B).view(torch.uint8)[used:] = 0
        page_scales(last_B)[used:] = 0
    else:
        last_B.view(PAGE_TOKENS, -1)[used:] = 0
