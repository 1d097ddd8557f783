"""Which tenants have a label of their own: few, so that metrics stay few too."""

from __future__ import annotations

from collections import Counter

OTHER = "other"
DEFAULT_TOP = 20
_MAX_KNOWN_PER_TOP = 8
_KEEP = 0.5


class TopTenants:
    """Names the tenants with most tokens; who has a label keeps it while it is among them.

    A counter of a label never goes back: what a tenant does while it is unnamed is `other`'s for good.
    """

    def __init__(self, top: int = DEFAULT_TOP) -> None:
        """0: no tenant is named."""
        self._top = top
        self._weights: Counter[str] = Counter()
        self._named: set[str] = set()

    def label(self, tenant: str, weight: int = 0) -> str:
        """Return a tenant's label, after it has used so much."""
        if weight:
            self._weights[tenant] += weight
            if len(self._weights) > _MAX_KNOWN_PER_TOP * max(self._top, 1):
                self._forget()
        if tenant in self._named:
            return tenant
        if len(self._named) < self._top:
            self._named.add(tenant)
            return tenant
        return self._take_over(tenant) if self._named else OTHER

    def _take_over(self, tenant: str) -> str:
        """Give a label to one that has used twice as much as the least of those who have one."""
        least = min(self._named, key=lambda each: (self._weights[each], each))
        if self._weights[tenant] * _KEEP <= self._weights[least]:
            return OTHER
        self._named.discard(least)
        self._named.add(tenant)
        return tenant

    def _forget(self) -> None:
        """Halve what all have used, so that old times count less, and drop those with little."""
        for each in list(self._weights):
            self._weights[each] //= 2
        kept = self._weights.most_common(_MAX_KNOWN_PER_TOP * max(self._top, 1) // 2)
        self._weights = Counter(dict(kept))
