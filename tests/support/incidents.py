"""What is told to a recorder of incidents."""

from __future__ import annotations

from collections.abc import Iterable

from tenantry_runtime.edge.incidents import IncidentRecorder
from tenantry_runtime.tenancy import IncidentKind, IncidentRecord


class Told(IncidentRecorder):
    """A recorder that remembers instead of recording."""

    def __init__(self) -> None:
        super().__init__(self)
        self.records: dict[str, IncidentRecord] = {}
        """By id, as told last; in the order in which they began."""

    async def record(self, records: Iterable[IncidentRecord]) -> None:
        raise AssertionError("nobody runs it")

    def update(self, record: IncidentRecord) -> None:
        self.records[record.id] = record

    def of(self, kind: IncidentKind) -> list[IncidentRecord]:
        return [each for each in self.records.values() if each.kind == kind]
