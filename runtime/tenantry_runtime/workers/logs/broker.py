"""Tails: who listens to which worker, and what waits for them."""

from __future__ import annotations

import secrets
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import anyio

from tenantry_runtime.core import TenantId
from tenantry_runtime.errors import CapacityExceeded
from tenantry_runtime.workers.interface import Record

from .filters import TailFilters
from .trace import dropped_messages, encoded

MAX_TAILS = 10
"""Of one worker; Cloudflare's number."""
MAX_TAILS_EACH = 50
"""Of all workers of one account."""
MAX_WAITING = 256
"""Messages for one tail; a reader that is slower loses the rest, and is told how many."""
MAX_WAITING_BYTES = 4 << 20
LIFETIME_S = 6 * 3600.0
UNUSED_S = 60.0
"""That nobody connects to a tail, before another may have its place."""


@dataclass(frozen=True, slots=True)
class TailStatistics:
    num_tails: int
    num_waiting: int
    num_dropped: int


class Tail:
    """What one listener asked for, and what waits for it."""

    def __init__(
        self, id: str, tenant: TenantId, worker: str, filters: TailFilters, now_s: float
    ) -> None:
        self.id = id
        self.tenant = tenant
        self.worker = worker
        self.filters = filters
        self.created_s = now_s
        self.expires_s = now_s + LIFETIME_S
        """Unix time."""
        self.is_connected = False
        self.num_dropped = 0
        """Since the listener was last told."""
        self.is_closed = False
        self._waiting: deque[bytes] = deque()
        self._num_bytes = 0
        self._has_some = anyio.Event()

    @property
    def num_waiting(self) -> int:
        return len(self._waiting)

    def offer(self, message: bytes) -> None:
        """Take a message if there is room; never waits."""
        num_bytes = self._num_bytes + len(message)
        if len(self._waiting) >= MAX_WAITING or num_bytes > MAX_WAITING_BYTES:
            self.num_dropped += 1
            return
        self._num_bytes = num_bytes
        self._waiting.append(message)
        self._has_some.set()

    def close(self) -> None:
        """End it: `next` returns None once nothing waits any more."""
        self.is_closed = True
        self._has_some.set()

    async def next(self) -> bytes | None:
        """Return the next message, or that some were dropped; None at the tail's end."""
        while not self._waiting:
            if self.num_dropped:
                lost, self.num_dropped = self.num_dropped, 0
                return dropped_messages(self.worker, lost, time.time_ns() // 1_000_000)
            if self.is_closed:
                return None
            self._has_some = anyio.Event()
            await self._has_some.wait()
        message = self._waiting.popleft()
        self._num_bytes -= len(message)
        return message


class TailBroker:
    """Knows all tails of an edge."""

    def __init__(self, *, clock: Callable[[], float] = time.time) -> None:
        """`clock` returns Unix time."""
        self._clock = clock
        self._tails: dict[str, Tail] = {}
        self._of_worker: dict[tuple[TenantId, str], list[Tail]] = {}

    def open(self, tenant: TenantId, worker: str, filters: TailFilters) -> Tail:
        """Make a tail. Its id is all that is needed to connect to it.

        Raises `CapacityExceeded` where `MAX_TAILS` listen to the worker already, or `MAX_TAILS_EACH` to the
        account's.
        """
        now_s = self._clock()
        mine = [each for each in self._tails.values() if each.tenant == tenant]
        for old in mine:
            is_unused = not old.is_connected and now_s - old.created_s > UNUSED_S
            if is_unused or now_s > old.expires_s:
                self.close(old.id)
        num_open = sum(not each.is_closed for each in mine)
        tails = self._of_worker.get((tenant, worker), [])
        if len(tails) >= MAX_TAILS or num_open >= MAX_TAILS_EACH:
            raise CapacityExceeded(retry_after_s=int(UNUSED_S))
        tail = Tail(secrets.token_urlsafe(24), tenant, worker, filters, now_s)
        self._of_worker.setdefault((tenant, worker), []).append(tail)
        self._tails[tail.id] = tail
        return tail

    def find(self, id: str) -> Tail | None:
        """Return a tail that has not expired."""
        tail = self._tails.get(id)
        if tail is not None and self._clock() > tail.expires_s:
            self.close(id)
            return None
        return tail

    def of_worker(self, tenant: TenantId, worker: str) -> Sequence[Tail]:
        return tuple(self._of_worker.get((tenant, worker), ()))

    def close(self, id: str) -> None:
        """End a tail, if there is one of that id."""
        tail = self._tails.pop(id, None)
        if tail is None:
            return
        tail.close()
        key = (tail.tenant, tail.worker)
        tails = self._of_worker[key]
        tails.remove(tail)
        if not tails:
            del self._of_worker[key]

    def close_all(self) -> None:
        for id in list(self._tails):
            self.close(id)

    def publish(self, record: Record, message: bytes | None = None) -> None:
        """Offer a record to all tails that ask for it; never waits, never raises.

        `message` is the record as `trace` prints it, if that was done already.
        """
        tails = self._of_worker.get((record.version.tenant, record.version.worker))
        if tails is None:
            return
        for tail in tails:
            if tail.is_connected and tail.filters.match(record):
                message = encoded(record) if message is None else message
                tail.offer(message)

    def statistics(self) -> TailStatistics:
        tails = self._tails.values()
        return TailStatistics(
            num_tails=len(tails),
            num_waiting=sum(tail.num_waiting for tail in tails),
            num_dropped=sum(tail.num_dropped for tail in tails),
        )
