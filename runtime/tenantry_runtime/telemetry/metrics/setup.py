"""Where metrics go: to a collector by OTLP, to whoever scrapes this edge, to both, or nowhere."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.prometheus import PrometheusMetricReader
from opentelemetry.metrics import Meter, NoOpMeter
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import MetricReader, PeriodicExportingMetricReader
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

from tenantry_runtime.telemetry.endpoints import exporter_timeout_s, is_exporting, resource

METER = "tenantry"


@dataclass(frozen=True, slots=True)
class Metering:
    """What records, and what there is to read."""

    meter: Meter
    _registry: CollectorRegistry | None = None

    @property
    def is_scraped(self) -> bool:
        return self._registry is not None

    content_type = CONTENT_TYPE_LATEST

    def exposition(self) -> bytes:
        """Return all metrics in Prometheus' text format. Blocks for a millisecond or so."""
        assert self._registry is not None, "nobody scrapes this edge"
        return bytes(generate_latest(self._registry))


@contextmanager
def metering(
    environ: Mapping[str, str], *, is_scraped: bool, readers: Sequence[MetricReader] = ()
) -> Iterator[Metering]:
    """Make a meter; leaving the block sends what is still held.

    Metrics go to a collector by OTLP if `OTEL_EXPORTER_OTLP_ENDPOINT`, or the same for metrics alone,
    is set. A collector that does not answer costs a thread of its own some time, and nobody else.
    """
    used = [*readers]
    if is_exporting(environ, "metrics"):
        exporter = OTLPMetricExporter(timeout=exporter_timeout_s(environ, "metrics"))
        used.append(PeriodicExportingMetricReader(exporter))
    registry: CollectorRegistry | None = None
    if is_scraped:
        # of this block alone, not the library's own for the whole process
        registry = CollectorRegistry(auto_describe=False)
        reader = PrometheusMetricReader(
            disable_target_info=True, scope_info_enabled=False, registry=registry
        )
        used.append(reader)
    if not used:
        yield Metering(NoOpMeter(METER))
        return
    provider = MeterProvider(used, resource=resource(), shutdown_on_exit=False)
    try:
        yield Metering(provider.get_meter(METER), registry)
    finally:
        provider.shutdown()
