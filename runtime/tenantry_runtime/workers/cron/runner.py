"""Runs what is due, minute by minute, sharing the work with all other edges of the store.

A trigger's time is claimed in the store by one edge, right before it runs there, and so runs at most once.
What an edge was too busy or too slow to begin within `MAX_LATE_S`, or what fell due while no edge ran, is
left out. A time that several minutes of standing still have passed is looked at up to `MAX_MISSED` minutes
back.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Awaitable, Callable, Sequence
from functools import lru_cache
from typing import Protocol

import anyio
from opentelemetry.trace import Tracer

from tenantry_runtime.core import TenantId
from tenantry_runtime.errors import InvalidInput, StoreUnavailable, TenantryError
from tenantry_runtime.telemetry.worker_span import TIMER, WorkerSpan
from tenantry_runtime.workers.interface import Engine, Invocation, WorkerFailed, outcome_of
from tenantry_runtime.workers.spec import WorkerVersion

from .expression import CronExpression, parse_cron
from .waiting import Due, Waiting

MAX_MISSED = 5
MAX_LATE_S = 300.0
NUM_RUNNING = 128
"""Triggers that one edge runs at one time; more wait, and other edges may take them."""
FORGET_S = 86_400.0
FORGET_EVERY_MINUTES = 60

_log = logging.getLogger(__name__)


class Schedule(Protocol):
    """A cron trigger of a worker that can run."""

    @property
    def account(self) -> TenantId: ...

    @property
    def worker(self) -> str: ...

    @property
    def cron(self) -> str: ...


class Schedules(Protocol):
    """Knows all triggers: `tenancy.workers.WorkerStore`."""

    async def schedules(self) -> Sequence[Schedule]:
        """Return them; raises `StoreUnavailable`."""
        ...


class Claims(Protocol):
    """Says who runs what: `StoredClaims`."""

    async def claim(self, account: TenantId, worker: str, cron: str, due_ms: int) -> bool: ...

    async def forget(self, older_than_ms: int) -> None: ...


Resolve = Callable[[TenantId, str], Awaitable[WorkerVersion | None]]
"""From account and worker to the version that serves now."""


class Clock(Protocol):
    """Unix time, and waiting for it."""

    def now(self) -> float: ...

    async def sleep_until(self, unix_s: float) -> None: ...


class SystemClock:
    """The machine's."""

    def now(self) -> float:
        return time.time()

    async def sleep_until(self, unix_s: float) -> None:
        await anyio.sleep(max(0.0, unix_s - time.time()))


class CronRunner:
    """One edge's part in running triggers."""

    def __init__(
        self,
        *,
        schedules: Schedules,
        claims: Claims,
        engine: Engine,
        resolve: Resolve,
        clock: Clock | None = None,
        tracer: Tracer | None = None,
    ) -> None:
        """`tracer` records each run as a trace of its own; None: nobody does."""
        self._schedules = schedules
        self._claims = claims
        self._engine = engine
        self._resolve = resolve
        self._clock = clock or SystemClock()
        self._tracer = tracer
        self._is_closing = False

    def close(self) -> None:
        """Take on nothing more; what runs goes on as long as `run` does."""
        self._is_closing = True

    async def run(self) -> None:
        """Run what falls due from this minute on, until canceled."""
        waiting = Waiting()
        async with anyio.create_task_group() as tasks:
            for _ in range(NUM_RUNNING):
                tasks.start_soon(self._work, waiting)
            next_minute = int(self._clock.now() // 60)
            while True:
                await self._clock.sleep_until(next_minute * 60)
                now_minute = max(next_minute, int(self._clock.now() // 60))
                first = max(next_minute, now_minute - MAX_MISSED + 1)
                if first > next_minute:
                    _log.warning("%d minutes' cron triggers are left out", first - next_minute)
                await self._put(range(first, now_minute + 1), waiting)
                next_minute = now_minute + 1

    async def _put(self, minutes: range, waiting: Waiting) -> None:
        try:
            if minutes[-1] % FORGET_EVERY_MINUTES == 0:
                await self._claims.forget(int((self._clock.now() - FORGET_S) * 1000))
            schedules = await self._schedules.schedules()
        except StoreUnavailable as error:
            _log.warning("cron triggers of %d minutes do not run: %s", len(minutes), error)
            return
        num_left_out: dict[TenantId, int] = {}
        for minute in minutes:
            for schedule in schedules:
                expression = _parsed(schedule.cron)
                if expression is None or not expression.is_due(minute):
                    continue
                due = Due(schedule.account, schedule.worker, schedule.cron, minute * 60_000)
                if not waiting.put(due):
                    num_left_out[due.account] = num_left_out.get(due.account, 0) + 1
        for account, number in num_left_out.items():
            _log.error(
                "%d cron triggers of account %s are left out: too many wait", number, account
            )

    async def _work(self, waiting: Waiting) -> None:
        while True:
            due = await waiting.take()
            try:
                if not self._is_closing:
                    await self._try_one(due)
            finally:
                waiting.done(due)

    async def _try_one(self, due: Due) -> None:
        late_s = self._clock.now() - due.due_ms / 1000
        if late_s > MAX_LATE_S:
            _log.warning("left out, as it is %.0f s late: %s", late_s, due)
            return
        try:
            await self._run_one(due)
        except TenantryError as error:
            # the store is away, or the account was suspended meanwhile
            _log.warning("%s does not run: %s", due, error)
        except WorkerFailed as failed:
            # its owner has it in the worker's own log
            _log.info("%s ended with %s", due, failed.outcome)
        except Exception:
            # the outermost place: one trigger's fault ends no others
            _log.exception("%s failed", due)

    async def _run_one(self, due: Due) -> None:
        version = await self._resolve(due.account, due.worker)
        if version is None or not await self._claims.claim(*due):
            return
        id = uuid.uuid4()
        if self._tracer is None:
            await self._engine.scheduled(version, due.cron, due.due_ms, _unrecorded(id))
            return
        span = WorkerSpan(
            self._tracer,
            headers={},
            method="",
            worker=version.worker,
            version_id=version.version_id,
            tenant=version.tenant,
            request_id=str(id),
            trigger=TIMER,
        )
        invocation = Invocation(
            id=str(id), traceparent=span.traceparent, tracestate=span.tracestate
        )
        outcome = ""
        try:
            await self._engine.scheduled(version, due.cron, due.due_ms, invocation)
        except BaseException as error:
            outcome = outcome_of(error)
            raise
        finally:
            span.end(status=None, outcome=outcome)


def _unrecorded(id: uuid.UUID) -> Invocation:
    """Return an invocation whose trace nobody records, but whose workers can hand it on."""
    return Invocation(id=str(id), traceparent=f"00-{id.hex}-{id.hex[16:]}-01")


@lru_cache(maxsize=4096)
def _parsed(cron: str) -> CronExpression | None:
    try:
        return parse_cron(cron)
    except InvalidInput as error:
        _log.error("a cron trigger in the store is not run: %s", error)
        return None
