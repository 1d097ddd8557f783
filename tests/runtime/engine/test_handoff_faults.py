"""Whatever happens to pages between two nodes: no wrong token, nobody else notices, nothing is left."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from support.engine import MODEL, a_submit, an_engine, expected_answer
from support.faulty_port import AFTER_THE_ANSWER, FAULTS, FaultyPort, Spoil
from support.pools import Cluster, assert_nothing_is_left
from tenantry_runtime.cache.pages import PageRef, Tag
from tenantry_runtime.core import PAGE_TOKENS
from tenantry_runtime.engine.sequence import Delivering, Prefilling, Receiving, Running, Waiting
from tenantry_runtime.pool.local_port import LocalExchange
from tenantry_runtime.pool.messages import Deliver
from tenantry_runtime.pool.page_port import PagePort


def two_nodes(*, num_slots: int = 64) -> Cluster:
    exchange = LocalExchange()
    return joined(exchange.port("p", num_slots=num_slots), exchange.port("d", num_slots=num_slots))


def spoiling_nodes(spoil: Spoil) -> tuple[Cluster, FaultyPort]:
    exchange = LocalExchange()
    port = FaultyPort(exchange.port("p"), spoil)
    return joined(port, exchange.port("d")), port


def joined(prefill: PagePort, decode: PagePort) -> Cluster:
    return Cluster(
        {
            "p": an_engine(phases=("prefill",), port=prefill),
            "d": an_engine(phases=("decode",), port=decode),
        }
    )


LENGTHS = {"small": 20, "victim": 200, "also": 100, "last": 40}
"""Of prompts; the victim's is the first that is long enough to be spoiled."""


def run(cluster: Cluster) -> None:
    wave = [
        a_submit(name, prompt=[n + 1] * length, max_tokens=6, tenant=name, stop_token_ids=())
        for n, (name, length) in enumerate(LENGTHS.items())
    ]
    for submit in wave:
        cluster.send(submit, "p", "d")
    cluster.run_to_end()
    for submit in wave:
        if submit.request_id not in cluster.transcript.failed:
            told = cluster.transcript.tokens[submit.request_id]
            assert told == expected_answer(submit)
    assert_nothing_is_left(*cluster.nodes.values())


@pytest.mark.parametrize("fault", FAULTS)
def test_a_spoiled_hand_off_fails_its_request_before_any_token(fault: str) -> None:
    cluster, port = spoiling_nodes(FAULTS[fault])
    run(cluster)
    assert port.spoiled is not None
    assert set(cluster.transcript.failed) == {"victim"}
    assert cluster.transcript.failed["victim"].reason in ("cache_integrity", "handoff")
    assert not cluster.transcript.tokens["victim"]


@pytest.mark.parametrize("fault", AFTER_THE_ANSWER)
def test_what_comes_after_the_end_is_refused_and_harms_nobody(fault: str) -> None:
    cluster, port = spoiling_nodes(AFTER_THE_ANSWER[fault])
    run(cluster)
    assert port.spoiled is not None
    assert not cluster.transcript.failed


def test_an_incident_says_which_page_of_a_hand_off_was_wrong() -> None:
    cluster, _ = spoiling_nodes(FAULTS["last byte flipped"])
    run(cluster)
    [incident] = cluster.nodes["d"].statistics().incidents
    assert (incident.model, incident.request_id, incident.tenant) == (MODEL, "victim", "victim")
    assert (incident.op, incident.logical_page) == ("hand-off write", 0)
    assert incident.found == ("digest",)
    assert cluster.nodes["p"].statistics().num_incidents == 0


def test_a_page_that_is_not_the_senders_own_never_leaves() -> None:
    cluster = two_nodes()
    cluster.held_back.add("reserved")
    submit = a_submit("r", prompt=[3] * 200)
    cluster.send(submit, "p", "d")
    for _ in range(12):
        cluster.turn()
    sequence = cluster.nodes["p"].lanes[0].scheduler.sequence("r")
    assert sequence is not None and isinstance(sequence.state, Delivering)
    ref = sequence.held.lease.ref(1)
    cluster.nodes["p"].lanes[0].tracker.stamp([PageRef(ref.index, Tag(ref.tag + 1))])
    deliver_what_is_reserved(cluster, "r")
    cluster.run_to_end()
    assert cluster.transcript.failed["r"].reason == "cache_integrity"
    [incident] = cluster.nodes["p"].statistics().incidents
    assert (incident.op, incident.logical_page) == ("hand-off read", 1)
    assert not cluster.transcript.tokens["r"]


def test_a_reserved_page_that_is_tagged_anew_is_not_written() -> None:
    cluster = two_nodes()
    cluster.held_back.add("reserved")
    cluster.send(a_submit("r", prompt=[3] * 200), "p", "d")
    for _ in range(12):
        cluster.turn()
    lane = cluster.nodes["d"].lanes[0]
    sequence = lane.scheduler.sequence("r")
    assert sequence is not None
    ref = sequence.held.lease.ref(2)
    lane.tracker.stamp([PageRef(ref.index, Tag(ref.tag + 1))])
    deliver_what_is_reserved(cluster, "r")
    cluster.run_to_end()
    assert cluster.transcript.failed["r"].reason == "cache_integrity"
    [incident] = cluster.nodes["d"].statistics().incidents
    assert (incident.op, incident.logical_page) == ("hand-off write", 2)
    assert "tag" in incident.found


