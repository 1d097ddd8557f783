"""Work in the background: what has a pool while nobody else wants it.

| of sequences in the background | |
|---|---|
| whose turn it is | one of theirs, by a policy of their own, while no other sequence of the pool asks for its turn; until then those that run stand still |
| a chunk | is of theirs alone, or has none |
| pages and places | are theirs while nobody else lacks any; they give them back before anybody else does, at the next plan before which no step is under way |
| shares | a tenant's work in the background is a party of its own (`party_of`), without a guarantee: what it has is on no account of the tenant |

So whoever comes is held up by the step that is under way, as by anybody's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tenantry_runtime.core import Share
from tenantry_runtime.pool.messages import is_background

from .policy import Policy, Service


class Layers:
    """A `Policy` of two: one orders whom the other has left nothing for."""

    def __init__(self, foreground: Policy, background: Policy) -> None:
        self._foreground = foreground
        self._background = background

    def enter(self, tenant: str, share: Share) -> None:
        self._of(tenant).enter(tenant, share)

    def leave(self, tenant: str) -> None:
        self._of(tenant).leave(tenant)

    def queue(self, tenant: str) -> None:
        self._of(tenant).queue(tenant)

    def unqueue(self, tenant: str) -> None:
        self._of(tenant).unqueue(tenant)

    def charge(self, tenant: str, service: Service) -> None:
        self._of(tenant).charge(tenant, service)

    def charge_elsewhere(self, tenant: str, amount: float) -> None:
        self._of(tenant).charge_elsewhere(tenant, amount)

    def order(self, tenants: Iterable[str]) -> list[str]:
        wanted = list(tenants)
        return [*self._foreground.order(wanted), *self._background.order(wanted)]

    def admit(self, tenant: str, *, passed_over: Iterable[str] = ()) -> None:
        same = [x for x in passed_over if is_background(x) == is_background(tenant)]
        self._of(tenant).admit(tenant, passed_over=same)

    def may_overtake(self, tenant: str, waiting: str) -> bool:
        # nobody in the background holds up anybody else
        if is_background(tenant) != is_background(waiting):
            return is_background(waiting)
        return self._of(tenant).may_overtake(tenant, waiting)

    def totals(self) -> Mapping[str, float]:
        """Return both's: what is given in the background is told to other members, too."""
        return {**self._foreground.totals(), **self._background.totals()}

    def _of(self, tenant: str) -> Policy:
        return self._background if is_background(tenant) else self._foreground
