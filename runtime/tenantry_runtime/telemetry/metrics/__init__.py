"""Metrics: what is recorded (`catalog`), where it goes (`setup`), and who records it."""

from .catalog import METRICS, Metric
from .drift import DriftMeter
from .edge import EdgeMetrics
from .nodes import NodeMetrics
from .recent import RecentRequests, Slice
from .requests import Ended, RequestMeter
from .setup import Metering, metering
from .tenants import TopTenants
from .workers import IsolateMetrics, WorkerMeter

__all__ = [
    "METRICS",
    "DriftMeter",
    "EdgeMetrics",
    "Ended",
    "IsolateMetrics",
    "Metering",
    "Metric",
    "NodeMetrics",
    "RecentRequests",
    "RequestMeter",
    "Slice",
    "TopTenants",
    "WorkerMeter",
    "metering",
]
