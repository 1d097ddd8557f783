"""Dashboard, alerts and documents name metrics that there are, and the documents name them all."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from opentelemetry.metrics import Observation

from tenantry_runtime.telemetry.metrics import METRICS, Metric, metering
from tenantry_runtime.telemetry.metrics.instruments import counter, histogram, observe

ROOT = Path(__file__).resolve().parents[4]
MONITORING = ROOT / "samples" / "monitoring"
NAME = re.compile(r"\b(?:tenantry|gen_ai)_[a-z_]+\b(?!\s*=[^=])")
LABELS = {
    attribute.replace(".", "_") for metric in METRICS.values() for attribute in metric.attributes
}


@pytest.fixture(scope="module")
def exposed() -> dict[str, Metric]:
    """Return the names under which each metric is scraped."""
    names: dict[str, Metric] = {}
    for metric in METRICS.values():
        with metering({}, is_scraped=True) as meters:
            match metric.kind:
                case "histogram":
                    histogram(meters.meter, metric.name).record(1.0)
                case "counter":
                    counter(meters.meter, metric.name).add(1)
                case "gauge":
                    observe(meters.meter, metric.name, lambda: [Observation(1)])
            text = meters.exposition().decode()
        found = {line.split("{")[0].split(" ")[0] for line in text.splitlines() if line[0] != "#"}
        names |= dict.fromkeys(found, metric)
    return names


def expressions() -> list[tuple[str, str]]:
    """Return all PromQL of the samples, each with where it stands."""
    dashboard = json.loads((MONITORING / "dashboard.json").read_text())
    alerts: Any = yaml.safe_load((MONITORING / "alerts.yml").read_text())
    panels = [
        (panel["title"], target["expr"])
        for panel in dashboard["panels"]
        for target in panel.get("targets", [])
    ]
    rules = [(rule["alert"], rule["expr"]) for group in alerts["groups"] for rule in group["rules"]]
    return panels + rules


@pytest.mark.parametrize(("where", "expression"), expressions(), ids=lambda text: text[:40])
def test_an_expression_names_metrics_and_labels_that_there_are(
    exposed: dict[str, Metric], where: str, expression: str
) -> None:
    named = set(NAME.findall(expression)) - LABELS
    assert named, where
    assert named <= set(exposed), where
    known = LABELS | {"le"}
    grouped = re.findall(r"by \(([^)]*)\)", expression)
    labels = {label.strip() for group in grouped for label in group.split(",")}
    labels |= set(re.findall(r"\{(\w+)=", expression))
    assert labels <= known, where


def test_alerts_cover_what_must_not_go_unseen() -> None:
    alerts = " ".join(name for name, _ in expressions())
    for name in ("CacheIntegrity", "QueueAge", "HitRateDrop", "LedgerLag", "NodeDown"):
        assert name in alerts


def test_the_documentation_has_every_metric_with_its_unit_and_attributes() -> None:
    rows = (ROOT / "docs" / "metrics.md").read_text().splitlines()
    for metric in METRICS.values():
        attributes = ", ".join(f"`{attribute}`" for attribute in metric.attributes)
        row = f"| `{metric.name}` | {metric.kind} | {metric.unit} | {attributes} | {metric.description} |"
        assert row in rows
