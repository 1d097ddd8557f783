"""Maps of pages (`pool.page_map`), read off a pool's books."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from tenantry_runtime.cache.owners import (
    NOBODY as NOBODY_SLOT,
    OWNER_BITS,
    PUBLIC as PUBLIC_SLOT,
    OwnerSlot,
)
from tenantry_runtime.cache.pages import PageState
from tenantry_runtime.pool.page_map import (
    BEYOND,
    FIRST_TENANT,
    MAX_TENANTS,
    NOBODY,
    PUBLIC,
    STATES,
    PageMap,
)

from .lane import Lane

_CODES = np.array([STATES.index(state.name.lower()) for state in PageState], np.uint8)
_OWNER_SHIFT = 64 - OWNER_BITS


def page_map_of(lane: Lane, tenants: Mapping[OwnerSlot, str]) -> PageMap:
    """Return a pool's map. O(pages), some nanoseconds each."""
    states, tags = lane.pool.pages()
    slots = np.asarray(tags, np.int64).view(np.uint64) >> np.uint64(_OWNER_SHIFT)
    codes = np.full(1 << OWNER_BITS, BEYOND, np.uint8)
    codes[NOBODY_SLOT], codes[PUBLIC_SLOT] = NOBODY, PUBLIC
    named = [slot for slot in np.unique(slots).tolist() if slot in tenants][:MAX_TENANTS]
    for number, slot in enumerate(named):
        codes[slot] = FIRST_TENANT + number
    return PageMap(
        model=lane.model,
        phases=tuple(lane.members),
        states=_CODES[np.asarray(states, np.int64)].tobytes(),
        owners=codes[slots].tobytes(),
        tenants=tuple(tenants[slot] for slot in named),
    )