def deliver_what_is_reserved(cluster: Cluster, name: str) -> None:
    sequence = cluster.nodes["d"].lanes[0].scheduler.sequence(name)
    assert sequence is not None and isinstance(sequence.state, Receiving)
    deliver = Deliver(request_id=name, address="d", target=cluster.targets[name])
    cluster.held_back.clear()
    cluster.nodes["p"].deliver(deliver)


def in_state(address: str, state: type) -> Callable[[Cluster], bool]:
    def is_there(cluster: Cluster) -> bool:
        sequence = cluster.nodes[address].lanes[0].scheduler.sequence("r")
        return sequence is not None and isinstance(sequence.state, state)

    return is_there


STATES: dict[str, Callable[[Cluster], bool]] = {
    "waiting": in_state("p", Waiting),
    "prefilling": in_state("p", Prefilling),
    "delivering": in_state("p", Delivering),
    "receiving": in_state("d", Receiving),
    "running": in_state("d", Running),
}


@pytest.mark.parametrize("num_slots", [1, 64])
@pytest.mark.parametrize("num_more", [0, 1, 2])
@pytest.mark.parametrize("side", ["p", "d", "pd"])
@pytest.mark.parametrize("state", STATES)
def test_a_cancel_in_any_state_leaves_nothing_on_either_side(
    state: str, side: str, num_more: int, num_slots: int
) -> None:
    cluster = two_nodes(num_slots=num_slots)
    for name in ("before", "r", "after"):
        cluster.send(
            a_submit(name, prompt=[len(name)] * 260, max_tokens=30, stop_token_ids=()), "p", "d"
        )
    for _ in range(200):
        if STATES[state](cluster):
            break
        cluster.turn()
    else:
        raise AssertionError(f"never {state}")
    for _ in range(num_more):
        cluster.turn()
    for address in side:
        cluster.nodes[address].cancel("r")
        assert cluster.nodes[address].lanes[0].scheduler.sequence("r") is None
        assert cluster.nodes[address].audit() == []
    if side != "pd":
        # the other side learns of it by itself, or from the edge
        for _ in range(30):
            cluster.turn()
        cluster.cancel("r")
    cluster.run_to_end()
    for name in ("before", "after"):
        submit = cluster.errands[name].submit
        assert cluster.transcript.tokens[name] == expected_answer(submit)
    assert_nothing_is_left(*cluster.nodes.values())


def test_a_node_is_not_idle_while_it_keeps_pages_of_who_is_gone() -> None:
    exchange = LocalExchange()
    pushing = exchange.port("p", num_slots=8)
    decode = an_engine(phases=("decode",), port=exchange.port("d"), handoff_bytes=1)
    cluster = Cluster({"p": an_engine(phases=("prefill",), port=pushing), "d": decode})
    cluster.held_back.add("reserved")
    cluster.send(a_submit("r", prompt=[3] * 400), "p", "d")
    for _ in range(20):
        cluster.turn()
    deliver_what_is_reserved(cluster, "r")
    while pushing.room > 4:
        cluster.turn()
    decode.cancel("r")
    while not decode.is_idle:
        decode.turn()
    assert pushing.room == 8


def test_a_decode_node_that_is_gone_fails_the_hand_off_and_frees_the_prefill_node() -> None:
    exchange = LocalExchange()
    there = exchange.port("d")
    cluster = joined(exchange.port("p"), there)
    cluster.send(a_submit("r", prompt=[3] * 300), "p", "d")
    while not in_state("d", Receiving)(cluster):
        cluster.turn()
    cluster.turn()
    there.leave()
    for _ in range(20):
        cluster.read("p", cluster.nodes["p"].turn())
    assert cluster.transcript.failed["r"].reason == "handoff"
    assert_nothing_is_left(cluster.nodes["p"])


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"cache_format": "bf16"}, "cannot be sent as 'bf16'"),
        ({"cache_format": "int3"}, "cannot be sent as 'int3'"),
        ({"first_page": 1}, "are reserved for a prompt of"),
        ({"pages": b"12345"}, "are reserved for a prompt of"),
    ],
)
def test_a_target_that_does_not_fit_the_prompt_is_refused(
    change: dict[str, object], problem: str
) -> None:
    cluster = two_nodes()
    cluster.held_back.add("reserved")
    cluster.send(a_submit("r", prompt=[3] * 3 * PAGE_TOKENS), "p", "d")
    while not cluster.targets:
        cluster.turn()
    cluster.held_back.clear()
    target = replace(cluster.targets["r"], **change)
    cluster.nodes["p"].deliver(Deliver(request_id="r", address="d", target=target))
    cluster.run_to_end()
    failed = cluster.transcript.failed["r"]
    assert failed.reason == "handoff"
    assert problem in failed.message
    assert_nothing_is_left(*cluster.nodes.values())


def test_without_a_port_no_other_node_is_reached() -> None:
    cluster = Cluster({"p": an_engine(phases=("prefill",)), "d": an_engine(phases=("decode",))})
    cluster.send(a_submit("r", prompt=[3] * 30), "p", "d")
    cluster.run_to_end()
    assert cluster.transcript.failed["r"].reason == "handoff"
