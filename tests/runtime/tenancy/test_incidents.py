"""Incidents, on both databases."""

from __future__ import annotations

import itertools
from dataclasses import replace

import msgspec
import pytest

from tenantry_runtime.pool.messages import Incident
from tenantry_runtime.tenancy import IncidentKind, IncidentRecord, Store
from tenantry_runtime.tenancy.incidents import SWEEP_STEP, integrity_record

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
DAY_MS = 24 * 3600 * 1000

FOUND = Incident(
    time_s=1_900_000_000.25,
    model="@cf/zai-org/glm-5.2",
    request_id="r1",
    tenant="acme",
    step=7,
    op="decode read",
    logical_page=3,
    page=12,
    found=("tag", "owner"),
    trace_id=TRACE,
)

LOST = IncidentRecord(
    id="a1",
    kind=IncidentKind.NODE_LOST,
    began_ms=1000,
    seen_ms=1000,
    edge="here:8787",
    node="unix:node",
    tenants=("acme", "bolt"),
    request_ids=("r1", "r2"),
    trace_ids=(TRACE,),
    detail="UNAVAILABLE: Socket closed",
    facts={"unfinished": 2, "carried": 0},
)

_numbers = itertools.count()


def a_record(began_ms: int, **changes: object) -> IncidentRecord:
    changed = {"id": f"b{next(_numbers)}", "began_ms": began_ms, "seen_ms": began_ms, **changes}
    return replace(LOST, **changed)  # type: ignore[arg-type]


def a_mismatch(incarnation: int = 5, node: str = "unix:node", **changes: object) -> IncidentRecord:
    return integrity_record(node, incarnation, msgspec.structs.replace(FOUND, **changes))


@pytest.mark.asyncio
async def test_a_mismatch_is_kept_as_a_node_told_it(store: Store) -> None:
    await store.incidents.record([a_mismatch(request_id="r1#4#17")])

    [kept] = await store.incidents.list()
    assert (kept.kind, kept.node, kept.model) == ("integrity", "unix:node", FOUND.model)
    assert (kept.began_ms, kept.ended_ms) == (1_900_000_000_250, 1_900_000_000_250)
    assert (kept.tenants, kept.request_ids, kept.trace_ids) == (("acme",), ("r1",), (TRACE,))
    assert kept.facts == {
        "step": 7,
        "op": "decode read",
        "logical_page": 3,
        "page": 12,
        "found": ["tag", "owner"],
    }


@pytest.mark.asyncio
async def test_a_mismatch_that_several_edges_tell_is_kept_once(store: Store) -> None:
    await store.incidents.record([a_mismatch()])

    # another edge may call the node by another name
    address = "10.0.0.2:7000"
    await store.incidents.record(
        [a_mismatch(node=address), a_mismatch(node=address, logical_page=4)]
    )

    kept = await store.incidents.list()
    assert sorted((each.facts["logical_page"], each.node) for each in kept) == [
        (3, "unix:node"),
        (4, address),
    ]


@pytest.mark.asyncio
async def test_the_same_in_another_life_of_the_node_is_another_incident(store: Store) -> None:
    await store.incidents.record([a_mismatch(5), a_mismatch(6)])

    assert len(await store.incidents.list()) == 2


@pytest.mark.asyncio
async def test_an_incident_that_lasts_becomes_what_is_told_of_it_last(store: Store) -> None:
    await store.incidents.record([LOST])
    ended = replace(LOST, seen_ms=9000, ended_ms=9000, facts={"unfinished": 2, "carried": 1})
    await store.incidents.record([ended])

    assert await store.incidents.list() == [ended]


@pytest.mark.asyncio
async def test_the_latest_are_listed_first_and_by_kind_tenant_and_time(store: Store) -> None:
    await store.incidents.record([])
    kinds = list(IncidentKind)
    told = [
        a_record(1000 * number, kind=kinds[number % 2], tenants=("both", "ab"[number % 2]))
        for number in range(5)
    ]
    await store.incidents.record(told)

    async def began(**wanted: object) -> list[int]:
        found = await store.incidents.list(**wanted)  # type: ignore[arg-type]
        return [each.began_ms for each in found]

    assert await began(limit=2) == [4000, 3000]
    assert await began(account="b") == [3000, 1000]
    assert await began(account="both", limit=3) == [4000, 3000, 2000]
    assert await began(kind=kinds[1]) == [3000, 1000]
    assert await began(since_ms=3000) == [4000, 3000]
    assert await began(account="nobody") == []


@pytest.mark.asyncio
async def test_an_incident_is_found_by_how_its_id_begins(store: Store) -> None:
    await store.incidents.record([a_record(1, id=id) for id in ("abc1", "abd1", "x_y")])

    async def found(prefix: str) -> list[str]:
        return [each.id for each in await store.incidents.named(prefix)]

    assert await found("abc") == ["abc1"]
    assert sorted(await found("ab")) == ["abc1", "abd1"]
    # nothing in it stands for anything else
    assert await found("a_") == await found("%") == []
    assert await found("x_") == ["x_y"]


@pytest.mark.asyncio
async def test_what_is_older_than_it_is_kept_goes_with_its_names(store: Store) -> None:
    now_ms = store.database.now_ms()
    old, young = a_record(now_ms - 3 * DAY_MS), a_record(now_ms - DAY_MS)
    await store.incidents.record([old, young])

    async def sweep() -> int:
        return await store.incidents.sweep(keep_days=2, max_kept=100)

    assert await sweep() == 1
    assert await store.incidents.list() == [young]
    assert await store.incidents.list(account="acme") == [young]
    assert await sweep() == 0


@pytest.mark.asyncio
async def test_of_each_kind_the_latest_are_kept_whatever_there_is_of_others(store: Store) -> None:
    now_ms = store.database.now_ms()
    storms = [
        a_record(now_ms - number, kind=IncidentKind.QUOTA_STORM)
        for number in range(SWEEP_STEP + 50)
    ]
    oldest = a_record(now_ms - DAY_MS)
    await store.incidents.record([*storms, oldest])

    # more than one transaction deletes
    assert await store.incidents.sweep(keep_days=2, max_kept=10) == SWEEP_STEP + 40
    kept = await store.incidents.list(limit=1000)
    assert [each.id for each in kept] == [*(each.id for each in storms[:10]), oldest.id]
