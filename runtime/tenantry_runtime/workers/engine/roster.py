"""The isolates of one version: which one takes an invocation, who waits, when another starts. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

from tenantry_runtime.workers.interface import WorkerFailed
from tenantry_runtime.workers.outcome import Outcome


class Host(Protocol):
    """An isolate that has its version, as a roster sees it."""

    num_taken: int
    """Places that invocations have, or are about to use; the roster's."""
    is_leaving: bool
    """Whether it takes no more."""
    is_saturated: bool
    """Whether it has no CPU left for more."""
    is_held_up: bool
    """Whether it takes none while it does not read what it is sent."""


HostT = TypeVar("HostT", bound=Host)


class Waiter(Generic[HostT]):
    """An invocation without a place. `notify` is called once, when it has one or none will come."""

    __slots__ = ("failure", "host", "notify")

    def __init__(self, notify: Callable[[], object]) -> None:
        self.notify = notify
        self.host: HostT | None = None
        """Where a place has been taken for it."""
        self.failure: WorkerFailed | None = None


class Roster(Generic[HostT]):
    """Isolates, those that start, and invocations that wait, in their order."""

    def __init__(
        self, *, places_each: int, max_hosts: int, queue_length: int, is_single_use: bool = False
    ) -> None:
        self._is_single_use = is_single_use
        self._places_each = places_each
        self._max_hosts = max_hosts
        self._queue_length = queue_length
        self._waiters: deque[Waiter[HostT]] = deque()
        self.hosts: list[HostT] = []
        self.num_starting = 0

    @property
    def num_waiting(self) -> int:
        return len(self._waiters)

    @property
    def is_empty(self) -> bool:
        return not (self.hosts or self.num_starting or self._waiters)

    def place(self) -> HostT | None:
        """Take a place in the isolate that has most of them, unless there is none, or others wait."""
        return None if self._waiters else self._take()

    def wait(self, notify: Callable[[], object]) -> Waiter[HostT]:
        """Wait for a place. Raises `WorkerFailed` where too many do."""
        if len(self._waiters) >= self._queue_length:
            problem = f"{len(self._waiters)} invocations of this worker wait already"
            raise WorkerFailed(Outcome.OVERLOADED, problem, retry_after_s=1)
        waiter: Waiter[HostT] = Waiter(notify)
        self._waiters.append(waiter)
        return waiter

    def give_up(self, waiter: Waiter[HostT]) -> None:
        """Wait no more; a place that has been taken meanwhile goes to the next."""
        if waiter.host is not None:
            self.give_back(waiter.host)
        elif waiter.failure is None:
            self._waiters.remove(waiter)

    def give_back(self, host: HostT) -> None:
        """Free a place."""
        host.num_taken -= 1
        self.grant()

    def grant(self) -> None:
        """Give those that wait what places there are, after an isolate reads again."""
        while self._waiters and (host := self._take()) is not None:
            waiter = self._waiters.popleft()
            waiter.host = host
            waiter.notify()

    def num_wanted(self) -> int:
        """Return how many isolates should start now, besides those that do.

        Enough for those that wait, and one more where all that run are short of CPU.
        """
        wanted = -(-len(self._waiters) // self._places_each)
        staying = [host for host in self.hosts if not host.is_leaving]
        if staying and not wanted and all(host.is_saturated for host in staying):
            wanted = 1
        # one that breaks a limit is replaced before it has ended; one that leaves after a single use is none
        counted = self.hosts if self._is_single_use else staying
        room = self._max_hosts - len(counted) - self.num_starting
        return max(min(wanted - self.num_starting, room), 0)

    def starting(self) -> None:
        """Count an isolate that begins to start: `started` or `not_started` follows."""
        self.num_starting += 1

    def started(self, host: HostT) -> None:
        """Take an isolate that has started."""
        self.num_starting -= 1
        self.hosts.append(host)
        self.grant()

    def not_started(self, failure: WorkerFailed) -> None:
        """Hear that one has not."""
        self.num_starting -= 1
        self.refuse(failure)

    def refuse(self, failure: WorkerFailed) -> None:
        """Tell those that wait that no isolate starts, unless one is there that may still serve them."""
        if not self.num_starting and all(host.is_leaving for host in self.hosts):
            self.refuse_all(failure)

    def refuse_all(self, failure: WorkerFailed) -> None:
        """Tell all those that wait that they wait for nothing."""
        waiters, self._waiters = self._waiters, deque()
        for waiter in waiters:
            waiter.failure = failure
            waiter.notify()

    def remove(self, host: HostT) -> None:
        """Forget an isolate that has ended."""
        self.hosts.remove(host)

    def _take(self) -> HostT | None:
        best = None
        least = self._places_each
        for host in self.hosts:
            if host.num_taken < least and not (host.is_leaving or host.is_held_up):
                best, least = host, host.num_taken
        if best is not None:
            best.num_taken += 1
        return best
