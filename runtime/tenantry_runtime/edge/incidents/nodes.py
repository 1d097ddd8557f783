"""Incidents of nodes: pages that were not their sequence's own, nodes that are lost, and drains.

| kind | begins | ends |
|---|---|---|
| `integrity` | a node tells of it | at once |
| `node_lost` | the node is given up: its stream broke, or its step loop did not turn for too long | its step loop turns again |
| `drain` | the node says that it drains, or leaves in order before it could say | it has left, or is lost |

Each edge tells what it sees: a node that is lost to two edges is two records, each with the edge's name
and with the requests that it had there. Mismatches alone are told by the node, and kept once.
"""

from __future__ import annotations

import time
import uuid
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

from tenantry_runtime.pool.messages import Incident, NodeStatistics, Submit
from tenantry_runtime.tenancy import IncidentKind, IncidentRecord
from tenantry_runtime.tenancy.incidents import MAX_NAMED, integrity_record

from .recorder import IncidentRecorder

MAX_KNOWN = 4096
"""Mismatches that are not taken again when they are told again. What is forgotten is only kept once
more, and the store keeps each once."""

MAX_CARRIED = 1024
"""Requests that went elsewhere from a node of which it is not known yet that it is lost."""


@dataclass(slots=True, eq=False, kw_only=True)
class _Loss:
    """A node that is lost: what it had, and what of that went on elsewhere."""

    record: IncidentRecord
    request_ids: frozenset[str]
    turn_ns: int
    """The last turn of its step loop that was told before."""
    carried: set[str] = field(default_factory=set)


class NodeIncidents:
    """Hears what nodes tell, and what becomes of them; tells the recorder."""

    def __init__(
        self,
        recorder: IncidentRecorder,
        *,
        edge: str,
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        self._recorder = recorder
        self._edge = edge
        self._now_ms = now_ms
        self._known: OrderedDict[tuple[int, Incident], None] = OrderedDict()
        self._turn_ns: dict[str, int] = {}
        self._losses: dict[str, _Loss] = {}
        """The latest of each node that is lost."""
        self._drains: dict[str, IncidentRecord] = {}
        self._carried: OrderedDict[tuple[str, str], None] = OrderedDict()

    def hear(self, node: str, statistics: NodeStatistics) -> None:
        """Take what a node says of itself, any number of times."""
        for incident in statistics.incidents:
            self._hear_mismatch(node, statistics.incarnation, incident)
        loss = self._losses.get(node)
        if loss is not None and statistics.loop_turn_ns != loss.turn_ns:
            del self._losses[node]
            self._end(loss.record)
        self._turn_ns[node] = statistics.loop_turn_ns
        drain = self._drains.get(node)
        if statistics.is_draining and drain is None:
            self._begin_drain(node, statistics)
        elif drain is not None and not statistics.is_draining:
            # another life of it
            del self._drains[node]
            self._end(drain)

    def lost(self, node: str, reason: str, unfinished: Sequence[Submit]) -> None:
        """Take that a node is given up, and what this edge had there."""
        drain = self._drains.pop(node, None)
        if drain is not None:
            self._end(replace(drain, detail=f"{drain.detail}; then it was lost"))
        if node in self._losses:
            # silent, and now its stream breaks too: nothing new
            self._add(self._losses[node], unfinished)
            return
        record = self._record(IncidentKind.NODE_LOST, node, unfinished, detail=reason)
        loss = self._losses[node] = _Loss(
            record=record,
            request_ids=_request_ids(unfinished),
            turn_ns=self._turn_ns.get(node, 0),
        )
        loss.carried = {each for each in loss.request_ids if (node, each) in self._carried}
        self._tell_loss(loss, self._recorder.begin)

    def left(self, node: str, cut_off: Sequence[Submit]) -> None:
        """Take that a node has ended in order, and what it did not wait for."""
        drain = self._drains.pop(node, None)
        if drain is None:
            # before it was asked how it is
            drain = self._record(IncidentKind.DRAIN, node, detail="the node left")
            self._recorder.begin(drain)
        facts = {**drain.facts, "cut_off": len(_request_ids(cut_off))}
        self._end(replace(_naming(drain, cut_off), facts=facts))

    def carried(self, node: str, request_id: str) -> None:
        """Take that a request goes on elsewhere that a node has failed, before or after it is lost."""
        name = _of_client(request_id)
        self._carried[node, name] = None
        if len(self._carried) > MAX_CARRIED:
            self._carried.popitem(last=False)
        loss = self._losses.get(node)
        if loss is not None and name in loss.request_ids and name not in loss.carried:
            loss.carried.add(name)
            self._tell_loss(loss, self._recorder.update)

    def _hear_mismatch(self, node: str, incarnation: int, incident: Incident) -> None:
        key = (incarnation, incident)
        if key in self._known:
            return
        self._known[key] = None
        if len(self._known) > MAX_KNOWN:
            self._known.popitem(last=False)
        self._recorder.begin(integrity_record(node, incarnation, incident))

    def _begin_drain(self, node: str, statistics: NodeStatistics) -> None:
        record = self._record(IncidentKind.DRAIN, node, detail="the node takes nothing new")
        facts = {"running": statistics.num_running, "waiting": statistics.num_waiting}
        drain = self._drains[node] = replace(record, facts=facts)
        self._recorder.begin(drain)

    def _add(self, loss: _Loss, unfinished: Sequence[Submit]) -> None:
        more = [each for each in unfinished if _of_client(each.request_id) not in loss.request_ids]
        if more:
            loss.request_ids |= _request_ids(more)
            loss.record = replace(_naming(loss.record, more), seen_ms=self._now_ms())
            self._tell_loss(loss, self._recorder.update)

    def _tell_loss(self, loss: _Loss, tell: Callable[[IncidentRecord], None]) -> None:
        facts = {"unfinished": len(loss.request_ids), "carried": len(loss.carried)}
        loss.record = replace(loss.record, facts=facts)
        tell(loss.record)

    def _end(self, record: IncidentRecord) -> None:
        now_ms = self._now_ms()
        self._recorder.update(replace(record, seen_ms=now_ms, ended_ms=now_ms))

    def _record(
        self, kind: IncidentKind, node: str, submits: Sequence[Submit] = (), *, detail: str
    ) -> IncidentRecord:
        now_ms = self._now_ms()
        record = IncidentRecord(
            id=uuid.uuid4().hex,
            kind=kind,
            began_ms=now_ms,
            seen_ms=now_ms,
            edge=self._edge,
            node=node,
            detail=detail,
        )
        return _naming(record, submits)


def _naming(record: IncidentRecord, submits: Sequence[Submit]) -> IncidentRecord:
    """Return a record that names these requests too, as far as there is room."""
    return replace(
        record,
        tenants=tuple(sorted(_some(record.tenants, (each.tenant for each in submits)))),
        request_ids=_some(record.request_ids, (_of_client(each.request_id) for each in submits)),
        trace_ids=_some(record.trace_ids, (each.trace_id for each in submits if each.trace_id)),
    )


def _some(before: tuple[str, ...], more: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys([*before, *more]))[:MAX_NAMED]


def _request_ids(submits: Iterable[Submit]) -> frozenset[str]:
    return frozenset(_of_client(each.request_id) for each in submits)


def _of_client(name: str) -> str:
    """Return the request that its client knows; its further answers' sequences have longer names."""
    return name.partition("#")[0]
