"""What environment variables say of traces, beside where they go (`endpoints.py`).

| variable | what |
|---|---|
| `OTEL_TRACES_SAMPLER` | `parentbased_always_on` (default), `parentbased_always_off`, `parentbased_traceidratio`, `always_on`, `always_off`, `traceidratio` |
| `OTEL_TRACES_SAMPLER_ARG` | the ratio, 0 to 1 |
| `OTEL_BSP_MAX_QUEUE_SIZE`, `OTEL_BSP_MAX_EXPORT_BATCH_SIZE`, `OTEL_BSP_SCHEDULE_DELAY` | spans that wait, spans of a batch, milliseconds between batches |
| `OTEL_BLRP_…` | the same of log records |
| `TENANTRY_TRACE_SLOW_S` | from how many seconds on a request is kept, whatever the sampler says |
| `TENANTRY_TENANT_TRACES` | a TOML file: which tenants get their own spans and logs, and where (`tenants.py`) |
"""

from __future__ import annotations

from collections.abc import Mapping
from math import inf
from typing import Literal

from tenantry_runtime.errors import ConfigurationError

from .post import PostLimits
from .sampling import SLOW_S, Sampling

TENANT_TRACES = "TENANTRY_TENANT_TRACES"
_SAMPLER, _SAMPLER_ARG = "OTEL_TRACES_SAMPLER", "OTEL_TRACES_SAMPLER_ARG"
_SLOW_S = "TENANTRY_TRACE_SLOW_S"
_PARENT = "parentbased_"


def read_sampling(environ: Mapping[str, str]) -> Sampling:
    """Raise `ConfigurationError` for what no sampler is called."""
    name = environ.get(_SAMPLER) or "parentbased_always_on"
    ratio = _number(environ, _SAMPLER_ARG, 1.0, least=0.0, most=1.0)
    ratios = {"always_on": 1.0, "always_off": 0.0, "traceidratio": ratio}
    if (kind := name.removeprefix(_PARENT)) not in ratios:
        known = ", ".join([*ratios, *(_PARENT + each for each in ratios)])
        raise ConfigurationError(f"{_SAMPLER} is {name!r}; it may be {known}")
    return Sampling(
        ratio=ratios[kind],
        follows_parent=name.startswith(_PARENT),
        slow_s=_number(environ, _SLOW_S, SLOW_S, least=0.0, most=inf),
    )


def read_limits(environ: Mapping[str, str], kind: Literal["BSP", "BLRP"]) -> PostLimits:
    """Raise `ConfigurationError` for what is no number, or none that works."""
    limits = PostLimits()
    prefix = f"OTEL_{kind}_"
    most = _number(environ, f"{prefix}MAX_QUEUE_SIZE", limits.max_waiting, least=1, most=1 << 20)
    batch = _number(
        environ, f"{prefix}MAX_EXPORT_BATCH_SIZE", min(limits.max_batch, most), least=1, most=most
    )
    delay_ms = _number(
        environ, f"{prefix}SCHEDULE_DELAY", limits.delay_s * 1000, least=1, most=3_600_000
    )
    return PostLimits(max_waiting=int(most), max_batch=int(batch), delay_s=delay_ms / 1000)


def _number(
    environ: Mapping[str, str], name: str, default: float, *, least: float, most: float
) -> float:
    written = environ.get(name)
    if not written:
        return default
    try:
        number = float(written)
    except ValueError:
        number = -inf
    if not least <= number <= most:
        raise ConfigurationError(f"{name} is {written!r}, not a number from {least:g} to {most:g}")
    return number
