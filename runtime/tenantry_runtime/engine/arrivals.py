"""Sequences whose grammars are being compiled: they are queued when that is done.

Compiling runs in threads beside the step loop. Of one tenant one grammar is compiled at a time, in the
order in which they came, so that nobody waits for another's that take long.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass

from tenantry_runtime.pool.messages import Submit

from .guide import Guide

NUM_THREADS = 4

MAX_OF_TENANT = 64
"""That wait at one time; more are refused, unless they have been let in before."""


@dataclass(slots=True, eq=False)
class Arrival:
    """A sequence that is not queued yet."""

    submit: Submit
    is_again: bool
    work: Callable[[Submit], Guide]
    queued_s: float
    """When the node got it: it waits from then on."""
    is_dropped: bool = False
    """Nobody waits for it, but a thread is at work for it, and its tenant's others wait for that."""


@dataclass(frozen=True, slots=True)
class Ready:
    """A sequence whose grammar is compiled, or is found to be none."""

    arrival: Arrival
    guide: Guide | None
    problem: str = ""


class Arrivals:
    """Belongs to the step loop's thread; what it starts, other threads do."""

    def __init__(self, *, num_threads: int = NUM_THREADS) -> None:
        self._num_threads = num_threads
        self._threads: ThreadPoolExecutor | None = None
        self._lines: dict[str, deque[Arrival]] = {}
        """By tenant; the first of each is at work."""
        self._at_work: dict[str, Future[Guide]] = {}

    def __bool__(self) -> bool:
        return bool(self._lines)

    def has_room(self, tenant: str) -> bool:
        return len(self._lines.get(tenant, ())) < MAX_OF_TENANT

    def add(self, arrival: Arrival) -> None:
        tenant = arrival.submit.tenant
        line = self._lines.setdefault(tenant, deque())
        line.append(arrival)
        if len(line) == 1:
            self._start(tenant)

    def parts(self, request_id: str) -> list[str]:
        """Return which parts of a sequence are here."""
        return [
            arrival.submit.part
            for line in self._lines.values()
            for arrival in line
            if arrival.submit.request_id == request_id and not arrival.is_dropped
        ]

    def drop(self, request_id: str) -> None:
        """Forget a sequence. What a thread does for it goes on, and comes to nothing."""
        for line in self._lines.values():
            for arrival in line:
                if arrival.submit.request_id == request_id:
                    arrival.is_dropped = True

    def take(self, wait_s: float) -> list[Ready]:
        """Return what is ready; wait for the first, for so long at most."""
        if not self._lines:
            return []
        wait(self._at_work.values(), timeout=wait_s, return_when=FIRST_COMPLETED)
        ready = []
        for tenant, future in list(self._at_work.items()):
            if future.done():
                del self._at_work[tenant]
                arrival = self._lines[tenant].popleft()
                if not arrival.is_dropped:
                    ready.append(_outcome(arrival, future))
                self._go_on(tenant)
        return ready

    def close(self) -> None:
        self._lines.clear()
        self._at_work.clear()
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)

    def _go_on(self, tenant: str) -> None:
        line = self._lines[tenant]
        while line and line[0].is_dropped:
            line.popleft()
        if line:
            self._start(tenant)
        else:
            del self._lines[tenant]

    def _start(self, tenant: str) -> None:
        if self._threads is None:
            self._threads = ThreadPoolExecutor(self._num_threads, thread_name_prefix="grammar")
        arrival = self._lines[tenant][0]
        self._at_work[tenant] = self._threads.submit(arrival.work, arrival.submit)


def _outcome(arrival: Arrival, future: Future[Guide]) -> Ready:
    error = future.exception()
    if error is not None:
        problem = f"the answer's grammar ({type(error).__name__}): {str(error)[:200]}"
        return Ready(arrival, None, problem)
    guide = future.result()
    return Ready(arrival, guide, guide.problem or "")
