"""A ledger and a limiter that keep what they are told."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from tenantry_runtime.core import Usage
from tenantry_runtime.tenancy import (
    Entry,
    Interruption,
    LedgerStatistics,
    Opening,
    Permit,
    Principal,
    Request,
)


@dataclass
class Books:
    """A `Ledger` and a `Limiter`, of one request."""

    openings: list[Opening] = field(default_factory=list)
    admissions: list[Request] = field(default_factory=list)
    delivered_so_far: list[Usage] = field(default_factory=list)
    outcomes: list[tuple[Usage, str]] = field(default_factory=list)
    used: list[int] = field(default_factory=list)
    is_open: bool = False
    was_refused: bool = False

    def statistics(self) -> LedgerStatistics:
        return LedgerStatistics(num_open=int(self.is_open))

    @asynccontextmanager
    async def open(self, opening: Opening) -> AsyncIterator[Entry]:
        self.openings.append(opening)
        self.is_open = True
        try:
            yield self
        finally:
            self.is_open = False

    def delivered(self, usage: Usage) -> None:
        self.delivered_so_far.append(usage)

    def generated(self, usage: Usage) -> None:
        pass

    def served_by(self, *, revision: str, formats: str) -> None:
        pass

    def complete(self, usage: Usage, outcome: str) -> None:
        self.outcomes.append((usage, outcome))

    def interrupted(self, why: Interruption) -> None:
        pass

    def refused(self) -> None:
        self.was_refused = True

    def precheck(self, principal: Principal, model: str) -> None:
        pass

    def headers(self, principal: Principal, model: str) -> Mapping[str, str]:
        return {}

    @asynccontextmanager
    async def admit(self, request: Request) -> AsyncIterator[Permit]:
        self.admissions.append(request)
        yield self

    def use(self, num_tokens: int) -> None:
        self.used.append(num_tokens)
