"""What an edge has in hand, as a scraper sees it."""

from __future__ import annotations

from support.incidents import Told
from tenantry_runtime.edge.incidents import NodeIncidents
from tenantry_runtime.routing.retry import RetryBudget
from tenantry_runtime.telemetry.metrics import EdgeMetrics, metering
from tenantry_runtime.tenancy import LedgerStatistics, NoLedger


def test_incidents_are_counted_by_kind_and_those_of_which_there_are_none_too() -> None:
    recorder = Told()
    incidents = NodeIncidents(recorder, edge="here:1")
    for node in ("a", "b"):
        incidents.lost(node, "gone", [])
        # more of the same
        incidents.lost(node, "gone", [])
    incidents.left("c", [])
    with metering({}, is_scraped=True) as meters:
        ledger: LedgerStatistics = NoLedger().statistics()
        EdgeMetrics(
            num_open_requests=lambda: 0,
            ledger=lambda: ledger,
            incidents=lambda: recorder.counts,
            retries=RetryBudget().statistics,
        ).register(meters.meter)
        text = meters.exposition().decode()

    counted = {
        line.partition('kind="')[2].partition('"')[0]: float(line.rpartition(" ")[2])
        for line in text.splitlines()
        if line.startswith("tenantry_incidents_total{")
    }
    assert counted == {"integrity": 0, "node_lost": 2, "drain": 1, "quota_storm": 0}
