"""In which order tenants are served, and what counts as service.

| call | when | who |
|---|---|---|
| `enter`, `leave` | a sequence of the tenant comes, and is over | the scheduler |
| `queue`, `unqueue` | it begins to ask for its turn, and asks no more: its prompt is computed, or its pages are reserved | the scheduler |
| `admit`, `may_overtake` | one has pages and a place, or might have them before somebody's turn | the scheduler |
| `charge` | tokens are computed, pages are held | the scheduler |
| `order` | there is room for one more piece of work | the scheduler |
| `totals` | service is told to other members of the pool | whoever sends heartbeats |
| `charge_elsewhere` | they tell theirs | whoever hears them |

Nothing in it knows what is in anybody's cache, so no order gives it away.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

from tenantry_runtime.core import Share


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """What a tenant was given."""

    input_tokens: int = 0
    """Computed, or, in a decode member, brought by a hand-off."""
    cached_tokens: int = 0
    """Of a prompt, found and not computed."""
    output_tokens: int = 0
    page_seconds: float = 0.0
    """Pages times the seconds for which nobody else could have them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceCost:
    """What service is worth, in units of one computed input token.

    The measures are Kimi K2.6's on eight H200, as `replay/costs.py` has them.
    """

    input_token: float = 1.0
    cached_token: float = 0.0
    """Nothing is computed for it, and its pages are counted while they are held."""
    output_token: float = 4.0
    """By price 4.2 (USD 4.00 and 0.95 a million); by time 8.3 in a batch of 64, less in larger ones."""
    page_second: float = 0.5
    """So that holding all pages costs what computing all the time does: 0.41 of a decode member (2,192
    output tokens/s over 21,406 pages); it is decode members whose pages run out."""

    def __post_init__(self) -> None:
        for name in ("input_token", "cached_token", "output_token", "page_second"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} is {getattr(self, name)!r}; a cost is 0 or more")

    def of(self, service: Service) -> float:
        return (
            service.input_tokens * self.input_token
            + service.cached_tokens * self.cached_token
            + service.output_tokens * self.output_token
            + service.page_seconds * self.page_second
        )


class Policy(Protocol):
    """The place of fairness. Told of every sequence and all service; asked for an order."""

    def enter(self, tenant: str, share: Share) -> None:
        """The tenant has one more sequence, waiting or running; its share is this from here on."""
        ...

    def leave(self, tenant: str) -> None:
        """One of the tenant's sequences has ended."""
        ...

    def queue(self, tenant: str) -> None:
        """One more of the tenant's sequences asks for its turn."""
        ...

    def unqueue(self, tenant: str) -> None:
        """One of them asks no more."""
        ...

    def charge(self, tenant: str, service: Service) -> None:
        """The tenant is given service by this member."""
        ...

    def charge_elsewhere(self, tenant: str, amount: float) -> None:
        """Other members of the same pool have given the tenant service since they last told.

        `amount` is a difference of two of another member's `totals`, before division by weight. The
        tenant may be unknown here.
        """
        ...

    def order(self, tenants: Iterable[str]) -> list[str]:
        """Sort those that ask for a turn, the one to serve next first. Must not starve anyone."""
        ...

    def admit(self, tenant: str, *, passed_over: Iterable[str] = ()) -> None:
        """One of the tenant's sequences is given pages and a place.

        `passed_over`: tenants that came before it in the order and could not have used them, for a
        reason of their own. What they are behind by now is not owed to them without limit.
        """
        ...

    def may_overtake(self, tenant: str, waiting: str) -> bool:
        """Whether the tenant may have room that is too little for another, which came before it."""
        ...

    def totals(self) -> Mapping[str, float]:
        """Return what this member has given each tenant since its start, by cost, before division by weight.

        At most `fairness.MAX_TOTALS` tenants, those served last: one that is less than it was, or
        comes again, has been forgotten in between and counts from 0. Nothing of `charge_elsewhere`.
        """
        ...
