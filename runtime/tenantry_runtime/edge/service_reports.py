"""What nodes report of service, as far as this edge has not passed it on yet."""

from __future__ import annotations

from typing import TypeAlias

from tenantry_runtime.core import Phase
from tenantry_runtime.pool.messages import (
    MemberDescription,
    NodeStatistics,
    ServedElsewhere,
    ServiceReport,
)

_PoolKey: TypeAlias = tuple[str, tuple[Phase, ...]]


class ServiceReports:
    """The latest of each page pool of each node. Bounded by the pools that there are."""

    def __init__(self) -> None:
        self._passed: dict[str, tuple[int, dict[_PoolKey, int]]] = {}

    def news(self, node: str, statistics: NodeStatistics) -> list[ServedElsewhere]:
        """Return what others of the same pools have not been told; it counts as told from here on.

        What gets lost on its way is said by the next report too.
        """
        incarnation = statistics.incarnation
        if not incarnation:
            # a front that is too old to say which life of its node this is of
            return []
        life, numbers = self._passed.get(node, (0, {}))
        if life != incarnation:
            numbers = {}
        fresh = [
            report
            for report in statistics.services
            if report.number > numbers.get((report.model, report.phases), 0)
        ]
        self._passed[node] = (
            incarnation,
            {(report.model, report.phases): report.number for report in statistics.services},
        )
        return [ServedElsewhere(incarnation=incarnation, report=report) for report in fresh]


def concerns(report: ServiceReport, members: tuple[MemberDescription, ...]) -> bool:
    """Say whether any of the members is of the report's pool."""
    return any(member.model == report.model and member.phase in report.phases for member in members)
