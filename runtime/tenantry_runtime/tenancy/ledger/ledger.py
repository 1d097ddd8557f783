"""The ledger of one edge: entries that are closed in groups, by one sync and one transaction each.

| step | where | for |
|---|---|---|
| `Opened` is appended | event loop | each request, before it is submitted |
| delivered counts are stored | event loop | each event, before its bytes are sent |
| `Closed` is appended | event loop | each request |
| the journal is synced | a thread | all that were closed meanwhile |
| a transaction | the database | all that were synced meanwhile |

A request waits for both, so that its last event is sent when no crash undoes its record. Of the two
the sync is enough: where the database is away, requests go on after `RECORD_WAIT_S`, and the records
wait in memory and in the journal, up to a bound.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

import anyio
import anyio.to_thread

from tenantry_runtime.background import background_tasks
from tenantry_runtime.errors import CapacityExceeded, LedgerUnavailable
from tenantry_runtime.tenancy.billing import LedgerStatistics, Opening
from tenantry_runtime.tenancy.database import Database

from .entry import JournaledEntry
from .journal import Journal, Reached, SegmentFile, Ticket, create_journal, unwatched
from .reconcile import reconcile
from .record import RequestFacts, UsageRecord
from .settling import UNREACHABLE, settle

JOURNAL_DIRECTORY = "journal"
"""In an edge's state directory."""

SYNC_WAIT_S = 10.0
"""For a disk that has stalled. A request whose record is not safe by then ends with an error."""

RECORD_WAIT_S = 1.0
"""For the database, when the journal is safe."""

RETRY_S = 0.5
"""Between attempts to reach a database that is away."""

FINISH_S = 5.0
"""For what is left when the edge ends; what remains then is reconciled by the next edge."""

RECONCILE_EVERY_S = 10.0

MAX_UNRECORDED = 20_000
"""Records that wait for the database: some 20 MB. Beyond, requests are refused."""

_log = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class _Group:
    """Requests that are synced and recorded together."""

    records: list[UsageRecord] = field(default_factory=list)
    tickets: list[Ticket] = field(default_factory=list)
    is_journaled: bool = True
    """Whether the journal has all of it."""
    is_safe: anyio.Event = field(default_factory=anyio.Event)
    """In the journal and synced, or in the database."""
    is_recorded: anyio.Event = field(default_factory=anyio.Event)
    closed_s: float | None = None
    """When the first of them closed, on anyio's clock."""


