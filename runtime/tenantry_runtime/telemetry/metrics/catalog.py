"""All metrics by name: what dashboards, alerts and documents may name, and nothing else is recorded.

| attribute | on | values |
|---|---|---|
| `gen_ai.operation.name`, `gen_ai.provider.name`, `gen_ai.request.model`, `error.type` | `gen_ai.…` | as OpenTelemetry's GenAI conventions have them |
| `model`, `phase`, `node` | pools and hand-offs | of a member; `phase` is both where members share a pool |
| `kind`, `state`, `direction`, `op`, `reason`, `outcome` | where a table below says so | |
| `tenant` | where a table below says so | the tenants with most, `other` for the rest (`tenants.py`) |

Counters only grow, and of nodes and isolates begin anew with the process that counts: rates are made
of them where they are kept. A share is never a metric here, but two counters.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

Kind = Literal["counter", "histogram", "gauge"]


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric."""

    name: str
    kind: Kind
    unit: str
    description: str
    attributes: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()


# the buckets are the conventions' own
_DURATION = (0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92)
_FIRST_TOKEN = (
    0.001,
    0.005,
    0.01,
    0.02,
    0.04,
    0.06,
    0.08,
    0.1,
    0.25,
    0.5,
    0.75,
    1,
    2.5,
    5,
    7.5,
    10,
)
_PER_TOKEN = (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5)

_COLD_START = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10)

_GEN_AI = ("gen_ai.operation.name", "gen_ai.provider.name", "gen_ai.request.model")
_POOL = ("model", "phase", "node")

