"""In which order tenants are served."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol


class Policy(Protocol):
    """The place of fairness. Told of every sequence and every token; asked for an order."""

    def enter(self, tenant: str) -> None:
        """The tenant has one more sequence, waiting or running."""
        ...

    def leave(self, tenant: str) -> None:
        """One of the tenant's sequences has ended."""
        ...

    def charge(self, tenant: str, num_tokens: int) -> None:
        """The tenant is given the computation of that many tokens."""
        ...

    def order(self, tenants: Iterable[str]) -> list[str]:
        """Sort those that have entered, the one to serve next first. Must not starve anyone."""
        ...


@dataclass(slots=True, eq=False)
class _Account:
    num_served: int
    num_sequences: int = 0


class LeastServed:
    """The tenant that was given the fewest tokens comes first; among equals, who entered first.

    A tenant that comes back starts at the least of those present: idling earns no credit.
    """

    def __init__(self) -> None:
        self._accounts: dict[str, _Account] = {}

    def enter(self, tenant: str) -> None:
        if tenant not in self._accounts:
            served = (account.num_served for account in self._accounts.values())
            self._accounts[tenant] = _Account(num_served=min(served, default=0))
        self._accounts[tenant].num_sequences += 1

    def leave(self, tenant: str) -> None:
        account = self._accounts[tenant]
        account.num_sequences -= 1
        if not account.num_sequences:
            del self._accounts[tenant]

    def charge(self, tenant: str, num_tokens: int) -> None:
        self._accounts[tenant].num_served += num_tokens

    def order(self, tenants: Iterable[str]) -> list[str]:
        wanted = frozenset(tenants)
        present = [tenant for tenant in self._accounts if tenant in wanted]
        return sorted(present, key=lambda tenant: self._accounts[tenant].num_served)
