"""What the edge asks of limits, for each request: one permit, held until the request has ended."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from types import MappingProxyType
from typing import Protocol

from .authentication import Principal

_NO_HEADERS: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What limits need to know of a request."""

    principal: Principal
    model: str
    """Canonical id."""
    prompt_tokens: int
    max_tokens: int | None
    """Of an answer; None: as many as there is room for."""
    num_answers: int = 1


class Permit(Protocol):
    """A request's place within its tenant's limits."""

    def use(self, num_tokens: int) -> None:
        """Say how many tokens it came to, prompt and answer; nothing is known to have run before."""
        ...


class Limiter(Protocol):
    """Holds tenants to their plans, over all edge processes of a store."""

    def precheck(self, principal: Principal, model: str) -> None:
        """Raise what `admit` would, where that is known without asking anybody: before any work."""
        ...

    def headers(self, principal: Principal, model: str) -> Mapping[str, str]:
        """Return the headers of a response that say where the tenant stands, as far as is known."""
        ...

    def admit(self, request: Request) -> AbstractAsyncContextManager[Permit]:
        """Take the request's place; raise `RateExceeded` or `QuotaExceeded` if there is none.

        Raises `StoreUnavailable` where that cannot be found out in time, and `CapacityExceeded` where
        too many wait for it. Leaving the block gives back what was not used. Nothing is asked per token.
        """
        ...


class _Free:
    def use(self, num_tokens: int) -> None:
        pass


class NoLimits:
    """Admits everybody. A `Limiter`."""

    def precheck(self, principal: Principal, model: str) -> None:
        pass

    def headers(self, principal: Principal, model: str) -> Mapping[str, str]:
        return _NO_HEADERS

    @asynccontextmanager
    async def admit(self, request: Request) -> AsyncIterator[Permit]:
        yield _Free()
