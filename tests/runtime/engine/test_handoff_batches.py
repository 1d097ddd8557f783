"""Pages of many hand-offs that come in one turn are taken together, and judged each for itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from support.engine import a_submit, an_engine, expected_answer
from support.faulty_port import FAULTS, FaultyPort, Sent, Spoil
from support.pools import Cluster, assert_nothing_is_left
from tenantry_runtime.cache.page_batch import PageBatch
from tenantry_runtime.cache.pages import PageRef, Tag
from tenantry_runtime.cache.wire import Arrivals, ArrivedPage
from tenantry_runtime.cache.wire_pages import WirePages
from tenantry_runtime.engine.sequence import Receiving
from tenantry_runtime.pool.local_port import LocalExchange
from tenantry_runtime.pool.messages import Deliver, Submit

LENGTHS = {"small": 20, "victim": 200, "also": 100, "last": 40}
"""Of prompts: 8 pages. The victim's is the first that is long enough for `FaultyPort`."""

PAGES = {name: -(-length // 64) for name, length in LENGTHS.items()}


class Calls:
    """What a decode member's pages are asked for, and of how many pages."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.made: list[tuple[str, int]] = []
        load, verify, from_wire = WirePages.load, WirePages.verify, WirePages.from_wire

        def loads(wire: WirePages, arrived: Sequence[ArrivedPage]) -> Arrivals:
            self.made.append(("load", len(arrived)))
            return load(wire, arrived)

        def verifies(wire: WirePages, arrivals: Arrivals) -> list[bool]:
            self.made.append(("verify", len(arrivals.pages)))
            return verify(wire, arrivals)

        def writes(wire: WirePages, pages: PageBatch, arrivals: Arrivals) -> Any:
            self.made.append(("write", len(arrivals.pages)))
            return from_wire(wire, pages, arrivals)

        monkeypatch.setattr(WirePages, "load", loads)
        monkeypatch.setattr(WirePages, "verify", verifies)
        monkeypatch.setattr(WirePages, "from_wire", writes)


def nodes(spoil: Spoil, *, handoff_bytes: int = 1 << 20) -> Cluster:
    exchange = LocalExchange()
    port = FaultyPort(exchange.port("p"), spoil)
    decode = an_engine(phases=("decode",), port=exchange.port("d"), handoff_bytes=handoff_bytes)
    return Cluster({"p": an_engine(phases=("prefill",), port=port), "d": decode})


def all_at_once(cluster: Cluster) -> dict[str, Submit]:
    """Let all that hand-offs bring wait at the decode node for its next turn, one after the other."""
    submits = {
        name: a_submit(name, prompt=[n + 1] * length, max_tokens=6, tenant=name, stop_token_ids=())
        for n, (name, length) in enumerate(LENGTHS.items())
    }
    cluster.held_back.add("reserved")
    for submit in submits.values():
        cluster.send(submit, "p", "d")
    while len(cluster.targets) < len(submits):
        cluster.turn()
    cluster.held_back.clear()
    for name in submits:
        deliver = Deliver(request_id=name, address="d", target=cluster.targets[name])
        cluster.nodes["p"].deliver(deliver)
        for _ in range(10):
            cluster.read("p", cluster.nodes["p"].turn())
    return submits


def in_another_order(sent: list[Sent]) -> list[Sent]:
    """Which is as good: three runs instead of one."""
    return [sent[1], sent[0], *sent[2:]]


def run_to_end(cluster: Cluster, submits: dict[str, Submit], *, failing: set[str]) -> None:
    cluster.run_to_end()
    transcript = cluster.transcript
    assert set(transcript.failed) == failing
    for name, submit in submits.items():
        told = transcript.tokens[name]
        assert told == ([] if name in failing else expected_answer(submit))
    assert_nothing_is_left(*cluster.nodes.values())


def test_pages_of_a_turn_take_one_call_each_whatever_hand_offs_they_are_of(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster = nodes(lambda sent: sent)
    submits = all_at_once(cluster)
    calls = Calls(monkeypatch)
    cluster.read("d", cluster.nodes["d"].turn())
    num_pages = sum(PAGES.values())
    assert calls.made == [("load", num_pages), ("verify", num_pages), ("write", num_pages)]
    run_to_end(cluster, submits, failing=set())


@pytest.mark.parametrize("fault", ["last byte flipped", "pages swapped", "another digest"])
def test_a_page_that_is_not_what_was_sent_keeps_its_own_hand_off_alone_from_being_written(
    monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    cluster = nodes(FAULTS[fault])
    submits = all_at_once(cluster)
    calls = Calls(monkeypatch)
    cluster.read("d", cluster.nodes["d"].turn())
    num_pages = sum(PAGES.values())
    num_sound = num_pages - PAGES["victim"]
    assert calls.made == [("load", num_pages), ("verify", num_pages), ("write", num_sound)]
    [incident] = cluster.nodes["d"].statistics().incidents
    assert (incident.request_id, incident.found) == ("victim", ("digest",))
    run_to_end(cluster, submits, failing={"victim"})


@pytest.mark.parametrize("fault", ["wrong tag", "page twice", "cut short", "wrong place"])
def test_a_page_that_is_not_as_reserved_is_not_even_loaded(
    monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    cluster = nodes(FAULTS[fault])
    submits = all_at_once(cluster)
    calls = Calls(monkeypatch)
    cluster.read("d", cluster.nodes["d"].turn())
    num_sound = sum(PAGES.values()) - PAGES["victim"]
    assert calls.made == [("load", num_sound), ("verify", num_sound), ("write", num_sound)]
    run_to_end(cluster, submits, failing={"victim"})


@pytest.mark.parametrize("name", LENGTHS)
@pytest.mark.parametrize("spoil", [list, in_another_order], ids=["in order", "in another order"])
def test_a_page_that_the_check_refuses_fails_its_own_sequence_alone(
    name: str, spoil: Spoil
) -> None:
    cluster = nodes(spoil)
    submits = all_at_once(cluster)
    lane = cluster.nodes["d"].lanes[0]
    sequence = lane.scheduler.sequence(name)
    assert sequence is not None and isinstance(sequence.state, Receiving)
    last = PAGES[name] - 1
    ref = sequence.held.lease.ref(last)
    lane.tracker.stamp([PageRef(ref.index, Tag(ref.tag + 1))])
    cluster.read("d", cluster.nodes["d"].turn())
    [incident] = cluster.nodes["d"].statistics().incidents
    assert (incident.request_id, incident.op) == (name, "hand-off write")
    assert (incident.logical_page, "tag" in incident.found) == (last, True)
    run_to_end(cluster, submits, failing={name})


def test_an_error_in_the_call_fails_those_whose_pages_were_in_it_and_nobody_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def broken(*_: object) -> Any:
        raise RuntimeError("out of memory")

    cluster = nodes(lambda sent: sent)
    submits = all_at_once(cluster)
    with monkeypatch.context() as patch:
        patch.setattr(WirePages, "from_wire", broken)
        cluster.read("d", cluster.nodes["d"].turn())
    run_to_end(cluster, submits, failing=set(LENGTHS))
    assert {failed.reason for failed in cluster.transcript.failed.values()} == {"internal"}
    later = a_submit("later", prompt=[9] * 100, max_tokens=3, stop_token_ids=())
    cluster.send(later, "p", "d")
    assert cluster.run_to_end().tokens["later"] == expected_answer(later)


@pytest.mark.parametrize("num_pages", [1, 3, 5])
def test_what_is_beyond_a_turns_bound_waits_and_nothing_overtakes_it(
    monkeypatch: pytest.MonkeyPatch, num_pages: int
) -> None:
    """A page of the fake model takes 512 bytes."""
    cluster = nodes(lambda sent: sent, handoff_bytes=512 * num_pages)
    submits = all_at_once(cluster)
    calls = Calls(monkeypatch)
    cluster.run_to_end()
    sizes = [size for call, size in calls.made if call == "load"]
    assert max(sizes) == num_pages and sum(sizes) == sum(PAGES.values())
    # all but the last are full
    assert set(sizes[:-1]) <= {num_pages}
    run_to_end(cluster, submits, failing=set())
