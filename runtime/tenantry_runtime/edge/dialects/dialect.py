"""What a dialect is: bytes in, `GenerateRequest` out; `Event`s in, bytes out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from tenantry_runtime.catalog import CatalogEntry, TokenPrices
from tenantry_runtime.core import Event, GenerateRequest
from tenantry_runtime.errors import TenantryError

SESSION_HEADER = "x-session-affinity"
"""Names the session, in every dialect."""

TokenBytes: TypeAlias = Callable[[int], bytes]
"""Returns the UTF-8 of a token, which may be a part of a character."""


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
    vocab_size: int
    token_bytes: TokenBytes
    prices: TokenPrices | None = None
    """None: it has none."""


class Printer(Protocol):
    """Prints the answers to one request, streamed or whole.

    There are `GenerateRequest.num_choices` of them, each of events that end in `Finish`, with the
    usage of all. In a stream, no `Finish` comes before all is there.
    """

    @property
    def response_id(self) -> str:
        """The id that the answer carries."""
        ...

    def opening(self) -> bytes:
        """Print what comes before the first event of a stream."""
        ...

    def event(self, event: Event, choice: int = 0) -> bytes:
        """Print one event of a stream, of one of its choices; the last `Finish` also ends it."""
        ...

    def broken(self, error: TenantryError) -> bytes:
        """Print the error that ends a stream."""
        ...

    def result(self, choices: Sequence[Sequence[Event]]) -> bytes:
        """Print whole answers: the fold of what a stream would have carried."""
        ...


class Dialect(Protocol):
    """One API, in both directions."""

    @property
    def id_prefix(self) -> str:
        """What the ids of its answers begin with."""
        ...

    def model(self, body: bytes) -> str | None:
        """Name the model that a body asks for; None: the path names it.

        Raises `InvalidInput` for a body that names none, though it should.
        """
        ...

    def parse(self, body: bytes, target: Target, *, session: str | None) -> GenerateRequest:
        """Read a request; raise `InvalidInput`, which names the field, for one that is not right.

        `session` is what the headers say; it beats what the body says.
        """
        ...

    def printer(
        self,
        request: GenerateRequest,
        target: Target,
        *,
        response_id: str,
        created_s: int,
    ) -> Printer:
        """Make the printer of the answer to one request."""
        ...

    def error(self, error: TenantryError) -> tuple[int, bytes]:
        """Return status and body of an error that comes instead of an answer."""
        ...
