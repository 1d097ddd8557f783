"""The sink of an edge: whatever an engine tells is kept, and told to those who listen and who collect."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeAlias

from tenantry_runtime.workers.interface import Record

from .broker import TailBroker
from .kept import KeptLogs, LogLimits, open_logs

TakeRecord: TypeAlias = Callable[[Record], None]

_log = logging.getLogger(__name__)


class WorkerLogs:
    """A `LogSink`, and what is behind it."""

    def __init__(
        self, kept: KeptLogs, tails: TailBroker, *, export: TakeRecord | None = None
    ) -> None:
        self.kept = kept
        self.tails = tails
        self._export = export

    def record(self, record: Record) -> None:
        """Take what is known of an invocation; never waits, never raises."""
        try:
            self.tails.publish(record, self.kept.keep(record))
            if self._export is not None:
                self._export(record)
        except Exception:
            # a record that cannot be told must not end the engine that tells it
            _log.exception("lost a record of worker %s", record.version.worker)


@asynccontextmanager
async def open_worker_logs(
    directory: Path, limits: LogLimits | None = None, *, export: TakeRecord | None = None
) -> AsyncIterator[WorkerLogs]:
    """Keep logs below a directory for the duration of the context; leaving it ends all tails.

    `export` takes each record for its tenant's collector, without waiting; None: nobody has one.
    """
    async with open_logs(directory, limits) as kept:
        tails = TailBroker()
        try:
            yield WorkerLogs(kept, tails, export=export)
        finally:
            tails.close_all()
