"""Everything that an operator steers by, as of now: what `workerctl top` and the console show."""

from __future__ import annotations

import time
from dataclasses import asdict
from datetime import UTC, datetime

from tenantry_runtime.edge.services import Services
from tenantry_runtime.errors import NodeUnavailable, StoreUnavailable
from tenantry_runtime.pool.interface import TokenSource
from tenantry_runtime.pool.messages import NodeStatistics, is_background
from tenantry_runtime.telemetry.metrics import RecentRequests
from tenantry_runtime.tenancy.ledger.report import By, Period, usage_sums

from .report import (
    IncidentOverview,
    MemberOverview,
    NodeOverview,
    Overview,
    TenantOverview,
    UsageOverview,
)

NUM_INCIDENTS = 20
NUM_TENANTS = 50
"""Those to which most was given, or that used most."""


async def overview(services: Services, recent: RecentRequests) -> Overview:
    """Look at everything once. A store that does not answer leaves out what only it knows."""
    nodes = [
        _node(node, services.nodes.statistics.get(node.address)) for node in services.nodes.all
    ]
    tenants: list[TenantOverview] = []
    usage: list[UsageOverview] = []
    incidents: list[IncidentOverview] = []
    try:
        tenants = await _tenants(services)
        usage = await _usage(services)
        incidents = await _incidents(services)
    except StoreUnavailable:
        # `/ready` says so
        pass
    return Overview(
        time_ms=time.time_ns() // 1_000_000,
        num_open_requests=services.open_requests.statistics().num_open,
        num_unrecorded=services.ledger.statistics().num_unrecorded,
        nodes=nodes,
        tenants=tenants,
        usage=usage,
        incidents=incidents,
        latencies={
            offer.entry.id: [asdict(each) for each in recent.slices(offer.entry.id)]
            for offer in services.offers.all
        },
    )


def _node(node: TokenSource, statistics: NodeStatistics | None) -> NodeOverview:
    try:
        members = node.description.members
    except NodeUnavailable:
        members = ()
    is_up = node.is_healthy
    known = statistics if is_up else None
    return NodeOverview(
        address=node.address,
        is_up=is_up,
        is_draining=known is not None and known.is_draining,
        turn_age_s=None if statistics is None else time.time() - statistics.loop_turn_ns / 1e9,
        members=[
            MemberOverview(
                model=member.model,
                phase=member.phase,
                weights_format=member.weights_format,
                cache_format=member.cache_format,
                ops=member.coverage,
            )
            for member in members
        ],
        pools=() if known is None else known.pools,
    )


async def _tenants(services: Services) -> list[TenantOverview]:
    given: dict[str, float] = {}
    pages: dict[str, int] = {}
    for statistics in services.nodes.statistics.values():
        for report in statistics.services:
            for account in report.accounts:
                given[account.tenant] = given.get(account.tenant, 0.0) + account.amount
        for pool in statistics.pools:
            for tenant, num_pages in pool.tenant_pages.items():
                pages[tenant] = pages.get(tenant, 0) + num_pages
    # what a tenant has in the background is nobody's promise
    named = {tenant for tenant in {*given, *pages} if tenant and not is_background(tenant)}
    active = sorted(named, key=lambda each: (-given.get(each, 0), each))
    found = []
    for tenant in active[:NUM_TENANTS]:
        share = (await services.store.accounts.get(tenant)).terms.share
        found.append(
            TenantOverview(
                tenant=tenant,
                weight=share.weight,
                guaranteed=share.guaranteed,
                ceiling=share.ceiling,
                service=given.get(tenant, 0.0),
                num_pages=pages.get(tenant, 0),
            )
        )
    return found


async def _usage(services: Services) -> list[UsageOverview]:
    today = datetime.now(UTC).date()
    sums = await usage_sums(
        services.store.database, By.TENANT, period=Period(first=today, last=today)
    )
    return [
        UsageOverview(
            tenant=each.key,
            requests=each.requests,
            input_tokens=each.input_tokens,
            cached_tokens=each.cached_tokens,
            output_tokens=each.output_tokens,
            usd=each.usd,
        )
        for each in sums[:NUM_TENANTS]
    ]


async def _incidents(services: Services) -> list[IncidentOverview]:
    return [
        IncidentOverview(
            id=each.id,
            kind=each.kind,
            began_ms=each.began_ms,
            ended_ms=each.ended_ms,
            node=each.node,
            model=each.model,
            tenants=each.tenants,
            detail=each.detail,
        )
        for each in await services.store.incidents.list(limit=NUM_INCIDENTS)
    ]
