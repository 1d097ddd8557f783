"""Brings what nodes tell of incidents into the store, without anybody waiting for it."""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Protocol

import anyio
from msgspec.structs import replace

from tenantry_runtime.background import background_tasks
from tenantry_runtime.errors import StoreUnavailable
from tenantry_runtime.pool.messages import Incident, NodeStatistics

MAX_PENDING = 1024
"""Incidents that wait for the store. Nodes take no more work after some dozen a minute: when there are so
many, the store has been away for long, and the oldest give way."""

MAX_KNOWN = 4096
"""Incidents that are not taken again when they are told again. What is forgotten is only kept once more,
and the store keeps each once."""

FIRST_PAUSE_S = 1.0
LAST_PAUSE_S = 60.0
"""Between two attempts at a store that is away; they double."""

_log = logging.getLogger(__name__)


class IncidentSink(Protocol):
    """Keeps incidents: `tenancy.IncidentStore`."""

    async def record(self, node: str, incarnation: int, incidents: Iterable[Incident]) -> None:
        """Keep what is new; raises `StoreUnavailable`."""
        ...


@asynccontextmanager
async def recording(sink: IncidentSink) -> AsyncIterator[IncidentRecorder]:
    """Record what the recorder hears for the duration of the context."""
    recorder = IncidentRecorder(sink)
    async with background_tasks() as tasks:
        tasks.start_soon(recorder.run)
        yield recorder


class IncidentRecorder:
    """Hears what nodes tell, any number of times; `run` records each incident."""

    def __init__(self, sink: IncidentSink, *, first_pause_s: float = FIRST_PAUSE_S) -> None:
        self._sink = sink
        self._first_pause_s = first_pause_s
        self._known: OrderedDict[tuple[int, Incident], None] = OrderedDict()
        self._pending: OrderedDict[tuple[int, Incident], str] = OrderedDict()
        """And the nodes that told them; those that are being recorded stay until they are."""
        self._has_some = anyio.Event()

    @property
    def num_pending(self) -> int:
        return len(self._pending)

    def hear(self, node: str, statistics: NodeStatistics) -> None:
        """Take what is new of a node's incidents."""
        for incident in statistics.incidents:
            key = (statistics.incarnation, incident)
            if key in self._known:
                continue
            self._known[key] = None
            if len(self._known) > MAX_KNOWN:
                self._known.popitem(last=False)
            if len(self._pending) >= MAX_PENDING:
                (_, lost), _ = self._pending.popitem(last=False)
                _log.error("the store is away for too long to keep incident %s", lost)
            self._pending[key] = node
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

    async def _record_some(self) -> None:
        """Record what waits of one life of one node; raises `StoreUnavailable`."""
        (incarnation, _), node = next(iter(self._pending.items()))
        chosen = [
            key
            for key, told_by in self._pending.items()
            if (key[0], told_by) == (incarnation, node)
        ]
        incidents = [_as_asked(incident) for _, incident in chosen]
        try:
            await self._sink.record(node, incarnation, incidents)
        except StoreUnavailable:
            raise
        except Exception:
            # what the store cannot take must not end the edge, nor keep the rest waiting
            _log.exception("lost incidents of node %s: %s", node, incidents)
        for key in chosen:
            self._pending.pop(key, None)
        if not self._pending:
            self._has_some = anyio.Event()


def _as_asked(incident: Incident) -> Incident:
    """Name the request as its client knows it: a node has each of its sequences under a longer name."""
    return replace(incident, request_id=incident.request_id.partition("#")[0])
