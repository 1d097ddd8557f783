"""What workers did, as metrics of the edge that ran them: invocations as they end, isolates when asked."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

from opentelemetry.metrics import Meter, Observation

from tenantry_runtime.workers.interface import LogSink, Record

from .instruments import counter, histogram, observe
from .tenants import TopTenants


class WorkerMeter:
    """A `LogSink` that counts, and hands records on to another."""

    def __init__(self, meter: Meter, sink: LogSink, *, tenants: TopTenants | None = None) -> None:
        self._sink = sink
        self._tenants = tenants or TopTenants()
        self._invocations = counter(meter, "tenantry.worker.invocations")
        self._duration = histogram(meter, "tenantry.worker.duration")
        self._cold_start = histogram(meter, "tenantry.worker.cold_start")
        self._cpu = counter(meter, "tenantry.worker.cpu")

    def record(self, record: Record) -> None:
        tenant = self._tenants.label(record.version.tenant, 1)
        outcome = {"kind": record.event.kind, "outcome": record.outcome.value}
        self._invocations.add(1, {**outcome, "tenant": tenant})
        self._cpu.add(record.cpu_ms / 1000, {"tenant": tenant})
        self._duration.record(record.wall_ms / 1000, outcome)
        if record.cold_start_ms is not None:
            self._cold_start.record(record.cold_start_ms / 1000)
        self._sink.record(record)


class Counts(Protocol):
    """`workers.engine.EngineStatistics`."""

    @property
    def num_isolates(self) -> int: ...
    @property
    def num_blank(self) -> int: ...
    @property
    def num_idle(self) -> int: ...
    @property
    def idle_memory_bytes(self) -> int: ...
    @property
    def num_started(self) -> int: ...
    @property
    def num_ended(self) -> Mapping[str, int]: ...


@dataclass
class IsolateMetrics:
    """Observes an engine's isolates whenever somebody collects."""

    statistics: Callable[[], Counts]

    def register(self, meter: Meter) -> None:
        observe(meter, "tenantry.isolates", self._isolates)
        observe(meter, "tenantry.isolates.idle_memory", self._idle_memory)
        observe(meter, "tenantry.isolates.started", self._started)
        observe(meter, "tenantry.isolates.ended", self._ended)

    def _isolates(self) -> Iterable[Observation]:
        now = self.statistics()
        num_others = now.num_isolates - now.num_blank - now.num_idle
        states = {"blank": now.num_blank, "idle": now.num_idle, "busy": num_others}
        return [Observation(number, {"state": state}) for state, number in states.items()]

    def _idle_memory(self) -> Iterable[Observation]:
        return [Observation(self.statistics().idle_memory_bytes)]

    def _started(self) -> Iterable[Observation]:
        return [Observation(self.statistics().num_started)]

    def _ended(self) -> Iterable[Observation]:
        ended = self.statistics().num_ended
        return [Observation(number, {"reason": reason}) for reason, number in ended.items()]
