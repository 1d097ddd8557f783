"""Quota storms: one tenant that is refused for its limits again and again.

`STORM_REFUSALS` refusals of one tenant by one edge within `WINDOW_S` seconds are a storm. It is one
incident, however long it lasts, which counts every refusal from the first of those on, and ends when
the tenant has not been refused for `WINDOW_S`. Refusals by the tenant's own limits count, codes 3021
and 3036; not those of a full pool, which are nobody's doing.
"""

from __future__ import annotations

import time
import uuid
from collections import Counter, OrderedDict, deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace

import anyio

from tenantry_runtime.background import background_tasks
from tenantry_runtime.core import RequestId, TenantId
from tenantry_runtime.tenancy import IncidentKind, IncidentRecord
from tenantry_runtime.tenancy.incidents import MAX_NAMED, Fact

from .recorder import IncidentRecorder

STORM_REFUSALS = 100
"""A client that honors `Retry-After` is refused some times a minute; a hundred times, one that does not."""

WINDOW_S = 60.0

MAX_TENANTS = 256
"""That are watched at one time, in some MB; then the one that was refused longest ago is forgotten."""

TELL_EVERY_S = 10.0
"""So often it is told how storms go on."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """One request that a tenant's limit refused."""

    time_ms: int
    limit: str
    """A field of `tenancy.plan.Quota` or `Plan`."""
    request_id: RequestId
    trace_id: str


@dataclass(slots=True, eq=False)
class _Storm:
    record: IncidentRecord
    limits: Counter[str]
    is_told: bool = True

    def add(self, refusal: Refusal) -> None:
        self.limits[refusal.limit] += 1
        self.record = replace(self.record, seen_ms=refusal.time_ms)
        self.is_told = False

    def told(self, *, ended_ms: int | None = None) -> IncidentRecord:
        num_refusals = self.limits.total()
        by_limit = ", ".join(f"{limit} {number}" for limit, number in self.limits.most_common())
        facts: dict[str, Fact] = {"refusals": num_refusals, **self.limits}
        self.is_told = True
        self.record = replace(
            self.record,
            ended_ms=ended_ms,
            detail=f"{num_refusals} requests refused: {by_limit}",
            facts=facts,
        )
        return self.record


@dataclass(slots=True, eq=False)
class _Watched:
    """One tenant: its latest refusals, or the storm that it is in."""

    latest: deque[Refusal]
    last_ms: int = 0
    storm: _Storm | None = field(default=None)


class QuotaStorms:
    """Hears of every refusal; tells the recorder of storms."""

    def __init__(
        self,
        recorder: IncidentRecorder,
        *,
        edge: str,
        num_refusals: int = STORM_REFUSALS,
        window_s: float = WINDOW_S,
        max_tenants: int = MAX_TENANTS,
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        self._recorder = recorder
        self._edge = edge
        self._num_refusals = num_refusals
        self._window_ms = round(window_s * 1000)
        self._max_tenants = max_tenants
        self._now_ms = now_ms
        self._tenants: OrderedDict[TenantId, _Watched] = OrderedDict()
        """The one that was refused last at the end."""

    @property
    def num_watched(self) -> int:
        return len(self._tenants)

    def refused(
        self, tenant: TenantId, *, limit: str, request_id: RequestId, trace_id: str
    ) -> None:
        """Take that a request was refused for a limit of its tenant."""
        refusal = Refusal(self._now_ms(), limit, request_id, trace_id)
        self._end_quiet(refusal.time_ms)
        watched = self._tenants.get(tenant)
        if watched is None:
            watched = self._tenants[tenant] = _Watched(deque(maxlen=self._num_refusals))
            if len(self._tenants) > self._max_tenants:
                _, forgotten = self._tenants.popitem(last=False)
                self._end(forgotten)
        self._tenants.move_to_end(tenant)
        watched.last_ms = refusal.time_ms
        if watched.storm is not None:
            watched.storm.add(refusal)
            return
        watched.latest.append(refusal)
        is_full = len(watched.latest) == self._num_refusals
        if is_full and refusal.time_ms - watched.latest[0].time_ms < self._window_ms:
            watched.storm = self._begin(tenant, watched.latest)
            watched.latest.clear()

    def look(self) -> None:
        """End storms that are over, and tell how the others go on."""
        self._end_quiet(self._now_ms())
        for watched in self._tenants.values():
            if watched.storm is not None and not watched.storm.is_told:
                self._recorder.update(watched.storm.told())

    async def run(self) -> None:
        """Look now and then, until canceled."""
        while True:
            await anyio.sleep(TELL_EVERY_S)
            self.look()

    def _begin(self, tenant: TenantId, latest: deque[Refusal]) -> _Storm:
        first, last = latest[0], latest[-1]
        traces = dict.fromkeys(each.trace_id for each in latest if each.trace_id)
        record = IncidentRecord(
            id=uuid.uuid4().hex,
            kind=IncidentKind.QUOTA_STORM,
            began_ms=first.time_ms,
            seen_ms=last.time_ms,
            edge=self._edge,
            tenants=(tenant,),
            request_ids=tuple(each.request_id for each in latest)[:MAX_NAMED],
            trace_ids=tuple(traces)[:MAX_NAMED],
        )
        storm = _Storm(record, Counter(each.limit for each in latest))
        self._recorder.begin(storm.told())
        return storm

    def _end_quiet(self, now_ms: int) -> None:
        """Forget who has not been refused for a whole window."""
        while self._tenants:
            tenant = next(iter(self._tenants))
            if now_ms - self._tenants[tenant].last_ms < self._window_ms:
                break
            self._end(self._tenants.pop(tenant))

    def _end(self, watched: _Watched) -> None:
        if watched.storm is not None:
            self._recorder.update(watched.storm.told(ended_ms=watched.last_ms))


@asynccontextmanager
async def storm_watch(recorder: IncidentRecorder, *, edge: str) -> AsyncIterator[QuotaStorms]:
    """Watch for storms for the duration of the context."""
    storms = QuotaStorms(recorder, edge=edge)
    async with background_tasks() as tasks:
        tasks.start_soon(storms.run)
        try:
            yield storms
        finally:
            # how far those had come that last beyond the edge
            storms.look()
