"""Which uses of pages the check really covers: found out by trying, before a node serves.

A page of a tenant's is filled with NaN and given a tag that its sequence does not expect. Then the
model's own passes run over it, and what hands pages on is tried on it. An op is covered when the NaN
is neither read nor overwritten, and when what must be refused is refused.

| op | in the phase | is covered if |
|---|---|---|
| appends of `cache/ops.py` | both | every layer's memory is as it was |
| reads, scores, attention of `cache/ops.py` | both | the hidden state is finite |
| decode step | decode | both, where one compiled call takes the place of those ops |
| prefix reuse | prefill | a page of another owner's is not read |
| prefix insertion | prefill | a full page is not written again |
| eviction | prefill | whoever still reads a page that has been freed is refused |
| lost append | both | a step whose rows have not landed is not confirmed |
| hand-off read | prefill | nothing is sent of a page that does not have its tag |
| hand-off | decode | a page is not written under a tag that it does not have, nor late, nor with other bytes than were sent |
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import torch

from tenantry_runtime.cache.allocator import PageAllocator
from tenantry_runtime.cache.checked import CheckedBatch
from tenantry_runtime.cache.formats import SERVED_FORMATS, CacheFormat, CacheName
from tenantry_runtime.cache.ops import device_kind, ops_on
from tenantry_runtime.cache.owners import OwnerSlot
from tenantry_runtime.cache.page_batch import PageBatch
from tenantry_runtime.cache.paged import PagedCache
from tenantry_runtime.cache.pages import Lease, PageRef, Tag
from tenantry_runtime.cache.reservation import PushedPage, Reservation
from tenantry_runtime.cache.tags import Tracker
from tenantry_runtime.cache.wire import ArrivedPage, Departure
from tenantry_runtime.cache.wire_pages import WirePages
from tenantry_runtime.core import PAGE_TOKENS, Phase
from tenantry_runtime.errors import CacheIntegrityError
from tenantry_runtime.models.batch import ForwardBatch
from tenantry_runtime.models.decoder import Decoder
from tenantry_runtime.pool.messages import OpCoverage

Coverage: TypeAlias = Mapping[Phase, tuple[OpCoverage, ...]]
MakeTracker: TypeAlias = Callable[[int, int], Tracker]
"""Of so many pages and so many appends a step."""

_OWNER, _OTHER = OwnerSlot(1), OwnerSlot(2)
_OF_DECODE = ("decode attention", "decode step", "index scores")
_ROWS: Mapping[Phase, int] = {"decode": 1, "prefill": 2}


@dataclass(frozen=True, slots=True)
class _Probe:
    """What came of a pass over a page that is not the sequence's own."""

    latents_are_kept: bool
    keys_are_kept: bool
    is_finite: bool


def find_coverage(
    decoder: Decoder,
    cache: PagedCache,
    make_tracker: MakeTracker,
    phases: Sequence[Phase] = ("prefill", "decode"),
) -> Coverage:
    """Try all that members do with pages; none may be in use, and all are zero afterwards."""
    probes = {phase: _probe(decoder, cache, make_tracker, phase) for phase in phases}
    device = device_kind(cache.device)
    return {
        phase: (
            *_op_rows(cache, phase, probe),
            *(
                OpCoverage(op=op, format=cache.cache_format.latent.name, device=device, is_on=is_on)
                for op, is_on in _passed_on(cache, make_tracker, phase).items()
            ),
        )
        for phase, probe in probes.items()
    }


def _passed_on(cache: PagedCache, make_tracker: MakeTracker, phase: Phase) -> dict[str, bool]:
    """Try what hands pages on, by its name in the table."""
    if phase == "decode":
        return {
            "hand-off": _refuses_a_foreign_push(make_tracker)
            and _keeps_a_page_from_a_push(cache, make_tracker),
            "lost append": _refuses_a_lost_append(make_tracker),
        }
    return {
        "prefix reuse": _refuses_another_owner(make_tracker),
        "prefix insertion": _refuses_a_full_page(make_tracker),
        "eviction": _refuses_a_freed_page(make_tracker),
        "lost append": _refuses_a_lost_append(make_tracker),
        "hand-off read": _sends_nothing_of_a_foreign_page(cache, make_tracker),
    }