_ALL = (
    # requests
    Metric(
        "gen_ai.server.request.duration",
        "histogram",
        "s",
        "From headers to the last byte",
        (*_GEN_AI, "error.type"),
        _DURATION,
    ),
    Metric(
        "gen_ai.server.time_to_first_token",
        "histogram",
        "s",
        "From headers to the first token, of whole answers",
        _GEN_AI,
        _FIRST_TOKEN,
    ),
    Metric(
        "gen_ai.server.time_per_output_token",
        "histogram",
        "s",
        "Between tokens after the first, of whole answers",
        _GEN_AI,
        _PER_TOKEN,
    ),
    Metric(
        "tenantry.requests",
        "counter",
        "{request}",
        "Requests for answers that have ended",
        ("model", "outcome", "tenant"),
    ),
    Metric(
        "tenantry.tokens",
        "counter",
        "{token}",
        "Tokens of requests; input leaves out what was cached",
        ("model", "kind", "tenant"),
    ),
    Metric("tenantry.requests.open", "gauge", "{request}", "Requests that an edge serves now"),
    Metric(
        "tenantry.refusals",
        "counter",
        "{request}",
        "Requests that a limit, a queue or a missing node refused",
        ("model", "reason"),
    ),
    Metric(
        "tenantry.retries",
        "counter",
        "{attempt}",
        "Attempts after a failure that nobody was told of",
        ("model",),
    ),
    Metric(
        "tenantry.retries.left",
        "gauge",
        "{attempt}",
        "Retries that the edge's budget has for all tenants together; each request earns a fifth of one",
        (),
    ),
    Metric(
        "tenantry.retries.refused",
        "counter",
        "{attempt}",
        "Failures that were not tried again, as a tenant, a member or all together had no retry left",
        (),
    ),
    Metric(
        "tenantry.drift.tokens",
        "counter",
        "{token}",
        "Tokens of answers that were asked for again of a prefill member, whose formats are the "
        "larger; outcome is same, other or unknown",
        ("model", "outcome"),
    ),
    # what has to be kept
    Metric(
        "tenantry.ledger.unrecorded",
        "gauge",
        "{record}",
        "Requests that have ended and are not in the database yet",
    ),
    Metric("tenantry.ledger.lag", "gauge", "s", "For how long the oldest of them has waited"),
    Metric("tenantry.ledger.records", "counter", "{record}", "Usage records written by this edge"),
    Metric(
        "tenantry.incidents",
        "counter",
        "{incident}",
        "Incidents that this edge has seen begin; kind is integrity, node_lost, drain or quota_storm",
        ("kind",),
    ),
    # nodes
    Metric("tenantry.node.up", "gauge", "1", "Whether a node answers", ("node",)),
    Metric("tenantry.node.draining", "gauge", "1", "Whether it takes nothing new", ("node",)),
    Metric(
        "tenantry.sequences",
        "gauge",
        "{sequence}",
        "Sequences of a pool; state is running or waiting",
        (*_POOL, "state"),
    ),
    Metric(
        "tenantry.preemptions",
        "counter",
        "{sequence}",
        "Sequences whose pages others needed",
        _POOL,
    ),
    Metric(
        "tenantry.prompt.tokens",
        "counter",
        "{token}",
        "Prompt tokens admitted; kind is cached or computed",
        (*_POOL, "kind"),
    ),
    Metric(
        "tenantry.pages",
        "gauge",
        "{page}",
        "Pages by state: free, private, shared, quiescing, quarantined",
        (*_POOL, "state"),
    ),
    Metric(
        "tenantry.pages.public", "gauge", "{page}", "Shared pages that are the operator's", _POOL
    ),
    Metric(
        "tenantry.pages.held",
        "gauge",
        "{page}",
        "Pages of a tenant: private, shared or quiescing",
        (*_POOL, "tenant"),
    ),
    Metric(
        "tenantry.prefix.pages",
        "counter",
        "{page}",
        "Pages of prefix trees; kind is kept or evicted",
        (*_POOL, "kind"),
    ),
    Metric(
        "tenantry.steps",
        "counter",
        "{step}",
        "Steps; outcome is ok or failed",
        (*_POOL, "step", "outcome"),
    ),
    Metric(
        "tenantry.step.sequences",
        "counter",
        "{sequence}",
        "Rows of steps' batches, added up; each is one check of its pages",
        (*_POOL, "step"),
    ),
    Metric("tenantry.step.tokens", "counter", "{token}", "Tokens computed", (*_POOL, "step")),
    Metric(
        "tenantry.step.time",
        "counter",
        "s",
        "Time of steps, from launch to outcome",
        (*_POOL, "step"),
    ),
    Metric(
        "tenantry.handoff.pages",
        "counter",
        "{page}",
        "Pages that crossed, each checked; direction is sent or received",
        (*_POOL, "direction"),
    ),
    Metric(
        "tenantry.handoff.bytes", "counter", "By", "Their bytes on the wire", (*_POOL, "direction")
    ),
    Metric(
        "tenantry.handoffs",
        "counter",
        "{handoff}",
        "Hand-offs that ended; outcome is ok or failed",
        (*_POOL, "outcome"),
    ),
    Metric(
        "tenantry.handoff.time",
        "counter",
        "s",
        "Time of those confirmed, from open way to confirmation",
        _POOL,
    ),
    Metric(
        "tenantry.integrity.mismatches",
        "counter",
        "{page}",
        "Pages that were not their sequence's own",
        (*_POOL, "op"),
    ),
    Metric(
        "tenantry.service",
        "counter",
        "1",
        "What a pool has given a tenant, as fairness counts",
        (*_POOL, "tenant"),
    ),
    # workers
    Metric(
        "tenantry.worker.invocations",
        "counter",
        "{invocation}",
        "Invocations of workers that have ended; kind is fetch, scheduled or rpc",
        ("kind", "outcome", "tenant"),
    ),
    Metric(
        "tenantry.worker.duration",
        "histogram",
        "s",
        "From the request to the end of the response and of `wait_until`",
        ("kind", "outcome"),
        _DURATION,
    ),
    Metric(
        "tenantry.worker.cold_start",
        "histogram",
        "s",
        "What invocations waited for an isolate, of those that did",
        (),
        _COLD_START,
    ),
    Metric("tenantry.worker.cpu", "counter", "s", "CPU time that workers used", ("tenant",)),
    Metric(
        "tenantry.isolates",
        "gauge",
        "{isolate}",
        "Isolates by state: blank, idle, or busy, which those that start or end are too",
        ("state",),
    ),
    Metric(
        "tenantry.isolates.idle_memory",
        "gauge",
        "By",
        "Memory of idle isolates that is theirs alone, about",
    ),
    Metric(
        "tenantry.isolates.started",
        "counter",
        "{isolate}",
        "Isolates that were given a worker's version",
    ),
    Metric(
        "tenantry.isolates.ended",
        "counter",
        "{isolate}",
        "Those of them that have ended; reason is an invocation's outcome, or retired",
        ("reason",),
    ),
)

METRICS: Mapping[str, Metric] = MappingProxyType({metric.name: metric for metric in _ALL})
