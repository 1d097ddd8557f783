"""What the edge asks of the ledger, for each request: one entry, open while it runs."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from tenantry_runtime.catalog import FREE, TokenPrices
from tenantry_runtime.core import RequestId, TenantId, Usage


class Interruption(StrEnum):
    """Why an answer is not whole: the outcome of its record, where others have their finish reason."""

    CLIENT_GONE = "client_gone"
    """The client left, or took nothing for too long."""
    TIMEOUT = "timeout"
    """The request's own deadline passed."""
    FAILED = "failed"
    """A node failed it, or was lost; or the edge has a defect."""
    EDGE_CLOSING = "edge_closing"
    """The edge was told to end."""
    EDGE_LOST = "edge_lost"
    """The edge's process died; found out later, from its journal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Opening:
    """What is known of a request before it runs."""

    request_id: RequestId
    tenant: TenantId
    token_id: str
    model: str
    """Canonical id."""
    prompt_tokens: int = 0
    prices: TokenPrices = FREE
    """As they are now: what it is billed by, whatever becomes of them while it runs."""
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
        """Say what it runs on. The last that is said counts."""
        ...

    def complete(self, usage: Usage, outcome: str) -> None:
        """The answer is whole; `outcome` is its finish reason."""
        ...

    def interrupted(self, why: Interruption) -> None:
        """The answer ends before it is whole. Who says nothing at all has failed."""
        ...

    def refused(self) -> None:
        """Nothing ran, and nothing will: there is to be no record."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerStatistics:
    """Where a ledger stands."""

    num_open: int = 0
    num_unrecorded: int = 0
    """Closed, and not in the database yet."""
    num_recorded: int = 0
    """By this process, its own requests."""
    lag_s: float = 0.0
    """For how long the oldest of those that are not recorded has been closed."""
    is_database_away: bool = False


class Ledger(Protocol):
    """Keeps one usage record for each request."""

    def statistics(self) -> LedgerStatistics: ...

    def open(self, opening: Opening) -> AbstractAsyncContextManager[Entry]:
        """Open the request's entry. Leaving the block commits its record, however it is left.

        So whoever sends a terminal event after the block has a record that no crash undoes. Raises
        `LedgerUnavailable` when it is entered and no record could be kept, and when it is left
        without an error and the record is not safe.
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

    def interrupted(self, why: Interruption) -> None:
        pass

    def refused(self) -> None:
        pass


class NoLedger:
    """Keeps nothing. A `Ledger`."""

    def statistics(self) -> LedgerStatistics:
        return LedgerStatistics()

    @asynccontextmanager
    async def open(self, opening: Opening) -> AsyncIterator[Entry]:
        yield _Nothing()