def _op_rows(cache: PagedCache, phase: Phase, probe: _Probe) -> list[OpCoverage]:
    device = device_kind(cache.device)
    latent, index = cache.cache_format.latent, cache.cache_format.index
    rows = []
    for key, op in ops_on(device).items():
        is_index = key.op.startswith("index")
        wanted = index if is_index else latent
        # what sends pages away is tried as the hand-off
        is_used = op.touches_pages and not key.op.startswith("wire")
        is_used &= key.rows == wanted.name
        is_used &= bool(cache.index_keys) or not is_index
        is_used &= phase == "decode" or key.op not in _OF_DECODE
        if not is_used:
            continue
        kept = probe.keys_are_kept if is_index else probe.latents_are_kept
        is_on = kept if key.op.endswith("append") else probe.is_finite
        if key.op == "decode step":
            is_on = probe.latents_are_kept and probe.keys_are_kept and probe.is_finite
        rows.append(OpCoverage(op=key.op, format=key.rows, device=device, is_on=is_on))
    return rows


@torch.inference_mode()
def _probe(decoder: Decoder, cache: PagedCache, make_tracker: MakeTracker, phase: Phase) -> _Probe:
    indexer = decoder.config.indexer
    # enough for sparse attention to choose, if the pool has it
    wanted = -(-(1 + (indexer.top_k if indexer else 0)) // PAGE_TOKENS) + 1
    num_pages = min(wanted, cache.num_pages)
    tracker = make_tracker(cache.num_pages, cache.num_appends)
    lease = PageAllocator(cache.num_pages, stamp=tracker.stamp).reserve(_OWNER, num_pages)
    num_rows = _ROWS[phase]
    end = num_pages * PAGE_TOKENS
    _fill(tracker, lease, end - num_rows, cache.num_appends)
    tracker.stamp([PageRef(lease.ref(num_pages - 1).index, Tag(lease.tags[-1] + 1))])
    checked = tracker.check(_batch(lease, end - num_rows, end))
    memory = [*cache.latent_N, *cache.index_keys.values()]
    page_L = torch.tensor(lease.indices, device=cache.device)
    for pool in memory:
        # of these pages alone: what is never touched takes no memory
        pool.view(torch.uint8)[page_L] = 0xFF
    hidden_RH = decoder.forward(_rows(num_rows, end, cache), checked, cache)

    def is_kept(pool: torch.Tensor) -> bool:
        return bool((pool.view(torch.uint8)[page_L] == 0xFF).all())

    probe = _Probe(
        latents_are_kept=all(map(is_kept, cache.latent_N)),
        keys_are_kept=all(map(is_kept, cache.index_keys.values())),
        is_finite=bool(hidden_RH.isfinite().all()),
    )
    for pool in memory:
        pool[page_L] = 0
    return probe


def _rows(num_rows: int, end: int, cache: PagedCache) -> ForwardBatch:
    return ForwardBatch(
        token_ids_T=torch.zeros(num_rows, dtype=torch.int64, device=cache.device),
        positions_T=torch.arange(end - num_rows, end, device=cache.device),
        cu_len=(0, num_rows),
        logit_rows_R=torch.tensor([num_rows - 1], device=cache.device),
    )


def _batch(lease: Lease, start: int, end: int, owner: OwnerSlot = _OWNER) -> PageBatch:
    return PageBatch(leases_S=(lease,), owner_S=(owner,), start_S=(start,), read_len_S=(end,))


def _fill(tracker: Tracker, lease: Lease, num_tokens: int, num_appends: int) -> None:
    """Let the tracker think that so many tokens are in the lease's pages."""
    if num_tokens:
        checked = tracker.check(_batch(lease, 0, num_tokens))
        checked.landing.landed(checked.write_slot_T, num_appends)
        tracker.confirm(checked)


def _is_refused(tracker: Tracker, pages: PageBatch) -> bool:
    checked = tracker.check(pages)
    return _is_masked(checked) and not bool(tracker.confirm(checked)[0])


def _a_full_page(make_tracker: MakeTracker) -> tuple[Tracker, PageAllocator, Lease]:
    tracker = make_tracker(2, 1)
    pool = PageAllocator(2, stamp=tracker.stamp)
    lease = pool.reserve(_OWNER, 1)
    _fill(tracker, lease, PAGE_TOKENS, 1)
    return tracker, pool, lease


def _refuses_another_owner(make_tracker: MakeTracker) -> bool:
    tracker, _, lease = _a_full_page(make_tracker)
    return _is_refused(tracker, _batch(lease, PAGE_TOKENS, PAGE_TOKENS, owner=_OTHER))


def _refuses_a_full_page(make_tracker: MakeTracker) -> bool:
    tracker, _, lease = _a_full_page(make_tracker)
    return _is_refused(tracker, _batch(lease, 0, PAGE_TOKENS))


def _refuses_a_freed_page(make_tracker: MakeTracker) -> bool:
    tracker, pool, lease = _a_full_page(make_tracker)
    pages = _batch(lease, PAGE_TOKENS, PAGE_TOKENS)
    pool.release(lease, after=0)
    return _is_refused(tracker, pages)


def _refuses_a_lost_append(make_tracker: MakeTracker) -> bool:
    tracker, _, lease = _a_full_page(make_tracker)
    lease.extend(1)
    checked = tracker.check(_batch(lease, PAGE_TOKENS, PAGE_TOKENS + 1))
    return not bool(tracker.confirm(checked)[0])


def _refuses_a_foreign_push(make_tracker: MakeTracker) -> bool:
    tracker = make_tracker(2, 1)
    pool = PageAllocator(2, stamp=tracker.stamp)
    reservation = Reservation.fresh(pool, _OWNER, 1)
    ref = reservation.lease.ref(0)
    pushed = PushedPage(
        handoff=reservation.handoff, logical_page=0, ref=ref, num_tokens=PAGE_TOKENS
    )
    tracker.stamp([PageRef(ref.index, Tag(ref.tag + 1))])
    is_refused = _is_masked(tracker.check(reservation.accept([pushed])))
    reservation.close()
    try:
        reservation.accept([pushed])
    except CacheIntegrityError:
        return is_refused
    return False


@torch.inference_mode()
def _sends_nothing_of_a_foreign_page(cache: PagedCache, make_tracker: MakeTracker) -> bool:
    tracker = make_tracker(cache.num_pages, cache.num_appends)
    lease = PageAllocator(cache.num_pages, stamp=tracker.stamp).reserve(_OWNER, 1)
    _fill(tracker, lease, PAGE_TOKENS, cache.num_appends)
    tracker.stamp([PageRef(lease.ref(0).index, Tag(lease.tags[0] + 1))])
    departure = Departure(lease, _OWNER, 0, PAGE_TOKENS)
    pages, _ = WirePages(cache, tracker).to_wire(departure, _name_of(cache.cache_format))
    return not pages


@torch.inference_mode()
def _keeps_a_page_from_a_push(cache: PagedCache, make_tracker: MakeTracker) -> bool:
    tracker = make_tracker(cache.num_pages, cache.num_appends)
    pool = PageAllocator(cache.num_pages, stamp=tracker.stamp)
    reservation = Reservation.fresh(pool, _OWNER, 1)
    ref = reservation.lease.ref(0)
    wire = WirePages(cache, tracker)
    data = memoryview(b"\xff" * wire.page_bytes)
    arrivals = wire.load([ArrivedPage(reservation.handoff.number, 0, ref.tag, 0, data)])
    pushed = PushedPage(
        handoff=reservation.handoff, logical_page=0, ref=ref, num_tokens=PAGE_TOKENS
    )
    tracker.stamp([PageRef(ref.index, Tag(ref.tag + 1))])
    [outcome] = wire.from_wire(reservation.accept([pushed]), arrivals)
    memory = [*cache.latent_N, *cache.index_keys.values()]
    is_kept = not any(bool(each[ref.index].view(torch.uint8).any()) for each in memory)
    for each in memory:
        each[ref.index] = 0
    return is_kept and not outcome.is_ok and wire.verify(arrivals) == [False]


def _name_of(cache_format: CacheFormat) -> CacheName:
    return next(name for name, served in SERVED_FORMATS.items() if served == cache_format)


def _is_masked(checked: CheckedBatch) -> bool:
    if checked.device_len_S is not None:
        # the host may only know what would be read if all passed
        return not checked.device_len_S.any()
    return checked.read_len_S == (0,)
