"""What an edge tells an operator, as `/operator/overview` says it in JSON.

Counters are passed on as they are: whoever looks twice makes rates of them.
"""

from __future__ import annotations

from typing import Any

import msgspec

from tenantry_runtime.core import Phase
from tenantry_runtime.pool.messages import OpCoverage
from tenantry_runtime.pool.pool_report import PoolReport


class MemberOverview(msgspec.Struct, frozen=True, kw_only=True):
    model: str
    phase: Phase
    weights_format: str
    cache_format: str
    ops: tuple[OpCoverage, ...]
    """Whose use of pages the check covers and whose not, as the node found by trying."""

    @property
    def unchecked(self) -> tuple[OpCoverage, ...]:
        return tuple(op for op in self.ops if not op.is_on)


class NodeOverview(msgspec.Struct, frozen=True, kw_only=True):
    address: str
    is_up: bool
    is_draining: bool = False
    turn_age_s: float | None = None
    """Since the step loop's last turn; None: it never answered."""
    members: list[MemberOverview] = []
    pools: tuple[PoolReport, ...] = ()


class TenantOverview(msgspec.Struct, frozen=True, kw_only=True):
    """What a tenant was promised, and what it has."""

    tenant: str
    weight: float
    guaranteed: float
    """Of each pool's pages."""
    ceiling: float
    service: float
    """That all pools together have given it lately, as fairness counts."""
    num_pages: int


class UsageOverview(msgspec.Struct, frozen=True, kw_only=True):
    """What a tenant has used of all models since midnight in UTC, as far as it is recorded."""

    tenant: str
    requests: int
    input_tokens: int
    """Cached ones too."""
    cached_tokens: int
    output_tokens: int
    """Reasoning too."""
    usd: float


class IncidentOverview(msgspec.Struct, frozen=True, kw_only=True):
    """The head of a `tenancy.IncidentRecord`; `workerctl incidents show` has the rest."""

    id: str
    kind: str
    began_ms: int
    ended_ms: int | None
    """None: it lasts, or whoever told of it ended before."""
    node: str
    model: str
    tenants: tuple[str, ...]
    detail: str


class Overview(msgspec.Struct, frozen=True, kw_only=True):
    time_ms: int
    num_open_requests: int
    num_unrecorded: int
    """Usage records that are not in the database yet."""
    nodes: list[NodeOverview]
    tenants: list[TenantOverview]
    usage: list[UsageOverview]
    """The dearest tenants' first."""
    incidents: list[IncidentOverview]
    latencies: dict[str, list[dict[str, Any]]]
    """By model, `telemetry.metrics.Slice`s of the last minutes of this edge."""
