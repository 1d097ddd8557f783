"""Invocations are counted as they end, and isolates when somebody looks."""

from __future__ import annotations

from support.worker_routes import a_record
from tenantry_runtime.telemetry.metrics import IsolateMetrics, WorkerMeter, metering
from tenantry_runtime.workers.engine.engine import EngineStatistics
from tenantry_runtime.workers.interface import Event, Record
from tenantry_runtime.workers.outcome import Outcome


class Kept:
    """A `LogSink`."""

    def __init__(self) -> None:
        self.records: list[Record] = []

    def record(self, record: Record) -> None:
        self.records.append(record)


def test_an_invocation_is_counted_with_its_times_and_handed_on() -> None:
    kept = Kept()
    cold = a_record(wall_ms=30.0, cpu_ms=500.0, cold_start_ms=4.0)
    failed = a_record(
        event=Event(kind="scheduled", cron="* * * * *"),
        wall_ms=2000.0,
        cpu_ms=1500.0,
        outcome=Outcome.EXCEEDED_CPU,
    )
    with metering({}, is_scraped=True) as meters:
        meter = WorkerMeter(meters.meter, kept)
        meter.record(cold)
        meter.record(failed)
        lines = meters.exposition().decode().splitlines()
    assert kept.records == [cold, failed]
    tenant = cold.version.tenant
    assert (
        f'tenantry_worker_invocations_total{{kind="fetch",outcome="ok",tenant="{tenant}"}} 1.0'
        in lines
    )
    assert (
        f'tenantry_worker_invocations_total{{kind="scheduled",outcome="exceededCpu",tenant="{tenant}"}} 1.0'
        in lines
    )
    assert f'tenantry_worker_cpu_seconds_total{{tenant="{tenant}"}} 2.0' in lines
    assert 'tenantry_worker_duration_seconds_sum{kind="fetch",outcome="ok"} 0.03' in lines
    # of the one that waited for an isolate alone
    assert "tenantry_worker_cold_start_seconds_count 1.0" in lines
    assert 'tenantry_worker_cold_start_seconds_bucket{le="0.005"} 1.0' in lines


def test_isolates_are_told_by_state_and_by_what_ended_them() -> None:
    statistics = EngineStatistics(
        num_isolates=9,
        num_blank=4,
        num_idle=3,
        idle_memory_bytes=1 << 20,
        num_started=12,
        num_ended={"retired": 5, "exceededMemory": 1},
    )
    with metering({}, is_scraped=True) as meters:
        IsolateMetrics(lambda: statistics).register(meters.meter)
        lines = meters.exposition().decode().splitlines()
    for line in (
        'tenantry_isolates{state="blank"} 4.0',
        'tenantry_isolates{state="idle"} 3.0',
        'tenantry_isolates{state="busy"} 2.0',
        "tenantry_isolates_idle_memory_bytes 1.048576e+06",
        "tenantry_isolates_started_total 12.0",
        'tenantry_isolates_ended_total{reason="retired"} 5.0',
        'tenantry_isolates_ended_total{reason="exceededMemory"} 1.0',
    ):
        assert line in lines
