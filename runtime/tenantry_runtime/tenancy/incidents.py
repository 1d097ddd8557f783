"""Incidents: what went wrong with nodes and tenants, as edges have told of it. The operator's alone.

| kind | one record is | `facts` |
|---|---|---|
| `integrity` | a page that was not its sequence's own | `step`, `op`, `logical_page`, `page`, `found` |
| `node_lost` | a node that an edge gave up, until it turns again | `unfinished` requests there; those `carried` elsewhere |
| `drain` | a node that took nothing new, until it left | `running` and `waiting`, as it said last; requests that it `cut_off` |
| `quota_storm` | a tenant's many refusals, until it was quiet | `refusals`, and how many by each limit |
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from itertools import groupby
from typing import Any, TypeAlias

import msgspec
import sqlalchemy as sa
from msgspec.structs import replace

from tenantry_runtime.pool.messages import Incident

from . import schema
from .database import Database

MAX_NAMED = 32
"""Tenants, requests and traces that a record names, of each; its facts count all."""

DAY_MS = 86_400_000

SWEEP_STEP = 200
"""Records that one transaction deletes."""

SWEEP_STEPS = 50
"""Of one sweep, so that others come between."""

Fact: TypeAlias = int | str | list[str] | None


class IncidentKind(StrEnum):
    INTEGRITY = "integrity"
    """A page that was not its sequence's own; nothing of it was told."""
    NODE_LOST = "node_lost"
    """A node's connection was lost, or its step loop turned no more."""
    DRAIN = "drain"
    """A node was told to take nothing new and to leave."""
    QUOTA_STORM = "quota_storm"
    """One tenant was refused for its limits again and again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IncidentRecord:
    """One incident. Names tenants and requests, never what they said."""

    id: str
    kind: IncidentKind
    began_ms: int
    """Unix time, as `seen_ms` and `ended_ms`."""
    seen_ms: int
    """Of the last sign of it."""
    ended_ms: int | None = None
    """None: it lasts, or whoever told of it ended before."""
    edge: str = ""
    """Whose view it is; empty where a node told it, and all edges hear the same."""
    node: str = ""
    """Its address; empty where no node is concerned."""
    model: str = ""
    """Of the member; empty where the whole node is concerned, or none."""
    tenants: tuple[str, ...] = ()
    """Sorted. At most `MAX_NAMED`, as the requests and traces."""
    request_ids: tuple[str, ...] = ()
    trace_ids: tuple[str, ...] = ()
    """32 hexadecimal digits each; none where nobody traces the requests."""
    detail: str = ""
    facts: Mapping[str, Fact] = field(default_factory=dict)


def integrity_record(node: str, incarnation: int, incident: Incident) -> IncidentRecord:
    """Return the record of what a node told; the same from whichever edge, however often it is told."""
    # as its client knows it: a node has each of its sequences under a longer name
    request_id = incident.request_id.partition("#")[0]
    identity = msgspec.json.encode((incarnation, replace(incident, request_id=request_id)))
    time_ms = round(incident.time_s * 1000)
    return IncidentRecord(
        id=hashlib.sha256(identity).hexdigest()[:32],
        kind=IncidentKind.INTEGRITY,
        began_ms=time_ms,
        seen_ms=time_ms,
        ended_ms=time_ms,
        node=node,
        model=incident.model,
        tenants=(incident.tenant,),
        request_ids=(request_id,),
        trace_ids=(incident.trace_id,) if incident.trace_id else (),
        detail=f"{incident.op}: {', '.join(incident.found)} of a page differed",
        facts={
            "step": incident.step,
            "op": incident.op,
            "logical_page": incident.logical_page,
            "page": incident.page,
            "found": list(incident.found),
        },
    )


class IncidentStore:
    """Keeps each incident once, as it was told last."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def record(self, records: Iterable[IncidentRecord]) -> None:
        """Keep incidents; one that is there already becomes as it is told now."""
        # in one order, so that edges that tell the same do not wait for each other in a circle
        ordered = sorted(records, key=lambda each: each.id)
        if not ordered:
            return
        insert = self._database.insert(schema.incidents)
        tells = insert.on_conflict_do_update(
            index_elements=["id"], set_={name: insert.excluded[name] for name in _CHANGING}
        )
        tenants = [
            {"incident_id": each.id, "account_id": tenant}
            for each in ordered
            for tenant in each.tenants
        ]
        names = self._database.insert(schema.incident_tenants).on_conflict_do_nothing()
        async with self._database.begin() as connection:
            await connection.execute(tells, [_row(each) for each in ordered])
            if tenants:
                await connection.execute(names, tenants)

    async def list(
        self,
        *,
        kind: IncidentKind | None = None,
        account: str | None = None,
        since_ms: int = 0,
        limit: int = 100,
    ) -> list[IncidentRecord]:
        """Return the latest, those first: of one kind or all, that befell one account or any."""
        incidents, theirs = schema.incidents, schema.incident_tenants
        wanted = sa.select(incidents.c.id).where(incidents.c.began_ms >= since_ms)
        if kind is not None:
            wanted = wanted.where(incidents.c.kind == kind)
        if account is not None:
            wanted = wanted.join(theirs).where(theirs.c.account_id == account)
        latest = wanted.order_by(incidents.c.began_ms.desc(), incidents.c.id).limit(limit)
        return await _read(self._database, incidents.c.id.in_(latest))

    async def named(self, prefix: str, *, limit: int = 2) -> Sequence[IncidentRecord]:
        """Return incidents whose id begins so."""
        incidents = schema.incidents
        begins = incidents.c.id.startswith(prefix, autoescape=True)
        some = sa.select(incidents.c.id).where(begins).order_by(incidents.c.id).limit(limit)
        return await _read(self._database, incidents.c.id.in_(some))

    async def sweep(self, *, keep_days: float, max_kept: int) -> int:
        """Delete some of those that began longer ago, or of whose kind there are more; return how many.

        Each kind has its own count: a tenant that brings about many of one drives out no other.
        """
        incidents = schema.incidents
        ids = sa.select(incidents.c.id)
        latest = incidents.c.began_ms.desc(), incidents.c.id
        too_old = ids.where(
            incidents.c.began_ms < self._database.now_ms() - round(keep_days * DAY_MS)
        )
        too_many = [
            ids.where(incidents.c.kind == kind).order_by(*latest).offset(max_kept)
            for kind in IncidentKind
        ]
        return sum([await self._delete(each) for each in (too_old, *too_many)])

    async def _delete(self, superfluous: sa.Select[tuple[str]]) -> int:
        incidents = schema.incidents
        num_deleted = 0
        for _ in range(SWEEP_STEPS):
            async with self._database.begin() as connection:
                some = (await connection.execute(superfluous.limit(SWEEP_STEP))).scalars().all()
                if some:
                    await connection.execute(sa.delete(incidents).where(incidents.c.id.in_(some)))
            num_deleted += len(some)
            if len(some) < SWEEP_STEP:
                break
        return num_deleted


