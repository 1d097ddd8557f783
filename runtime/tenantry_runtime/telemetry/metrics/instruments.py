"""Instruments by their names in the catalog: a name that is not there is an error at the start."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from opentelemetry.metrics import CallbackOptions, Counter, Histogram, Meter, Observation

from .catalog import METRICS, Metric

Observe = Callable[[], Iterable[Observation]]


def counter(meter: Meter, name: str) -> Counter:
    metric = _metric(name, "counter")
    return meter.create_counter(name, metric.unit, metric.description)


def histogram(meter: Meter, name: str) -> Histogram:
    metric = _metric(name, "histogram")
    return meter.create_histogram(
        name,
        metric.unit,
        metric.description,
        explicit_bucket_boundaries_advisory=list(metric.buckets),
    )


def observe(meter: Meter, name: str, observe: Observe) -> None:
    """Ask for a metric's values whenever somebody collects them."""
    metric = METRICS[name]
    callbacks: Sequence[Callable[[CallbackOptions], Iterable[Observation]]] = [
        lambda _options: observe()
    ]
    match metric.kind:
        case "counter":
            meter.create_observable_counter(name, callbacks, metric.unit, metric.description)
        case "gauge":
            meter.create_observable_gauge(name, callbacks, metric.unit, metric.description)
        case "histogram":
            raise ValueError(f"{name} is recorded, not observed")


def _metric(name: str, kind: str) -> Metric:
    metric = METRICS[name]
    if metric.kind != kind:
        raise ValueError(f"{name} is a {metric.kind}")
    return metric
