"""Brings incidents into the store, without anybody waiting for it."""

from __future__ import annotations

import logging
from collections import Counter, OrderedDict
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from itertools import islice
from typing import Protocol

import anyio

from tenantry_runtime.background import background_tasks
from tenantry_runtime.errors import StoreUnavailable
from tenantry_runtime.tenancy import IncidentKind, IncidentRecord

MAX_PENDING = 1024
"""Incidents that wait for the store. When there are so many, the store has been away for long, and the
oldest give way."""

MAX_AT_ONCE = 64
"""That one transaction keeps."""

FIRST_PAUSE_S = 1.0
LAST_PAUSE_S = 60.0
"""Between two attempts at a store that is away; they double."""

LAST_WORD_S = 2.0
"""What waits when the edge ends may take so long."""

_log = logging.getLogger(__name__)


class IncidentSink(Protocol):
    """Keeps incidents: `tenancy.IncidentStore`."""

    async def record(self, records: Iterable[IncidentRecord]) -> None:
        """Keep incidents, or what is told anew of them; raises `StoreUnavailable`."""
        ...


@asynccontextmanager
async def recording(sink: IncidentSink) -> AsyncIterator[IncidentRecorder]:
    """Record what the recorder is told for the duration of the context."""
    recorder = IncidentRecorder(sink)
    try:
        async with background_tasks() as tasks:
            tasks.start_soon(recorder.run)
            yield recorder
    finally:
        with anyio.move_on_after(LAST_WORD_S, shield=True):
            await recorder.end()


class IncidentRecorder:
    """Takes incidents at once; `run` records them, each as it was told last."""

    def __init__(self, sink: IncidentSink, *, first_pause_s: float = FIRST_PAUSE_S) -> None:
        self._sink = sink
        self._first_pause_s = first_pause_s
        self._pending: OrderedDict[str, IncidentRecord] = OrderedDict()
        """By id; those that are being recorded stay until they are."""
        self._has_some = anyio.Event()
        self._counts: Counter[IncidentKind] = Counter()

    @property
    def num_pending(self) -> int:
        return len(self._pending)

    @property
    def counts(self) -> Mapping[str, int]:
        """How many have begun, by kind."""
        return {kind.value: self._counts[kind] for kind in IncidentKind}

    def begin(self, record: IncidentRecord) -> None:
        """Take one that is new."""
        self._counts[record.kind] += 1
        _log.warning("incident %s: %s %s: %s", record.id, record.kind, record.node, record.detail)
        self.update(record)

    def update(self, record: IncidentRecord) -> None:
        """Take what one has become that was taken before."""
        if record.id not in self._pending and len(self._pending) >= MAX_PENDING:
            _, lost = self._pending.popitem(last=False)
            _log.error("the store is away for too long to keep incident %s", lost)
        self._pending[record.id] = record
        self._has_some.set()

    async def run(self) -> None:
        """Record until canceled."""
        pause_s = self._first_pause_s
        while True:
            await self._has_some.wait()
            try:
                await self._record_some()
                pause_s = self._first_pause_s
            except StoreUnavailable as error:
                _log.warning("%d incidents wait for the store: %s", len(self._pending), error)
                await anyio.sleep(pause_s)
                pause_s = min(2 * pause_s, LAST_PAUSE_S)

    async def end(self) -> None:
        """Record what waits, if the store answers now."""
        try:
            while self._pending:
                await self._record_some()
        except StoreUnavailable as error:
            _log.error("lost %d incidents: %s", len(self._pending), error)

    async def _record_some(self) -> None:
        """Record some of what waits; raises `StoreUnavailable`."""
        chosen = list(islice(self._pending.values(), MAX_AT_ONCE))
        try:
            await self._sink.record(chosen)
        except StoreUnavailable:
            raise
        except Exception:
            # what the store cannot take must not end the edge, nor keep the rest waiting
            _log.exception("lost incidents: %s", chosen)
        for record in chosen:
            # it may have become more meanwhile
            if self._pending.get(record.id) is record:
                del self._pending[record.id]
        if not self._pending:
            self._has_some = anyio.Event()
