"""What limits a tenant's requests to one model."""

from __future__ import annotations

from typing import NamedTuple

from tenantry_runtime.catalog.pricing import PICO_PER_NEURON
from tenantry_runtime.core import TenantId
from tenantry_runtime.tenancy.authentication import Principal

# names of limits, as their fields have them, and as the store and errors do
REQUESTS = "requests_per_minute"
TOKENS = "tokens_per_minute"
CONCURRENT = "concurrent_requests"
NEURONS = "daily_neurons"


class Place(NamedTuple):
    """Where rates and open requests are counted."""

    tenant: TenantId
    model: str
    """Canonical id."""


class Terms(NamedTuple):
    """The limits of one place. None: no limit."""

    place: Place
    requests_per_minute: int | None
    tokens_per_minute: int | None
    concurrent_requests: int | None
    daily_neurons: float | None
    """Of all models of the tenant."""

    @classmethod
    def of(cls, principal: Principal, model: str) -> Terms | None:
        """Return None where there is nothing that has to be counted."""
        plan = principal.plan
        quota = plan.quota_of(model)
        if (
            plan.daily_neurons is None
            and quota.requests_per_minute is None
            and quota.tokens_per_minute is None
            and quota.concurrent_requests is None
        ):
            return None
        return cls(
            Place(principal.tenant, model),
            quota.requests_per_minute,
            quota.tokens_per_minute,
            quota.concurrent_requests,
            plan.daily_neurons,
        )

    @property
    def daily_cost(self) -> float | None:
        """`daily_neurons` in pico-USD."""
        return None if self.daily_neurons is None else self.daily_neurons * PICO_PER_NEURON
