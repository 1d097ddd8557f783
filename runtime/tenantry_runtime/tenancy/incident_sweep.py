"""Deleting incidents that nobody needs any more."""

from __future__ import annotations

import logging
from typing import Never

import anyio

from tenantry_runtime.errors import StoreUnavailable

from .incidents import IncidentStore

EVERY_S = 600.0
DAY_MS = 86_400_000

_log = logging.getLogger(__name__)


class IncidentSweeper:
    """What an edge does in the background; several may at one time."""

    def __init__(self, incidents: IncidentStore, *, keep_days: float, max_kept: int) -> None:
        """`max_kept` is of each kind."""
        self._incidents = incidents
        self._keep_ms = round(keep_days * DAY_MS)
        self._max_kept = max_kept

    async def run(self) -> Never:
        """Sweep now and then, until canceled."""
        while True:
            try:
                await self.sweep()
            except StoreUnavailable as error:
                _log.warning("incidents: %s", error)
            await anyio.sleep(EVERY_S)

    async def sweep(self) -> int:
        """Delete some of what is too old or too much; return how many."""
        return await self._incidents.sweep(keep_ms=self._keep_ms, max_kept=self._max_kept)
