"""How many uploads are read at one time: each holds in memory what it may have."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import NamedTuple

import anyio

from tenantry_runtime.core import TenantId


class SlotStatistics(NamedTuple):
    num_held: int
    num_waiting: int
    """For one of those that are shared by all; others wait for their own account's."""


class UploadSlots:
    """Of an edge. One account never has them all, however slowly it sends."""

    def __init__(self, *, max_held: int = 8, max_of_account: int = 2) -> None:
        self._all = anyio.CapacityLimiter(max_held)
        self._max_of_account = max_of_account
        self._accounts: dict[TenantId, anyio.CapacityLimiter] = {}

    def statistics(self) -> SlotStatistics:
        known = self._all.statistics()
        return SlotStatistics(known.borrowed_tokens, known.tasks_waiting)

    @asynccontextmanager
    async def hold(self, account: TenantId) -> AsyncIterator[None]:
        """Wait for a slot, and have it for the duration of the block."""
        limiter = self._accounts.setdefault(account, anyio.CapacityLimiter(self._max_of_account))
        try:
            async with limiter, self._all:
                yield
        finally:
            known = limiter.statistics()
            if not known.borrowed_tokens and not known.tasks_waiting:
                self._accounts.pop(account, None)
