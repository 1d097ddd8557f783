"""Which isolates have which versions: they start, are shared by invocations, and end."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable

import anyio
from anyio.abc import TaskGroup

from tenantry_runtime.workers.interface import LogSink, Record, WorkerFailed
from tenantry_runtime.workers.outcome import Outcome
from tenantry_runtime.workers.sandbox import SpawnFailed
from tenantry_runtime.workers.spec import WorkerVersion

from .backoff import LoadBackoff, again
from .config import EngineConfig
from .lives import Lives
from .loading import Loader, NotLoaded
from .reaping import IdleIsolates
from .resident import Resident
from .roster import Roster
from .watchdog import Watchdog

RETIRED = "retired"
"""Why an isolate ended that nobody needed any more."""

_log = logging.getLogger(__name__)


class House:
    """A version, and the isolates that have it."""

    __slots__ = ("backoff", "roster", "version")

    def __init__(self, version: WorkerVersion, config: EngineConfig) -> None:
        is_single_use = version.isolation == "request"
        concurrency = version.limits.concurrency
        self.version = version
        self.backoff = LoadBackoff(first_s=config.backoff_s, most_s=config.max_backoff_s)
        self.roster: Roster[Resident] = Roster(
            places_each=1 if is_single_use else concurrency,
            max_hosts=concurrency if is_single_use else config.max_isolates_each,
            queue_length=config.queue_length,
            is_single_use=is_single_use,
        )


class Housing:
    """All versions that have isolates, or wait for some. A `Landlord`."""

    def __init__(
        self,
        *,
        lives: Lives,
        loader: Loader,
        watchdog: Watchdog,
        sink: LogSink,
        tasks: TaskGroup,
        config: EngineConfig,
        now: Callable[[], float],
    ) -> None:
        self._lives = lives
        self._loader = loader
        self._watchdog = watchdog
        self._sink = sink
        self._tasks = tasks
        self._config = config
        self._now = now
        self._houses: dict[str, House] = {}
        """By version id."""
        self._starved: dict[House, None] = {}
        """Those that would start an isolate if there were room for one."""
        self._num_starting = 0
        self.idle: IdleIsolates[Resident] = IdleIsolates(
            budget_bytes=config.idle_memory_bytes, idle_s=config.idle_s
        )
        self.num_started = 0
        """Isolates that a version was loaded into, or should have been."""
        self.num_ended: Counter[str] = Counter()
        """Those of them that have ended, by outcome, or `RETIRED`."""
        self._is_closed = False
        self._emptied = anyio.Event()

    def place(self, version: WorkerVersion) -> Resident | None:
        """Take a place in an isolate that has the version, if one has room."""
        house = self._houses.get(version.version_id)
        return None if house is None or self._is_closed else house.roster.place()

    async def wait_for_place(self, version: WorkerVersion) -> Resident:
        """Take a place when there is one. Raises `WorkerFailed`."""
        if self._is_closed:
            raise WorkerFailed(Outcome.OVERLOADED, "the runtime ends", retry_after_s=1)
        house = self._houses.get(version.version_id)
        if house is None:
            house = self._houses[version.version_id] = House(version, self._config)
        has_come = anyio.Event()
        waiter = house.roster.wait(has_come.set)
        self._fill(house)
        patience_s = self._config.queue_s + (0 if house.roster.hosts else self._config.load_s)
        try:
            with anyio.move_on_after(patience_s):
                await has_come.wait()
        except BaseException:
            house.roster.give_up(waiter)
            raise
        if waiter.host is not None:
            return waiter.host
        if waiter.failure is not None:
            raise again(waiter.failure)
        house.roster.give_up(waiter)
        problem = f"no isolate had room within {patience_s:g} s"
        raise WorkerFailed(Outcome.OVERLOADED, problem, retry_after_s=1)

    def retire(self, version_id: str) -> None:
        """Let a version's isolates end when nothing runs in them any more."""
        house = self._houses.get(version_id)
        for resident in tuple(house.roster.hosts) if house is not None else ():
            resident.retire()

    def pids(self) -> list[int]:
        """Return the processes of isolates that have a version."""
        houses = self._houses.values()
        return [host.confined.process.pid for house in houses for host in house.roster.hosts]

    async def drain(self) -> None:
        """Take no more invocations; return when none is left. Unbounded: the caller's scope bounds it."""
        self._is_closed = True
        for house in tuple(self._houses.values()):
            house.roster.refuse_all(
                WorkerFailed(Outcome.OVERLOADED, "the runtime ends", retry_after_s=1)
            )
            self.retire(house.version.version_id)
        while any(
            house.roster.hosts or house.roster.num_starting for house in self._houses.values()
        ):
            await self._emptied.wait()
            self._emptied = anyio.Event()

    def tidy(self, now_s: float) -> None:
        """End idle isolates that have to, and forget versions that have none."""
        for resident in self.idle.due(now_s):
            self._end_idle(resident)
        for version_id, house in tuple(self._houses.items()):
            if house.roster.is_empty and house.backoff.is_over(now_s):
                del self._houses[version_id]
        self._feed()

    def end_restless(self, resident: Resident) -> None:
        """End an isolate that works while nobody has asked for anything."""
        if resident in self.idle:
            _log.warning("an isolate of %s used CPU time while idle", resident.version.version_id)
            self._end_idle(resident)

    def became_busy(self, resident: Resident) -> None:
        self.idle.discard(resident)
        self._watchdog.watch(resident)

    def became_idle(self, resident: Resident) -> None:
        self._watchdog.leave(resident)
        if not resident.is_leaving:
            self.idle.add(resident, self._now())
            self._feed()

    def became_saturated(self, resident: Resident) -> None:
        self._fill(self._houses[resident.version.version_id])

    def was_held_up(self, resident: Resident) -> None:
        # of one that has ended somebody may still read a response, when its version is forgotten
        house = self._houses.get(resident.version.version_id)
        if house is not None:
            house.roster.grant()
            self._fill(house)

    def freed(self, resident: Resident) -> None:
        house = self._houses[resident.version.version_id]
        house.roster.give_back(resident)
        if resident.is_leaving:
            # replaced at once
            self._fill(house)

    def concluded(self, record: Record) -> None:
        self._sink.record(record)

    def ended(self, resident: Resident) -> None:
        self._watchdog.leave(resident)
        self.idle.discard(resident)
        house = self._houses.get(resident.version.version_id)
        if house is not None and resident in house.roster.hosts:
            self._count_end(resident)
            house.roster.remove(resident)
            self._fill(house)
        self._emptied.set()
        self._feed()

    def _count_end(self, resident: Resident) -> None:
        verdict = resident.verdict
        reason = RETIRED if resident.is_retired or verdict is None else verdict.outcome.value
        self.num_ended[reason] += 1

    def _fill(self, house: House) -> None:
        """Start what a version needs, as far as there is room and its loads do not fail."""
        roster = house.roster
        num_wanted = roster.num_wanted()
        if house.backoff.is_trying:
            num_wanted = min(num_wanted, 1 - roster.num_starting)
        for _ in range(num_wanted):
            try:
                house.backoff.check(self._now())
            except WorkerFailed as failure:
                roster.refuse(failure)
                return
            if not self._make_room():
                self._starved[house] = None
                return
            roster.starting()
            self._num_starting += 1
            self._tasks.start_soon(self._start, house)

    def _make_room(self) -> bool:
        if self._lives.num_blank > self._num_starting:
            return True
        if self._lives.num_isolates + self._num_starting < self._config.max_isolates:
            return True
        oldest = self.idle.oldest()
        if oldest is None:
            return False
        self._end_idle(oldest)
        return True

    def _end_idle(self, resident: Resident) -> None:
        self.idle.discard(resident)
        resident.retire()

    def _feed(self) -> None:
        starved, self._starved = self._starved, {}
        for house in starved:
            self._fill(house)

    async def _start(self, house: House) -> None:
        try:
            await self._load(house)
        finally:
            self._num_starting -= 1
        self._emptied.set()
        if not self._is_closed:
            self._fill(house)

    async def _load(self, house: House) -> None:
        roster = house.roster
        config = self._config
        try:
            resident, _ = await self._loader.load(
                house.version, self, cpu_ms=config.load_cpu_ms, wall_s=config.load_s
            )
        except NotLoaded as error:
            self.num_started += 1
            self.num_ended[error.failure.outcome.value] += 1
            roster.not_started(house.backoff.fail(self._now(), error.failure))
        except SpawnFailed as error:
            _log.error("no isolate for version %s: %s", house.version.version_id, error)
            roster.not_started(WorkerFailed(Outcome.INTERNAL, "no isolate could be made"))
        # of the store or of bindings: the invocation's misfortune, not the engine's end
        except Exception:
            _log.exception("version %s could not be read", house.version.version_id)
            roster.not_started(WorkerFailed(Outcome.INTERNAL, "the worker could not be read"))
        else:
            self.num_started += 1
            if resident.verdict is not None:
                self._count_end(resident)
                roster.not_started(WorkerFailed(resident.verdict.outcome, resident.verdict.message))
                return
            house.backoff.succeed()
            self.idle.add(resident, self._now())
            roster.started(resident)
            if self._is_closed:
                resident.retire()