_CHANGING = ("seen_ms", "ended_ms", "request_ids", "trace_ids", "detail", "facts")
"""What is told of an incident anew while it lasts; its tenants may become more."""


async def _read(database: Database, which: sa.ColumnElement[bool]) -> list[IncidentRecord]:
    """Return incidents, the latest first."""
    incidents, theirs = schema.incidents, schema.incident_tenants
    rows = (
        sa.select(incidents, theirs.c.account_id)
        .outerjoin(theirs)
        .where(which)
        .order_by(incidents.c.began_ms.desc(), incidents.c.id, theirs.c.account_id)
    )
    async with database.connect() as connection:
        found = (await connection.execute(rows)).mappings().all()
    return [_record(list(same)) for _, same in groupby(found, key=lambda row: row["id"])]


# Any: as the columns have it
def _row(record: IncidentRecord) -> dict[str, Any]:
    row = asdict(record)
    del row["tenants"]
    return {**row, **{name: list(row[name]) for name in ("request_ids", "trace_ids")}}


def _record(rows: list[sa.RowMapping]) -> IncidentRecord:
    """Make one incident of its rows, one for each tenant."""
    row = dict(rows[0])
    del row["account_id"]
    return IncidentRecord(
        **{
            **row,
            "kind": IncidentKind(row["kind"]),
            "tenants": tuple(each["account_id"] for each in rows if each["account_id"] is not None),
            "request_ids": tuple(row["request_ids"]),
            "trace_ids": tuple(row["trace_ids"]),
        }
    )
