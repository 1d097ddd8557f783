"""What the check of pages has found: a record of each mismatch, and what a node does about many.

| op | the page is |
|---|---|
| prefill read, decode read | full or begun before the step |
| prefill append, decode append | written by the step |
| hand-off read | sent to a decode member |
| hand-off write | brought by a hand-off |
"""

from __future__ import annotations

import logging
from collections import Counter, deque
from typing import Literal

from tenantry_runtime.cache.fault_word import disagreement, logical_page
from tenantry_runtime.core import PAGE_TOKENS
from tenantry_runtime.log_lines import TRACE_ID, about
from tenantry_runtime.pool.messages import Incident

from .plan import Entry, StepPlan
from .sequence import Sequence

MAX_KEPT = 64
"""Records; counts go on. As many as a batch may have sequences: none is lost before an edge has asked."""

WINDOW_S = 60.0
"""In which `limit` incidents are too many."""

_log = logging.getLogger(__name__)


class IncidentLog:
    """The incidents of one model."""

    def __init__(self, *, limit: int = 16) -> None:
        """So many within `WINDOW_S` mean that the fault is not a sequence's but the node's."""
        self._limit = limit
        self._kept: deque[Incident] = deque(maxlen=MAX_KEPT)
        self._times_s: deque[float] = deque(maxlen=limit)
        self.num_incidents = 0
        """Since the start."""
        self.by_op: Counter[str] = Counter()
        """The same, by the op that found it."""

    @property
    def kept(self) -> tuple[Incident, ...]:
        """The latest, oldest first."""
        return tuple(self._kept)

    def add(self, incident: Incident) -> None:
        self._kept.append(incident)
        self._times_s.append(incident.time_s)
        self.num_incidents += 1
        self.by_op[incident.op] += 1
        told = about(incident.request_id) | {TRACE_ID: incident.trace_id}
        _log.error("cache integrity: %s", incident, extra=told)

    def are_too_many(self, now_s: float) -> bool:
        """Whether the node should take no work rather than fail it."""
        return len(self._times_s) == self._limit and now_s - self._times_s[0] < WINDOW_S


def incident_of(plan: StepPlan, entry: Entry, fault: int, now_s: float) -> Incident:
    """Say what was found where, from the fault word of an entry's sequence."""
    submit, lease = entry.sequence.submit, entry.sequence.held.lease
    page = logical_page(fault)
    is_written = page is not None and page >= entry.start // PAGE_TOKENS
    return Incident(
        time_s=now_s,
        model=submit.model,
        request_id=submit.request_id,
        tenant=submit.tenant,
        step=plan.step,
        op=f"{plan.phase} {'append' if is_written else 'read'}",
        logical_page=page,
        page=lease.indices[page] if page is not None and page < len(lease) else None,
        found=found_of(fault),
        trace_id=submit.trace_id,
    )


def handoff_incident(
    sequence: Sequence,
    op: Literal["hand-off read", "hand-off write"],
    *,
    logical_page: int | None,
    found: tuple[str, ...],
    now_s: float,
) -> Incident:
    """Say what was found of a page on its way from one member to another."""
    lease = sequence.held.lease
    is_held = logical_page is not None and 0 <= logical_page < len(lease)
    return Incident(
        time_s=now_s,
        model=sequence.submit.model,
        request_id=sequence.request_id,
        tenant=sequence.submit.tenant,
        step=0,
        op=op,
        logical_page=logical_page,
        page=lease.indices[logical_page] if is_held and logical_page is not None else None,
        found=found,
        trace_id=sequence.submit.trace_id,
    )


def found_of(fault: int) -> tuple[str, ...]:
    """Return the names of what a fault word says."""
    return tuple(str(kind.name).lower() for kind in disagreement(fault))
