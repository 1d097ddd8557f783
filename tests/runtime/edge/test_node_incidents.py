"""What becomes an incident of what nodes say, and of how they end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from support.incidents import Told
from tenantry_runtime.core import Sampling
from tenantry_runtime.edge.incidents import NodeIncidents
from tenantry_runtime.edge.incidents.nodes import MAX_CARRIED
from tenantry_runtime.pool.messages import Incident, NodeStatistics, Submit
from tenantry_runtime.tenancy import IncidentKind, IncidentRecord
from tenantry_runtime.tenancy.incidents import MAX_NAMED

NODE = "unix:node"


def a_submit(request_id: str, *, tenant: str = "acme", trace: str = "") -> Submit:
    return Submit(
        request_id=request_id,
        tenant=tenant,
        model="m",
        token_ids=[1],
        sampling=Sampling(seed=1),
        stop_token_ids=(),
        max_tokens=9,
        traceparent=f"00-{trace}-00f067aa0ba902b7-01" if trace else "",
    )


def statistics(turn: int = 1, **fields: Any) -> NodeStatistics:
    counts = {"num_running": 0, "num_waiting": 0, "num_free_pages": {}, "incarnation": 5}
    return NodeStatistics(loop_turn_ns=turn, **{**counts, **fields})


def a_mismatch(step: int) -> Incident:
    return Incident(
        time_s=1000.0,
        model="m",
        request_id="r",
        tenant="acme",
        step=step,
        op="decode read",
        logical_page=1,
        page=17,
        found=("tag",),
    )


class Watched:
    """What an edge sees, at times that a test says."""

    def __init__(self) -> None:
        self.now_ms = 1_000
        self.told = Told()
        self.incidents = NodeIncidents(self.told, edge="here:1", now_ms=lambda: self.now_ms)

    def at(self, now_ms: int) -> NodeIncidents:
        self.now_ms = now_ms
        return self.incidents

    def one(self, kind: IncidentKind) -> IncidentRecord:
        [record] = self.told.of(kind)
        return record

    def lost(self, *unfinished: Submit, node: str = NODE) -> None:
        self.incidents.lost(node, "UNAVAILABLE: Socket closed", unfinished)


def test_a_mismatch_that_is_told_again_and_again_is_taken_once() -> None:
    watched = Watched()
    for told in [(a_mismatch(1), a_mismatch(2))] * 3 + [(a_mismatch(2), a_mismatch(3))]:
        watched.incidents.hear(NODE, statistics(incidents=told))
    # another life of it
    watched.incidents.hear(NODE, statistics(incidents=(a_mismatch(1),), incarnation=6))

    steps = [each.facts["step"] for each in watched.told.of(IncidentKind.INTEGRITY)]
    assert steps == [1, 2, 3, 1]
    assert watched.told.counts["integrity"] == 4


def test_a_node_that_is_lost_is_one_incident_with_what_ran_there() -> None:
    watched = Watched()
    traces = ["4bf92f3577b34da6a3ce929d0e0e4736", "0af7651916cd43dd8448eb211c80319c"]
    watched.lost(
        a_submit("r1", tenant="bolt", trace=traces[0]),
        # a second answer of the same request, and one that nobody traces
        a_submit("r1#1", tenant="bolt", trace=traces[0]),
        a_submit("r2", trace=traces[1]),
        a_submit("r3"),
    )

    lost = watched.one(IncidentKind.NODE_LOST)
    assert (lost.edge, lost.node, lost.began_ms, lost.ended_ms) == ("here:1", NODE, 1_000, None)
    assert lost.tenants == ("acme", "bolt")
    assert lost.request_ids == ("r1", "r2", "r3")
    assert lost.trace_ids == tuple(traces)
    assert lost.detail == "UNAVAILABLE: Socket closed"
    assert lost.facts == {"unfinished": 3, "carried": 0}


def test_a_record_names_some_requests_and_counts_all() -> None:
    watched = Watched()
    watched.lost(*(a_submit(f"r{number}", tenant=f"t{number}") for number in range(MAX_NAMED + 8)))

    lost = watched.one(IncidentKind.NODE_LOST)
    assert len(lost.request_ids) == len(lost.tenants) == MAX_NAMED
    assert lost.facts["unfinished"] == MAX_NAMED + 8


@pytest.mark.parametrize("is_before", [True, False], ids=["before the loss is seen", "after"])
def test_requests_that_went_on_elsewhere_are_counted_once(is_before: bool) -> None:
    watched = Watched()
    went_on = ["r1", "r1#1", "r3", "somebody else's"]

    def carry() -> None:
        for name in went_on:
            watched.incidents.carried(NODE, name)
        watched.incidents.carried("another node", "r2")

    if is_before:
        carry()
    watched.lost(*(a_submit(name) for name in ("r1", "r1#1", "r2", "r3")))
    if not is_before:
        carry()

    assert watched.one(IncidentKind.NODE_LOST).facts == {"unfinished": 3, "carried": 2}


def test_requests_that_went_on_are_remembered_up_to_a_bound() -> None:
    watched = Watched()
    for number in range(MAX_CARRIED + 1):
        watched.incidents.carried(NODE, f"r{number}")
    watched.lost(a_submit("r0"), a_submit("r1"))

    assert watched.one(IncidentKind.NODE_LOST).facts == {"unfinished": 2, "carried": 1}


def test_a_loss_ends_when_the_step_loop_turns_again() -> None:
    watched = Watched()
    watched.at(1_000).hear(NODE, statistics(turn=7))
    watched.at(2_000)
    watched.lost(a_submit("r1"))
    # its front answers, its loop stands still
    watched.at(3_000).hear(NODE, statistics(turn=7))
    assert watched.one(IncidentKind.NODE_LOST).ended_ms is None

    watched.at(4_000).hear(NODE, statistics(turn=8))

    lost = watched.one(IncidentKind.NODE_LOST)
    assert (lost.began_ms, lost.seen_ms, lost.ended_ms) == (2_000, 4_000, 4_000)
    # and what follows is another one
    watched.lost()
    assert len(watched.told.of(IncidentKind.NODE_LOST)) == 2


def test_a_node_that_was_silent_before_its_stream_broke_is_lost_once() -> None:
    watched = Watched()
    watched.incidents.lost(NODE, "silent", [a_submit("r1")])
    watched.at(5_000)
    watched.lost(a_submit("r1"), a_submit("r2", tenant="bolt"))
    watched.lost()

    lost = watched.one(IncidentKind.NODE_LOST)
    assert (lost.detail, lost.began_ms, lost.seen_ms) == ("silent", 1_000, 5_000)
    assert (lost.request_ids, lost.tenants) == (("r1", "r2"), ("acme", "bolt"))
    assert lost.facts["unfinished"] == 2
    assert watched.told.counts["node_lost"] == 1


def test_two_edges_each_tell_of_what_they_had() -> None:
    told = Told()
    for edge in ("here:1", "there:1"):
        NodeIncidents(told, edge=edge).lost(NODE, "gone", [a_submit(f"of {edge}")])

    assert [(each.edge, each.request_ids) for each in told.of(IncidentKind.NODE_LOST)] == [
        ("here:1", ("of here:1",)),
        ("there:1", ("of there:1",)),
    ]


def draining(watched: Watched) -> None:
    for turn in (1, 2):
        told = statistics(turn, is_draining=True, num_running=3 - turn, num_waiting=turn)
        watched.at(1_000 * turn).hear(NODE, told)


@pytest.mark.parametrize("cut_off", [(), ("r1", "r2")], ids=["in peace", "with some cut off"])
def test_a_drain_is_one_incident_until_the_node_has_left(cut_off: Sequence[str]) -> None:
    watched = Watched()
    draining(watched)
    assert watched.one(IncidentKind.DRAIN).ended_ms is None
    watched.at(9_000).left(NODE, [a_submit(name) for name in cut_off])

    drain = watched.one(IncidentKind.DRAIN)
    assert (drain.began_ms, drain.ended_ms) == (1_000, 9_000)
    assert drain.request_ids == tuple(cut_off)
    # as it was when it began
    assert drain.facts == {"running": 2, "waiting": 1, "cut_off": len(cut_off)}
    assert not watched.told.of(IncidentKind.NODE_LOST)


def test_a_node_that_left_before_it_was_asked_has_drained() -> None:
    watched = Watched()
    watched.incidents.left(NODE, [])

    drain = watched.one(IncidentKind.DRAIN)
    assert (drain.began_ms, drain.ended_ms, drain.facts) == (1_000, 1_000, {"cut_off": 0})


def test_a_node_that_dies_while_it_drains_is_both() -> None:
    watched = Watched()
    draining(watched)
    watched.at(9_000)
    watched.lost(a_submit("r1"))

    drain, lost = watched.one(IncidentKind.DRAIN), watched.one(IncidentKind.NODE_LOST)
    assert drain.ended_ms == lost.began_ms == 9_000
    assert "lost" in drain.detail
    assert (lost.ended_ms, lost.request_ids) == (None, ("r1",))


def test_a_drain_ends_when_the_node_is_back() -> None:
    watched = Watched()
    draining(watched)
    watched.at(7_000).hear(NODE, statistics(9, incarnation=6))
    watched.at(8_000).hear(NODE, statistics(10, incarnation=6))

    assert watched.one(IncidentKind.DRAIN).ended_ms == 7_000
