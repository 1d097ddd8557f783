"""What has been done in one page pool since its node started, and what it holds now.

Everything only grows that is counted here: rates and shares are made of two readings, so that nothing
is lost between them, and members of a pool can be added up.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from typing import TYPE_CHECKING

from tenantry_runtime.cache.owners import PUBLIC, OwnerSlot
from tenantry_runtime.core import Phase
from tenantry_runtime.pool.pool_report import PoolReport, StepCounts, TransferCounts

from .plan import StepPlan

if TYPE_CHECKING:
    from .lane import Lane

MAX_TENANTS = 64
"""Whose pages a report names: those with most."""


class LaneMeter:
    """Counts for one pool. What it is told costs a few additions a step."""

    def __init__(self) -> None:
        self._steps: dict[Phase, StepCounts] = {"prefill": StepCounts(), "decode": StepCounts()}
        self._sent = TransferCounts()
        self._received = TransferCounts()

    def stepped(self, plan: StepPlan, took_ns: int) -> None:
        """Count a step that came back, with whatever it found."""
        counts = self._steps[plan.phase]
        counts.num_steps += 1
        counts.num_sequences += len(plan.entries)
        counts.num_tokens += plan.num_tokens
        counts.took_ns += took_ns

    def crashed(self, phase: Phase) -> None:
        """Count a step that raised."""
        self._steps[phase].num_failed += 1

    def sent(self, num_pages: int, num_bytes: int) -> None:
        """Count pages that left for a decode member, checked when they were read."""
        self._sent.num_pages += num_pages
        self._sent.num_bytes += num_bytes

    def received(self, num_pages: int, num_bytes: int) -> None:
        """Count pages that came from a prefill member, checked when they were written."""
        self._received.num_pages += num_pages
        self._received.num_bytes += num_bytes

    def delivered(self, took_ns: int) -> None:
        """Count a hand-off that was confirmed, and the time since its way was opened."""
        self._sent.num_handoffs += 1
        self._sent.took_ns += took_ns

    def not_delivered(self) -> None:
        """Count a hand-off that did not come to its end."""
        self._sent.num_failed += 1

    def report(self, lane: Lane, tenants: Mapping[OwnerSlot, str]) -> PoolReport:
        """Return all of it; `tenants` are the names behind owner slots."""
        pages, prefixes = lane.pool.statistics(), lane.prefixes.statistics()
        scheduler = lane.scheduler.statistics()
        # the operator's public pages are no tenant's
        held = {
            tenants[slot]: each.num_private + each.num_shared + each.num_quiescing
            for slot, each in pages.owners.items()
            if slot in tenants
        }
        most = sorted(held.items(), key=lambda item: (-item[1], item[0]))[:MAX_TENANTS]
        public = pages.owners.get(PUBLIC)
        return PoolReport(
            model=lane.model,
            phases=tuple(lane.members),
            pages={
                "free": pages.num_free,
                "private": pages.num_private,
                "shared": pages.num_shared,
                "quiescing": pages.num_quiescing,
                "quarantined": pages.num_quarantined,
            },
            num_unread_pages=lane.prefixes.num_evictable,
            num_public_pages=0 if public is None else public.num_shared,
            tenant_pages=dict(most),
            num_running=scheduler.num_running,
            num_waiting=scheduler.num_waiting,
            num_preemptions=scheduler.num_preemptions,
            num_prompt_tokens=scheduler.num_prompt_tokens,
            num_cached_tokens=scheduler.num_cached_tokens,
            num_kept_pages=prefixes.num_inserted,
            num_evicted_pages=prefixes.num_evicted,
            # copies: these go on counting
            steps={
                phase: copy(counts)
                for phase, counts in self._steps.items()
                if phase in lane.members
            },
            sent=copy(self._sent),
            received=copy(self._received),
            mismatches=dict(lane.scheduler.incidents.by_op),
        )
