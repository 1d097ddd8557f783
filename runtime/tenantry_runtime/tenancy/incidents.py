"""Incidents: pages that were not their sequence's own, as nodes have told of them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import msgspec
import sqlalchemy as sa

from tenantry_runtime.pool.messages import Incident

from . import schema
from .database import Database


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredIncident:
    """What a node told, and which node."""

    id: str
    time_ms: int
    node: str
    model: str
    account_id: str
    request_id: str
    step: int
    op: str
    logical_page: int | None
    page: int | None
    found: tuple[str, ...]


class IncidentStore:
    """Keeps each incident once, however often and by how many edges it is told."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def record(self, node: str, incarnation: int, incidents: Iterable[Incident]) -> None:
        """Keep what is new of the incidents of a node, known by its address and its incarnation."""
        rows = [_row(node, incarnation, incident) for incident in incidents]
        if not rows:
            return
        insert = self._database.insert(schema.incidents).on_conflict_do_nothing()
        async with self._database.begin() as connection:
            await connection.execute(insert, rows)

    async def list(
        self, *, account: str | None = None, since_ms: int = 0, limit: int = 100
    ) -> list[StoredIncident]:
        """Return the latest, those first, of one account or of all."""
        incidents = schema.incidents
        wanted = (
            sa.select(incidents)
            .where(incidents.c.time_ms >= since_ms)
            .order_by(incidents.c.time_ms.desc(), incidents.c.id)
            .limit(limit)
        )
        if account is not None:
            wanted = wanted.where(incidents.c.account_id == account)
        async with self._database.connect() as connection:
            found = await connection.execute(wanted)
        return [StoredIncident(**{**row, "found": tuple(row["found"])}) for row in found.mappings()]


# Any: as the columns have it
def _row(node: str, incarnation: int, incident: Incident) -> dict[str, Any]:
    identity = msgspec.json.encode((incarnation, incident))
    return {
        "id": hashlib.sha256(identity).hexdigest()[:32],
        "time_ms": round(incident.time_s * 1000),
        "node": node,
        "model": incident.model,
        "account_id": incident.tenant,
        "request_id": incident.request_id,
        "step": incident.step,
        "op": incident.op,
        "logical_page": incident.logical_page,
        "page": incident.page,
        "found": list(incident.found),
    }
