"""Metrics: what is recorded (`catalog`), where it goes (`setup`), and who records it."""

from .catalog import METRICS, Metric
from .nodes import NodeMetrics
from .requests import Ended, RequestMeter
from .setup import Metering, metering
from .tenants import TopTenants

__all__ = [
    "METRICS",
    "Ended",
    "Metering",
    "Metric",
    "NodeMetrics",
    "RequestMeter",
    "TopTenants",
    "metering",
]
