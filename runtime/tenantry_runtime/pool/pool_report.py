"""What a node tells of a page pool with every sign of life: what it holds, what was done in it.

Counters only grow until the node ends: rates and shares are made of two readings.
"""

from __future__ import annotations

import msgspec

from tenantry_runtime.core import Phase


class StepCounts(msgspec.Struct, array_like=True, gc=False):
    """Steps of one phase since the node's start. Each checks every page that it reads or writes."""

    num_steps: int = 0
    num_sequences: int = 0
    """Rows of batches, added up: over `num_steps`, the mean batch."""
    num_tokens: int = 0
    """Computed."""
    took_ns: int = 0
    """From launch to outcome."""
    num_failed: int = 0
    """Steps that raised."""


class TransferCounts(msgspec.Struct, array_like=True, gc=False):
    """Pages that hand-offs moved since the node's start; each was checked where it was read or written."""

    num_pages: int = 0
    num_bytes: int = 0
    num_handoffs: int = 0
    """Confirmed: of the sending side."""
    num_failed: int = 0
    took_ns: int = 0
    """Of those confirmed, from the open way to the confirmation."""


class PoolReport(msgspec.Struct, frozen=True, kw_only=True):
    """What one page pool holds, and what has been done in it since its node started."""

    model: str
    phases: tuple[Phase, ...]
    """Of the members that keep their pages in it."""
    pages: dict[str, int]
    """By state: free, private, shared, quiescing, quarantined."""
    num_unread_pages: int = 0
    """Of the shared ones, those that go when somebody needs pages."""
    num_public_pages: int = 0
    tenant_pages: dict[str, int] = {}
    """Of the tenants with most, in all states."""
    num_running: int = 0
    num_waiting: int = 0
    num_preemptions: int = 0
    num_prompt_tokens: int = 0
    """Of the sequences admitted."""
    num_cached_tokens: int = 0
    """Those of them that needed no computing."""
    num_kept_pages: int = 0
    """That went into prefix trees."""
    num_evicted_pages: int = 0
    steps: dict[Phase, StepCounts] = {}
    sent: TransferCounts = msgspec.field(default_factory=TransferCounts)
    received: TransferCounts = msgspec.field(default_factory=TransferCounts)
    mismatches: dict[str, int] = {}
    """Pages that were not their sequence's own, by the op that found it (`engine.incidents`)."""
