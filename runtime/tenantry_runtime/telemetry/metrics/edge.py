"""What an edge has in hand, observed when somebody collects."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from opentelemetry.metrics import Meter, Observation

from .instruments import observe

if TYPE_CHECKING:
    from tenantry_runtime.routing.retry import RetryStatistics

    # with it comes the store: half a second, which nodes that export their log do without
    from tenantry_runtime.tenancy.billing import LedgerStatistics


@dataclass
class EdgeMetrics:
    """Of one edge."""

    num_open_requests: Callable[[], int]
    ledger: Callable[[], LedgerStatistics]
    incidents: Callable[[], Mapping[str, int]]
    """How many have begun, by kind, with those of which there are none."""
    retries: Callable[[], RetryStatistics]

    def register(self, meter: Meter) -> None:
        observe(meter, "tenantry.requests.open", lambda: [Observation(self.num_open_requests())])
        observe(
            meter, "tenantry.ledger.unrecorded", lambda: [Observation(self.ledger().num_unrecorded)]
        )
        observe(meter, "tenantry.ledger.lag", lambda: [Observation(self.ledger().lag_s)])
        observe(meter, "tenantry.incidents", self._incidents)
        observe(meter, "tenantry.retries.left", lambda: [Observation(self.retries().num_left)])
        observe(
            meter, "tenantry.retries.refused", lambda: [Observation(self.retries().num_refused)]
        )
        observe(meter, "tenantry.ledger.records", lambda: [Observation(self.ledger().num_recorded)])

    def _incidents(self) -> list[Observation]:
        return [Observation(count, {"kind": kind}) for kind, count in self.incidents().items()]
