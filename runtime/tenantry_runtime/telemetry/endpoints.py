"""What the standard environment variables say of where telemetry goes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.util.types import AttributeValue

from tenantry_runtime.errors import ConfigurationError

Signal = Literal["traces", "metrics", "logs"]

SERVICE_NAME, NODE_SERVICE_NAME = "tenantry-edge", "tenantry-node"
PROTOCOL = "http/protobuf"
"""The one that the exporters of this package's dependencies speak."""
TIMEOUT_S = 3.0
"""Unless a variable says otherwise. It bounds how long an unreachable collector delays the end."""


def resource() -> Resource:
    """Return what all signals of an edge are said to come from; the variables beat its own name."""
    return _resource({"service.name": SERVICE_NAME})


def node_resource(name: str) -> Resource:
    """Return the same of a node, which has a name; an edge's instance is one that the library makes up."""
    return _resource({"service.name": NODE_SERVICE_NAME, "service.instance.id": name})


def is_disabled(environ: Mapping[str, str]) -> bool:
    """Say whether nothing of any signal is wanted."""
    return environ.get("OTEL_SDK_DISABLED", "").lower() == "true"


def is_exporting(environ: Mapping[str, str], signal: Signal) -> bool:
    """Say whether a collector is named; raise `ConfigurationError` for a protocol that is not spoken."""
    if is_disabled(environ):
        return False
    if environ.get(f"OTEL_{signal.upper()}_EXPORTER", "otlp") == "none":
        return False
    if not any(environ.get(name) for name in _variables(signal, "ENDPOINT")):
        return False
    for name in _variables(signal, "PROTOCOL"):
        if environ.get(name, PROTOCOL) != PROTOCOL:
            raise ConfigurationError(f"{name} is {environ[name]!r}; only {PROTOCOL} is supported")
    return True


def exporter_timeout_s(environ: Mapping[str, str], signal: Signal) -> float | None:
    """Return the exporter's timeout; None where a variable has it, which the exporter reads itself."""
    has_own = any(environ.get(name) for name in _variables(signal, "TIMEOUT"))
    return None if has_own else TIMEOUT_S


def _resource(own: dict[str, AttributeValue]) -> Resource:
    return Resource.create(own).merge(OTELResourceDetector().detect())


def _variables(signal: Signal, what: str) -> tuple[str, str]:
    """The signal's own, and that of all."""
    return f"OTEL_EXPORTER_OTLP_{signal.upper()}_{what}", f"OTEL_EXPORTER_OTLP_{what}"
