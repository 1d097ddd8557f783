"""What nodes say of themselves, as metrics of the edge that hears it.

Several edges hear the same nodes: every series names its node, and one edge's are enough.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

from opentelemetry.metrics import Meter, Observation

from tenantry_runtime.pool.messages import NodeStatistics
from tenantry_runtime.pool.pool_report import PoolReport

from .instruments import observe
from .tenants import OTHER, TopTenants


class KnownNodes(Protocol):
    """Where the latest statistics are (`edge.nodes.Nodes`)."""

    @property
    def health(self) -> Mapping[str, bool]:
        """By address, whether a node answers."""
        ...

    @property
    def statistics(self) -> Mapping[str, NodeStatistics]:
        """By address, the latest of each node that has ever answered."""
        ...


Values = Iterator[tuple[float, dict[str, str]]]
"""Values of a metric, each with what tells it from the others of a pool."""


@dataclass
class NodeMetrics:
    """Observes nodes whenever somebody collects."""

    nodes: KnownNodes
    tenants: TopTenants = field(default_factory=TopTenants)

    def register(self, meter: Meter) -> None:
        observe(meter, "tenantry.node.up", self._up)
        observe(meter, "tenantry.node.draining", self._draining)
        for name, values in _POOL_METRICS.items():
            observe(meter, name, partial(self._of_pools, values))
        observe(meter, "tenantry.pages.held", partial(self._of_pools, self._held))
        observe(meter, "tenantry.service", partial(self._of_pools, self._service))

    def _up(self) -> list[Observation]:
        return [
            Observation(int(is_up), {"node": node}) for node, is_up in self.nodes.health.items()
        ]

    def _draining(self) -> list[Observation]:
        statistics = self.nodes.statistics.items()
        return [Observation(int(each.is_draining), {"node": node}) for node, each in statistics]

    def _of_pools(
        self, values: Callable[[PoolReport, NodeStatistics], Values]
    ) -> list[Observation]:
        health = self.nodes.health
        return [
            Observation(value, {**_place(node, pool), **attributes})
            for node, statistics in self.nodes.statistics.items()
            # what a node had that is gone is no longer so
            if health.get(node, False)
            for pool in statistics.pools
            for value, attributes in values(pool, statistics)
        ]

    def _held(self, pool: PoolReport, _: NodeStatistics) -> Values:
        rest = 0
        for tenant, num_pages in pool.tenant_pages.items():
            label = self.tenants.label(tenant)
            if label == OTHER:
                rest += num_pages
            else:
                yield num_pages, {"tenant": label}
        yield rest, {"tenant": OTHER}

    def _service(self, pool: PoolReport, statistics: NodeStatistics) -> Values:
        for report in statistics.services:
            if (report.model, report.phases) != (pool.model, pool.phases):
                continue
            for account in report.accounts:
                # a sum of the others would shrink whenever one of them is named
                if (label := self.tenants.label(account.tenant)) != OTHER:
                    yield account.amount, {"tenant": label}


def _place(node: str, pool: PoolReport) -> dict[str, str]:
    return {"model": pool.model, "phase": "+".join(pool.phases), "node": node}


def _preemptions(pool: PoolReport, _: NodeStatistics) -> Values:
    yield pool.num_preemptions, {}


def _public_pages(pool: PoolReport, _: NodeStatistics) -> Values:
    yield pool.num_public_pages, {}


def _sequences(pool: PoolReport, _: NodeStatistics) -> Values:
    yield pool.num_running, {"state": "running"}
    yield pool.num_waiting, {"state": "waiting"}


def _prompt_tokens(pool: PoolReport, _: NodeStatistics) -> Values:
    yield pool.num_cached_tokens, {"kind": "cached"}
    yield pool.num_prompt_tokens - pool.num_cached_tokens, {"kind": "computed"}


def _pages(pool: PoolReport, _: NodeStatistics) -> Values:
    for state, num_pages in pool.pages.items():
        yield num_pages, {"state": state}


def _prefix_pages(pool: PoolReport, _: NodeStatistics) -> Values:
    yield pool.num_kept_pages, {"kind": "kept"}
    yield pool.num_evicted_pages, {"kind": "evicted"}


def _steps(pool: PoolReport, _: NodeStatistics) -> Values:
    for phase, counts in pool.steps.items():
        yield counts.num_steps, {"step": phase, "outcome": "ok"}
        yield counts.num_failed, {"step": phase, "outcome": "failed"}


def _step_sequences(pool: PoolReport, _: NodeStatistics) -> Values:
    for phase, counts in pool.steps.items():
        yield counts.num_sequences, {"step": phase}


def _step_tokens(pool: PoolReport, _: NodeStatistics) -> Values:
    for phase, counts in pool.steps.items():
        yield counts.num_tokens, {"step": phase}


def _step_time(pool: PoolReport, _: NodeStatistics) -> Values:
    for phase, counts in pool.steps.items():
        yield counts.took_ns / 1e9, {"step": phase}


def _handoff_pages(pool: PoolReport, _: NodeStatistics) -> Values:
    yield pool.sent.num_pages, {"direction": "sent"}
    yield pool.received.num_pages, {"direction": "received"}


def _handoff_bytes(pool: PoolReport, _: NodeStatistics) -> Values:
    yield pool.sent.num_bytes, {"direction": "sent"}
    yield pool.received.num_bytes, {"direction": "received"}


def _handoffs(pool: PoolReport, _: NodeStatistics) -> Values:
    yield pool.sent.num_handoffs, {"outcome": "ok"}
    yield pool.sent.num_failed, {"outcome": "failed"}


def _handoff_time(pool: PoolReport, _: NodeStatistics) -> Values:
    yield pool.sent.took_ns / 1e9, {}


def _mismatches(pool: PoolReport, _: NodeStatistics) -> Values:
    # with a series before the first, an alert sees the first
    for op in {*_OPS, *pool.mismatches}:
        yield pool.mismatches.get(op, 0), {"op": op}


_OPS = (
    "prefill read",
    "prefill append",
    "decode read",
    "decode append",
    "hand-off read",
    "hand-off write",
)

_POOL_METRICS = {
    "tenantry.sequences": _sequences,
    "tenantry.preemptions": _preemptions,
    "tenantry.prompt.tokens": _prompt_tokens,
    "tenantry.pages": _pages,
    "tenantry.pages.public": _public_pages,
    "tenantry.prefix.pages": _prefix_pages,
    "tenantry.steps": _steps,
    "tenantry.step.sequences": _step_sequences,
    "tenantry.step.tokens": _step_tokens,
    "tenantry.step.time": _step_time,
    "tenantry.handoff.pages": _handoff_pages,
    "tenantry.handoff.bytes": _handoff_bytes,
    "tenantry.handoffs": _handoffs,
    "tenantry.handoff.time": _handoff_time,
    "tenantry.integrity.mismatches": _mismatches,
}
