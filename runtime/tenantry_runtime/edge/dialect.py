"""What a dialect is: bytes in, `GenerateRequest` out; `Event`s in, bytes out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from tenantry_runtime.catalog import CatalogEntry, TokenPrices
from tenantry_runtime.core import Event, GenerateRequest
from tenantry_runtime.errors import TenantryError

SESSION_HEADER = "x-session-affinity"
"""Names the session, in every dialect."""


class SamplingDefaults(Protocol):
    """What a request that does not say is sampled with."""

    @property
    def temperature(self) -> float: ...

    @property
    def top_p(self) -> float: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The model that a body is meant for."""

    entry: CatalogEntry
    defaults: SamplingDefaults


class Printer(Protocol):
    """Prints one answer, streamed or whole."""

    @property
    def response_id(self) -> str:
        """The id that the answer carries."""
        ...

    def opening(self) -> bytes:
        """Print what comes before the first event of a stream."""
        ...

    def event(self, event: Event) -> bytes:
        """Print one event of a stream; `Finish` also ends it."""
        ...

    def broken(self, error: TenantryError) -> bytes:
        """Print the error that ends a stream."""
        ...

    def result(self, events: Sequence[Event]) -> bytes:
        """Print a whole answer: the fold of what a stream would have carried."""
        ...


class Dialect(Protocol):
    """One API, in both directions."""

    def parse(self, body: bytes, target: Target, *, session: str | None) -> GenerateRequest:
        """Read a request; raise `InvalidInput`, which names the field, for one that is not right.

        `session` is what the headers say; it beats what the body says.
        """
        ...

    def printer(
        self,
        request: GenerateRequest,
        *,
        response_id: str,
        created_s: int,
        prices: TokenPrices | None = None,
    ) -> Printer:
        """Make the printer of the answer to one request; with prices, it says what that costs."""
        ...

    def error(self, error: TenantryError) -> tuple[int, bytes]:
        """Return status and body of an error that comes instead of an answer."""
        ...
