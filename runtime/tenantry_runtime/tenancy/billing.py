"""What the edge asks of the ledger, for each request: one entry, open while it runs."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import Protocol

from tenantry_runtime.core import RequestId, TenantId, Usage


@dataclass(frozen=True, slots=True, kw_only=True)
class Opening:
    """What is known of a request before it runs."""

    request_id: RequestId
    tenant: TenantId
    token_id: str
    model: str
    """Canonical id."""
    trace_id: str = ""
    worker: str = ""
    worker_version: str = ""


class Entry(Protocol):
    """One request in the ledger."""

    def delivered(self, usage: Usage) -> None:
        """Say what the client has, once the bytes that are sent next have reached it.

        Called before they reach the socket. Survives the death of this process.
        """
        ...

    def generated(self, usage: Usage) -> None:
        """Say what has been generated so far: what a client pays that goes away by itself."""
        ...

    def served_by(self, *, revision: str, formats: str) -> None:
        """Say what it runs on."""
        ...

    def complete(self, usage: Usage, outcome: str) -> None:
        """The answer is whole; `outcome` is its finish reason."""
        ...


class Ledger(Protocol):
    """Keeps one usage record for each request."""

    def open(self, opening: Opening) -> AbstractAsyncContextManager[Entry]:
        """Open the request's entry. Leaving the block commits its record, however it is left.

        So whoever sends a terminal event after the block has a record that no crash undoes.
        """
        ...


class _Nothing:
    def delivered(self, usage: Usage) -> None:
        pass

    def generated(self, usage: Usage) -> None:
        pass

    def served_by(self, *, revision: str, formats: str) -> None:
        pass

    def complete(self, usage: Usage, outcome: str) -> None:
        pass


class NoLedger:
    """Keeps nothing. A `Ledger`."""

    @asynccontextmanager
    async def open(self, opening: Opening) -> AsyncIterator[Entry]:
        yield _Nothing()