class JournaledLedger:
    """A `Ledger`. Made by `open_ledger`; for one event loop."""

    def __init__(
        self,
        database: Database,
        journal: Journal,
        journals: Path,
        *,
        max_unrecorded: int = MAX_UNRECORDED,
        reached: Reached = unwatched,
    ) -> None:
        self._database = database
        self._journal = journal
        self._journals = journals
        self._max_unrecorded = max_unrecorded
        self._reached = reached
        self._group = _Group()
        self._has_closed = anyio.Event()
        self._synced: deque[_Group] = deque()
        self._has_synced = anyio.Event()
        self._has_recorded = anyio.Event()
        self._recording: list[_Group] = []
        self._syncing: _Group | None = None
        self._num_unrecorded = 0
        self._num_recorded = 0
        self._is_database_away = False

    def open(self, opening: Opening) -> _Open:
        """Open a request's entry, as `Ledger` says. Raises `CapacityExceeded` where all slots are taken."""
        return _Open(self, opening)

    def statistics(self) -> LedgerStatistics:
        return LedgerStatistics(
            num_open=self._journal.num_open,
            num_unrecorded=self._num_unrecorded,
            num_recorded=self._num_recorded,
            lag_s=self._lag_s(),
            is_database_away=self._is_database_away,
        )

    def _lag_s(self) -> float:
        # in this order: the first that has any is the oldest
        for group in (*self._recording, *self._synced, self._syncing, self._group):
            if group is not None and group.closed_s is not None:
                return anyio.current_time() - group.closed_s
        return 0.0

    def begin(self, opening: Opening) -> JournaledEntry:
        if self._num_unrecorded >= self._max_unrecorded:
            raise LedgerUnavailable
        facts = RequestFacts(
            request_id=opening.request_id,
            account_id=opening.tenant,
            token_id=opening.token_id,
            model=opening.model,
            worker=opening.worker,
            worker_version=opening.worker_version,
            trace_id=opening.trace_id,
            started_ms=self._database.now_ms(),
            input_tokens=opening.prompt_tokens,
            prices=opening.prices,
        )
        try:
            ticket = self._journal.open(facts)
        except OSError as error:
            _log.error("the journal fails: %s", error)
            raise LedgerUnavailable from error
        if ticket is None:
            raise CapacityExceeded
        return JournaledEntry(self._journal, ticket, facts)

    async def end(self, entry: JournaledEntry) -> bool:
        """Commit the entry's record, or say that there is none; return whether it is safe."""
        if entry.is_refused:
            self._refuse(entry)
            return True
        group = self._close(entry)
        # a client that leaves now does not take its record along; both waits are bounded
        with anyio.CancelScope(shield=True):
            with anyio.move_on_after(SYNC_WAIT_S):
                await group.is_safe.wait()
            if not group.is_recorded.is_set() and not self._is_database_away:
                with anyio.move_on_after(RECORD_WAIT_S):
                    await group.is_recorded.wait()
        return group.is_safe.is_set()

    def _refuse(self, entry: JournaledEntry) -> None:
        try:
            self._journal.close_request(entry.ticket, None)
        except OSError as error:
            # at worst a record of nothing, if this process dies
            _log.error("request %s: the journal fails: %s", entry.facts.request_id, error)
        self._journal.settle(entry.ticket)
        if self._journal.is_full:
            # nothing to sync, but to shorten
            self._has_closed.set()

    def _close(self, entry: JournaledEntry) -> _Group:
        record = entry.record(self._database.now_ms())
        group = self._group
        try:
            self._journal.close_request(entry.ticket, record)
        except OSError as error:
            _log.error("request %s: the journal fails: %s", entry.facts.request_id, error)
            group.is_journaled = False
        group.records.append(record)
        if group.closed_s is None:
            group.closed_s = anyio.current_time()
        group.tickets.append(entry.ticket)
        self._num_unrecorded += 1
        self._has_closed.set()
        return group

    async def sync_groups(self) -> None:
        """Sync the journal whenever requests have closed, and keep it short. Runs until canceled."""
        while True:
            await self._has_closed.wait()
            self._has_closed = anyio.Event()
            group, self._group = self._group, _Group()
            self._syncing = group
            if await self._sync() and group.is_journaled:
                group.is_safe.set()
            self._reached("synced")
            self._synced.append(group)
            self._syncing = None
            self._has_synced.set()
            await self._shorten()

    async def record_groups(self) -> None:
        """Record what has been synced. Runs until canceled."""
        while True:
            await self._has_synced.wait()
            self._has_synced = anyio.Event()
            groups = self._recording = [*self._synced]
            self._synced.clear()
            await self._record([record for group in groups for record in group.records])
            self._reached("recorded")
            for group in groups:
                self._num_unrecorded -= len(group.records)
                self._num_recorded += len(group.records)
                for ticket in group.tickets:
                    self._journal.settle(ticket)
                group.is_safe.set()
                group.is_recorded.set()
            self._recording = []
            self._has_recorded.set()
            self._has_recorded = anyio.Event()

    async def reconcile_others(self, every_s: float) -> None:
        """Reconcile journals of edges that have died meanwhile. Runs until canceled."""
        while True:
            await anyio.sleep(every_s)
            await _reconcile_if_reachable(self._journals, self._database, self._reached)

    async def finish(self) -> bool:
        """Wait for what is left; return whether nothing is needed of the journal any more."""
        with anyio.move_on_after(FINISH_S):
            while self._num_unrecorded:
                await self._has_recorded.wait()
        if self._num_unrecorded or not self._journal.is_settled:
            return False
        try:
            await self._database.harden()
        except OSError as error:
            _log.error("the database cannot be synced: %s", error)
            return False
        return True

    async def _sync(self) -> bool:
        segments = self._journal.unsynced()
        try:
            await anyio.to_thread.run_sync(_sync_all, segments)
        except OSError as error:
            _log.error("the journal cannot be synced: %s", error)
            return False
        return True

    async def _shorten(self) -> None:
        """Go on in a new segment as needed, and delete those that nobody needs."""
        try:
            self._journal.roll()
            settled = self._journal.settled_segments()
            if settled:
                await self._database.harden()
                self._journal.drop(settled)
        except OSError as error:
            _log.error("the journal cannot be shortened: %s", error)

    async def _record(self, records: list[UsageRecord]) -> None:
        while True:
            try:
                await settle(self._database, records, journals=self._journals)
            except UNREACHABLE as error:
                if not self._is_database_away:
                    _log.error("usage waits for the database: %s", type(error).__name__)
                self._is_database_away = True
                await anyio.sleep(RETRY_S)
            else:
                break
        if self._is_database_away:
            _log.warning("the database is back: usage is recorded")
        self._is_database_away = False


class _Open:
    """A request's entry, open inside the block. No generator: this is on the way of every request."""

    __slots__ = ("_entry", "_ledger", "_opening")

    def __init__(self, ledger: JournaledLedger, opening: Opening) -> None:
        self._ledger = ledger
        self._opening = opening

    async def __aenter__(self) -> JournaledEntry:
        self._entry = self._ledger.begin(self._opening)
        return self._entry

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        is_safe = await self._ledger.end(self._entry)
        if error is None and not is_safe:
            raise LedgerUnavailable


@asynccontextmanager
async def open_ledger(
    database: Database,
    journals: Path,
    *,
    max_open: int,
    max_unrecorded: int = MAX_UNRECORDED,
    max_segment_bytes: int | None = None,
    reconcile_every_s: float = RECONCILE_EVERY_S,
    reached: Reached = unwatched,
) -> AsyncIterator[JournaledLedger]:
    """Reconcile what other edges have left in a directory, then keep a ledger there and in the database.

    Leaving the block waits for what is not recorded yet. Raises `ConfigurationError` for a directory
    that cannot be written to.
    """
    await _reconcile_if_reachable(journals, database, reached)
    sizes = {} if max_segment_bytes is None else {"max_segment_bytes": max_segment_bytes}
    journal = create_journal(journals, num_slots=max_open, reached=reached, **sizes)
    ledger = JournaledLedger(
        database, journal, journals, max_unrecorded=max_unrecorded, reached=reached
    )
    is_settled = False
    try:
        async with background_tasks() as tasks:
            tasks.start_soon(ledger.sync_groups)
            tasks.start_soon(ledger.record_groups)
            tasks.start_soon(ledger.reconcile_others, reconcile_every_s)
            try:
                yield ledger
            finally:
                with anyio.CancelScope(shield=True):
                    is_settled = await ledger.finish()
    finally:
        journal.close(delete=is_settled)


def _sync_all(segments: list[SegmentFile]) -> None:
    for segment in segments:
        segment.sync()


async def _reconcile_if_reachable(journals: Path, database: Database, reached: Reached) -> None:
    try:
        await reconcile(journals, database, reached=reached)
    except UNREACHABLE as error:
        _log.error("journals of edges that are gone cannot be reconciled now: %s", error)
