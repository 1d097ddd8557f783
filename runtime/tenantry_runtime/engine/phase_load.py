"""What one phase of a model has to do in a pool: what routing is told (`pool.messages.MemberLoad`)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tenantry_runtime.core import Phase

from .sequence import Sequence, Waiting


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseLoad:
    """Sums over the sequences that are in the phase, or wait for it."""

    num_growth_pages: int
    num_queued_tokens: int
    num_sequences: int


def load_of(live: Iterable[Sequence], phase: Phase) -> PhaseLoad:
    """Return what there is to do for these sequences. O(sequences)."""
    mine = [s for s in live if s.phase == phase]
    return PhaseLoad(
        num_growth_pages=sum(s.num_growth_pages for s in mine if not isinstance(s.state, Waiting)),
        num_queued_tokens=sum(s.num_queued for s in mine),
        num_sequences=len(mine),
    )
