"""A port that does not do what it should costs the hand-offs that go through it, and nothing else."""

from __future__ import annotations

import pytest

from support.engine import a_submit, an_engine, expected_answer
from support.failing_port import FailingPort
from support.pools import Cluster, assert_nothing_is_left
from tenantry_runtime.cache.wire_pages import WirePages
from tenantry_runtime.pool.local_port import LocalExchange

CALLS = ("open", "room_for", "push", "end", "close", "events", "release", "answer")


def two_nodes() -> tuple[Cluster, dict[str, FailingPort]]:
    exchange = LocalExchange()
    ports = {address: FailingPort(exchange.port(address)) for address in "pd"}
    nodes = {
        "p": an_engine(phases=("prefill",), port=ports["p"]),
        "d": an_engine(phases=("decode",), port=ports["d"]),
    }
    return Cluster(nodes), ports


def many_turns(cluster: Cluster) -> None:
    """An edge gives up in the end what a port that does not work has made nobody answer."""
    for _ in range(60):
        cluster.turn()


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("address", ["p", "d"])
@pytest.mark.parametrize("num_turns", [0, 5, 8])
def test_a_port_that_fails_for_a_while_harms_nobody_who_comes_later(
    call: str, address: str, num_turns: int
) -> None:
    cluster, ports = two_nodes()
    first = a_submit("first", prompt=[3] * 260, max_tokens=20, stop_token_ids=())
    cluster.send(first, "p", "d")
    for _ in range(num_turns):
        cluster.turn()
    ports[address].failing.add(call)
    many_turns(cluster)
    ports[address].failing.clear()
    cluster.cancel("first")
    transcript = cluster.transcript
    told = transcript.tokens["first"]
    assert told == expected_answer(first)[: len(told)]
    if "first" in transcript.failed:
        assert transcript.failed["first"].reason in ("handoff", "internal")
    later = a_submit("later", prompt=[4] * 260, max_tokens=6, stop_token_ids=())
    cluster.send(later, "p", "d")
    assert cluster.run_to_end().tokens["later"] == expected_answer(later)
    assert_nothing_is_left(*cluster.nodes.values())


def test_a_port_that_cannot_open_a_way_fails_the_hand_off() -> None:
    cluster, ports = two_nodes()
    ports["p"].failing.add("open")
    cluster.send(a_submit(prompt=[3] * 100), "p", "d")
    failed = cluster.run_to_end().failed["r"]
    assert (failed.reason, "OSError" in failed.message) == ("handoff", True)
    assert ports["p"].failed == {"open"}
    assert_nothing_is_left(*cluster.nodes.values())


@pytest.mark.parametrize("address", ["p", "d"])
def test_what_was_under_way_through_a_port_that_tells_nothing_more_fails(address: str) -> None:
    cluster, ports = two_nodes()
    cluster.send(a_submit(prompt=[3] * 260), "p", "d")
    while not cluster.targets:
        cluster.turn()
    # the first pages have come
    for _ in range(2):
        cluster.turn()
    ports[address].failing.add("events")
    for _ in range(3):
        cluster.turn()
    assert cluster.transcript.failed["r"].reason == "handoff"
    ports[address].failing.clear()
    cluster.run_to_end()
    assert_nothing_is_left(*cluster.nodes.values())


def test_the_check_of_a_sequence_that_is_complete_fails_it_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def broken(*_: object) -> int:
        raise RuntimeError("out of memory")

    cluster, _ = two_nodes()
    cluster.send(a_submit("r", prompt=[3] * 100), "p", "d")
    monkeypatch.setattr(WirePages, "fault", broken)
    assert cluster.run_to_end().failed["r"].reason == "internal"
    monkeypatch.undo()
    assert_nothing_is_left(*cluster.nodes.values())
