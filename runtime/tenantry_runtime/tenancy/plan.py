"""What a tenant is promised and held to: the terms of its plan."""

from __future__ import annotations

from typing import Annotated, TypeAlias

import msgspec
from msgspec import Meta

from tenantry_runtime.core import Share

Count: TypeAlias = Annotated[int, Meta(ge=1)]
Depth: TypeAlias = Annotated[int, Meta(ge=0)]
Neurons: TypeAlias = Annotated[float, Meta(ge=0)]


class Quota(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True
):
    """What one tenant may ask of one model. None: no limit."""

    requests_per_minute: Count | None = None
    tokens_per_minute: Count | None = None
    """Prompt and answer, cached tokens too."""
    concurrent_requests: Count | None = None
    queue_depth: Depth | None = None
    """Requests of the tenant that may wait on one member for their turn."""
    context_tokens: Count | None = None
    """Prompt and answer together, where the model has room for more."""


class Plan(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True
):
    """The terms that a tenant has. As JSON in the store, without the defaults."""

    share: Share = Share()
    """Of every pool."""
    daily_neurons: Neurons | None = None
    """Of all models together, from midnight to midnight UTC. None: no limit."""
    quota: Quota = Quota()
    """Of each model that `models` does not name."""
    models: dict[str, Quota] = {}
    """By canonical id."""

    def quota_of(self, model: str) -> Quota:
        """Return what holds for a model, by its canonical id."""
        return self.models.get(model, self.quota)
