"""What is due and does not run yet: each account's in its own line, so that none waits for all of another's."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

import anyio

from tenantry_runtime.core import TenantId

MAX_RUNNING_EACH = 16
"""Triggers of one account that an edge runs at one time."""
MAX_WAITING_EACH = 1000
"""Of one account; more are left out."""


class Due(NamedTuple):
    """A trigger, and the time at which it was to run."""

    account: TenantId
    worker: str
    cron: str
    due_ms: int


class Waiting:
    """Lines that are served in turn. One task puts; several take."""

    def __init__(self) -> None:
        self._lines: dict[TenantId, deque[Due]] = {}
        """In the order of whose turn it is; none is empty."""
        self._num_running: dict[TenantId, int] = {}
        self._has_changed = anyio.Event()

    def put(self, due: Due) -> bool:
        """Put one at its account's end; False: there is no room."""
        line = self._lines.setdefault(due.account, deque())
        if len(line) >= MAX_WAITING_EACH:
            return False
        line.append(due)
        self._wake()
        return True

    async def take(self) -> Due:
        """Wait for one whose turn it is, which is to be `done` with."""
        while (due := self._next()) is None:
            await self._has_changed.wait()
        return due

    def done(self, due: Due) -> None:
        """Let another of the account run."""
        left = self._num_running[due.account] - 1
        if left:
            self._num_running[due.account] = left
        else:
            del self._num_running[due.account]
        self._wake()

    def _next(self) -> Due | None:
        for account, line in self._lines.items():
            num_running = self._num_running.get(account, 0)
            if num_running >= MAX_RUNNING_EACH:
                continue
            due = line.popleft()
            # behind all others, if it has more
            del self._lines[account]
            if line:
                self._lines[account] = line
            self._num_running[account] = num_running + 1
            return due
        return None

    def _wake(self) -> None:
        changed, self._has_changed = self._has_changed, anyio.Event()
        changed.set()
