"""When refusals are a storm, and what is told of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.edges import ACCOUNT, RUN, an_edge, make_state
from support.incidents import Told
from support.requests import a_body
from support.token_source import FakeTokenSource
from tenantry_runtime.core import RequestId, TenantId
from tenantry_runtime.edge.incidents import QuotaStorms
from tenantry_runtime.tenancy import IncidentKind, IncidentRecord, open_store
from tenantry_runtime.tenancy.incidents import MAX_NAMED

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"


class Watched:
    """Storms of five refusals within ten seconds."""

    def __init__(self, *, num_refusals: int = 5, max_tenants: int = 3) -> None:
        self.now_s = 0.0
        self.told = Told()
        self.storms = QuotaStorms(
            self.told,
            edge="here:1",
            num_refusals=num_refusals,
            window_s=10.0,
            max_tenants=max_tenants,
            now_ms=lambda: round(1000 * self.now_s),
        )
        self._number = 0

    def refuse(
        self, *at_s: float, tenant: str = "acme", limit: str = "requests_per_minute"
    ) -> None:
        for self.now_s in at_s:
            self._number += 1
            self.storms.refused(
                TenantId(tenant),
                limit=limit,
                request_id=RequestId(f"r{self._number}"),
                trace_id=TRACE,
            )

    def look(self, at_s: float) -> list[IncidentRecord]:
        self.now_s = at_s
        self.storms.look()
        return self.told.of(IncidentKind.QUOTA_STORM)


def test_as_many_refusals_as_a_storm_has_within_the_window_are_one() -> None:
    watched = Watched()
    watched.refuse(0, 1, 2, 3)
    assert watched.look(3) == []
    watched.refuse(9.9)

    [storm] = watched.look(9.9)
    assert (storm.began_ms, storm.seen_ms, storm.ended_ms) == (0, 9_900, None)
    assert (storm.edge, storm.node, storm.tenants) == ("here:1", "", ("acme",))
    assert storm.request_ids == ("r1", "r2", "r3", "r4", "r5")
    assert storm.trace_ids == (TRACE,)
    assert storm.facts == {"refusals": 5, "requests_per_minute": 5}


def test_refusals_that_take_longer_are_none_however_many() -> None:
    watched = Watched()
    # never five within ten seconds
    watched.refuse(*(2.5 * number for number in range(40)))

    assert watched.look(100) == []


def test_the_window_slides() -> None:
    watched = Watched()
    # a fixed window from 0 or from the first would see three and four
    watched.refuse(0, 8, 8.5, 9, 10.5, 11)

    [storm] = watched.look(11)
    assert storm.began_ms == 8_000
    assert storm.request_ids == ("r2", "r3", "r4", "r5", "r6")


def test_a_storm_counts_on_until_it_has_been_quiet_for_the_window() -> None:
    watched = Watched()
    watched.refuse(0, 0, 0, 0, 0)
    # far fewer than begin one
    watched.refuse(9, 18, limit="daily_neurons")
    [going_on] = watched.look(27.9)
    assert (going_on.seen_ms, going_on.ended_ms, going_on.facts["refusals"]) == (18_000, None, 7)

    [over] = watched.look(28)
    assert (over.id, over.seen_ms, over.ended_ms) == (going_on.id, 18_000, 18_000)
    assert over.facts == {"refusals": 7, "requests_per_minute": 5, "daily_neurons": 2}
    assert "requests_per_minute 5, daily_neurons 2" in over.detail
    assert watched.told.counts["quota_storm"] == 1


def test_after_a_storm_it_takes_another_to_be_told() -> None:
    watched = Watched()
    watched.refuse(0, 0, 0, 0, 0)
    watched.refuse(20, 20, 20, 20)
    assert [each.ended_ms for each in watched.look(20)] == [0]
    watched.refuse(21)

    assert [each.began_ms for each in watched.look(21)] == [0, 20_000]


def test_tenants_are_counted_apart() -> None:
    watched = Watched()
    for at_s in range(4):
        watched.refuse(at_s, tenant="acme")
        watched.refuse(at_s, tenant="bolt")
    watched.refuse(4, tenant="bolt")

    assert [each.tenants for each in watched.look(4)] == [("bolt",)]


def test_no_more_tenants_are_watched_than_there_may_be() -> None:
    watched = Watched(max_tenants=3)
    watched.refuse(0, 0, 0, 0, 0, tenant="stormy")
    for number in range(20):
        watched.refuse(1 + number / 100, tenant=f"t{number}")
        assert watched.storms.num_watched <= 3

    # what is forgotten is over, rather than open for good
    [storm] = watched.look(2)
    assert (storm.tenants, storm.ended_ms) == (("stormy",), 0)


def test_tenants_that_are_quiet_are_forgotten() -> None:
    watched = Watched()
    watched.refuse(0, tenant="a")
    watched.refuse(5, tenant="b")
    watched.look(12)

    assert watched.storms.num_watched == 1


def test_a_storm_names_some_of_its_requests() -> None:
    watched = Watched(num_refusals=MAX_NAMED + 20)
    watched.refuse(*[0.0] * (MAX_NAMED + 20))

    [storm] = watched.look(0)
    assert len(storm.request_ids) == MAX_NAMED


@pytest.mark.asyncio
async def test_what_a_tenants_limit_refuses_is_noted_with_request_and_trace(tmp_path: Path) -> None:
    state = await make_state(tmp_path)
    async with open_store(state.directory) as store:
        await store.accounts.change(ACCOUNT, changes={("quota", "requests_per_minute"): 1})
    told = Told()
    storms = QuotaStorms(told, edge="here:1", num_refusals=2)
    parent = f"00-{TRACE}-00f067aa0ba902b7-01"
    async with an_edge(state, FakeTokenSource("a"), storms=storms) as edge, edge.client() as client:
        responses = [
            await client.post(RUN, content=a_body(), headers={"traceparent": parent})
            for _ in range(3)
        ]
        # nobody's limit
        await client.post(RUN, content=a_body(), headers={"authorization": "Bearer x"})

    assert [response.status_code for response in responses] == [200, 429, 429]
    [storm] = told.of(IncidentKind.QUOTA_STORM)
    assert storm.tenants == (ACCOUNT,)
    assert storm.request_ids == tuple(each.headers["cf-ai-req-id"] for each in responses[1:])
    assert storm.trace_ids == (TRACE,)
    assert storm.facts == {"refusals": 2, "requests_per_minute": 2}
