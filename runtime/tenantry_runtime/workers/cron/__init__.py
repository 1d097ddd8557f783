"""Cron triggers: when they are due, which edge runs them, and running them."""

from __future__ import annotations

from .claims import StoredClaims
from .expression import CronExpression, parse_cron
from .runner import Claims, CronRunner, Schedules

__all__ = [
    "Claims",
    "CronExpression",
    "CronRunner",
    "Schedules",
    "StoredClaims",
    "parse_cron",
]
