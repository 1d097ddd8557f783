"""What is observed of nodes, as whoever scrapes the edge reads it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tenantry_runtime.pool.messages import NodeStatistics, ServiceReport, TenantService
from tenantry_runtime.pool.pool_report import PoolReport, StepCounts, TransferCounts
from tenantry_runtime.telemetry.metrics import METRICS, NodeMetrics, TopTenants, metering

POOL = PoolReport(
    model="kimi",
    phases=("prefill", "decode"),
    pages={"free": 5, "private": 3, "shared": 2, "quiescing": 0, "quarantined": 1},
    num_public_pages=1,
    tenant_pages={"acme": 3, "bolt": 2, "core": 1},
    num_running=2,
    num_waiting=7,
    num_preemptions=4,
    num_prompt_tokens=1000,
    num_cached_tokens=640,
    num_kept_pages=20,
    num_evicted_pages=12,
    steps={
        "prefill": StepCounts(10, 12, 640, 2_000_000_000, 0),
        "decode": StepCounts(100, 800, 800, 500_000_000, 1),
    },
    sent=TransferCounts(8, 4096, 2, 1, 3_000_000_000),
    received=TransferCounts(9, 8192, 0, 0, 0),
    mismatches={"decode read": 2},
)


@dataclass
class Nodes:
    """As the edge knows them."""

    health: Mapping[str, bool]
    statistics: Mapping[str, NodeStatistics] = field(default_factory=dict)


def statistics(pool: PoolReport = POOL, *, is_draining: bool = False) -> NodeStatistics:
    accounts = (TenantService("acme", 1, 12.5), TenantService("core", 1, 2.0))
    report = ServiceReport(model="kimi", phases=pool.phases, number=1, accounts=accounts)
    return NodeStatistics(
        loop_turn_ns=1,
        num_running=2,
        num_waiting=7,
        num_free_pages={},
        is_draining=is_draining,
        services=(report,),
        pools=(pool,),
    )


def scraped(nodes: Nodes, *, top: int = 2) -> dict[str, dict[tuple[str, ...], float]]:
    """Return samples by name, then by the values of labels that are not the pool's."""
    with metering({}, is_scraped=True) as meters:
        NodeMetrics(nodes, TopTenants(top)).register(meters.meter)
        text = meters.exposition().decode()
    place = {
        "model",
        "phase",
        "node",
        "otel_scope_name",
        "otel_scope_version",
        "otel_scope_schema_url",
    }
    samples: dict[str, dict[tuple[str, ...], float]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            labels = tuple(v for k, v in sorted(sample.labels.items()) if k not in place)
            samples.setdefault(sample.name, {})[labels] = sample.value
    return samples


def test_a_pools_report_is_read_back_as_it_was_made() -> None:
    samples = scraped(Nodes({"n:1": True}, {"n:1": statistics()}))
    assert samples["tenantry_sequences"] == {("running",): 2, ("waiting",): 7}
    assert samples["tenantry_pages"] == {(state,): n for state, n in POOL.pages.items()}
    assert samples["tenantry_prompt_tokens_total"] == {("cached",): 640, ("computed",): 360}
    assert samples["tenantry_prefix_pages_total"] == {("kept",): 20, ("evicted",): 12}
    assert samples["tenantry_steps_total"] == {
        ("ok", "prefill"): 10,
        ("failed", "prefill"): 0,
        ("ok", "decode"): 100,
        ("failed", "decode"): 1,
    }
    assert samples["tenantry_step_time_seconds_total"] == {("prefill",): 2.0, ("decode",): 0.5}
    assert samples["tenantry_step_sequences_total"] == {("prefill",): 12, ("decode",): 800}
    assert samples["tenantry_handoff_bytes_total"] == {("sent",): 4096, ("received",): 8192}
    assert samples["tenantry_handoffs_total"] == {("ok",): 2, ("failed",): 1}
    assert samples["tenantry_handoff_time_seconds_total"] == {(): 3.0}
    assert samples["tenantry_preemptions_total"] == {(): 4}


def test_an_op_that_has_found_nothing_yet_has_a_series_for_alerts_to_start_from() -> None:
    found = scraped(Nodes({"n:1": True}, {"n:1": statistics()}))[
        "tenantry_integrity_mismatches_total"
    ]
    assert found[("decode read",)] == 2
    assert found[("hand-off write",)] == 0
    assert len(found) == 6


def test_tenants_with_most_are_named_and_the_rest_is_added_up() -> None:
    samples = scraped(Nodes({"n:1": True}, {"n:1": statistics()}), top=1)
    assert samples["tenantry_pages_held"] == {("acme",): 3, ("other",): 3}
    assert samples["tenantry_service_total"] == {("acme",): 12.5}


def test_a_node_that_is_gone_says_nothing_but_that() -> None:
    nodes = Nodes({"n:1": False, "n:2": True}, {"n:1": statistics(), "n:2": statistics()})
    with metering({}, is_scraped=True) as meters:
        NodeMetrics(nodes).register(meters.meter)
        text = meters.exposition().decode()
    lines = [line for line in text.splitlines() if line.startswith("tenantry_sequences{")]
    assert lines and all('node="n:2"' in line for line in lines)
    assert scraped(Nodes({"n:1": False}, {}))["tenantry_node_up"] == {(): 0}


@pytest.mark.parametrize("name", [name for name in METRICS if "node" in name or "page" in name])
def test_what_the_catalog_says_of_pools_is_observed(name: str) -> None:
    samples = scraped(Nodes({"n:1": True}, {"n:1": statistics()}))
    assert any(each.startswith(name.replace(".", "_")) for each in samples)
