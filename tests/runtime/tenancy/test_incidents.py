"""Incidents, on both databases."""

from __future__ import annotations

import msgspec
import pytest

from tenantry_runtime.pool.messages import Incident
from tenantry_runtime.tenancy import Store

FOUND = Incident(
    time_s=1_900_000_000.25,
    model="@cf/zai-org/glm-5.2",
    request_id="r1",
    tenant="acme",
    step=7,
    op="attend",
    logical_page=3,
    page=12,
    found=("tag", "owner"),
)


def an_incident(**changes: object) -> Incident:
    return msgspec.structs.replace(FOUND, **changes)


@pytest.mark.asyncio
async def test_an_incident_is_kept_as_it_was_told(store: Store) -> None:
    await store.incidents.record("unix:node", 5, [FOUND])

    [kept] = await store.incidents.list()
    assert kept.time_ms == 1_900_000_000_250
    assert (kept.node, kept.model, kept.account_id) == ("unix:node", FOUND.model, "acme")
    assert (kept.request_id, kept.step, kept.op) == ("r1", 7, "attend")
    assert (kept.logical_page, kept.page, kept.found) == (3, 12, ("tag", "owner"))


@pytest.mark.asyncio
async def test_an_incident_that_several_edges_tell_is_kept_once(store: Store) -> None:
    another = an_incident(logical_page=4)
    await store.incidents.record("unix:node", 5, [FOUND])

    # another edge may call the node by another name
    await store.incidents.record("10.0.0.2:7000", 5, [FOUND, another, another])

    assert {kept.logical_page for kept in await store.incidents.list()} == {3, 4}
    assert len(await store.incidents.list()) == 2


@pytest.mark.asyncio
async def test_the_same_in_another_life_of_the_node_is_another_incident(store: Store) -> None:
    await store.incidents.record("unix:node", 5, [FOUND])
    await store.incidents.record("unix:node", 6, [FOUND])

    assert len(await store.incidents.list()) == 2


@pytest.mark.asyncio
async def test_the_latest_are_listed_first_and_by_account(store: Store) -> None:
    await store.incidents.record("unix:node", 5, [])
    told = [an_incident(time_s=float(second), tenant="ab"[second % 2]) for second in range(5)]
    await store.incidents.record("unix:node", 5, told)

    assert [kept.time_ms for kept in await store.incidents.list(limit=2)] == [4000, 3000]
    assert [kept.time_ms for kept in await store.incidents.list(account="b")] == [3000, 1000]
    assert [kept.time_ms for kept in await store.incidents.list(since_ms=3000)] == [4000, 3000]
