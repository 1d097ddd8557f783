"""Prefill and decode on members with pools of their own: the same tokens, and nothing left behind."""

from __future__ import annotations

import time
from collections.abc import Iterable

import pytest
from msgspec.structs import replace

from support.engine import (
    MODEL,
    Transcript,
    a_submit,
    an_engine,
    expected_answer,
    run_to_end,
)
from support.fake_decoder import FakeConfig, FakeDecoder
from support.pools import Cluster, Errand, assert_nothing_is_left
from tenantry_runtime.cache.pages import PageRef, Tag
from tenantry_runtime.cache.prefix_keys import pack_keys, page_keys, unpack_keys
from tenantry_runtime.core import PAGE_TOKENS, Phase, Sampling
from tenantry_runtime.engine.incidents import handoff_incident
from tenantry_runtime.engine.loop import PREFIX_INTERVAL_S, EngineLoop
from tenantry_runtime.engine.sequence import Receiving
from tenantry_runtime.pool.local_port import LocalExchange
from tenantry_runtime.pool.messages import (
    HERE,
    Deliver,
    Failed,
    NodeMessage,
    PrefixChanges,
    Reserved,
    Started,
    Submit,
)

BOTH: tuple[Phase, ...] = ("prefill", "decode")


def two_nodes(
    *,
    num_pages: int = 16,
    decode_pages: int = 16,
    num_slots: int = 64,
    handoff_bytes: int = 1 << 20,
) -> Cluster:
    exchange = LocalExchange()
    return Cluster(
        {
            "p": an_engine(
                phases=("prefill",),
                num_pages=num_pages,
                handoff_bytes=handoff_bytes,
                port=exchange.port("p", num_slots=num_slots),
            ),
            "d": an_engine(
                phases=("decode",),
                num_pages=decode_pages,
                handoff_bytes=handoff_bytes,
                port=exchange.port("d", num_slots=num_slots),
            ),
        }
    )


def many(num: int, *, max_tokens: int = 20, step: int = 17) -> list[Submit]:
    return [
        a_submit(
            f"r{n}",
            prompt=[(n + 3 * k) % 23 + 1 for k in range(1 + step * n)],
            max_tokens=max_tokens,
            tenant=f"tenant-{n % 3}",
            sampling=Sampling(seed=n, temperature=float(n % 2)),
            stop_token_ids=(),
        )
        for n in range(num)
    ]


def assert_all_answered(transcript: Transcript, submits: Iterable[Submit]) -> None:
    assert not transcript.failed
    for submit in submits:
        assert transcript.tokens[submit.request_id] == expected_answer(submit)


def test_a_request_goes_through_both_nodes() -> None:
    cluster = two_nodes()
    submit = a_submit(prompt=[5] * 150, max_tokens=3, stop_token_ids=())
    cluster.send(submit, "p", "d")
    transcript = cluster.run_to_end()
    assert transcript.tokens["r"] == expected_answer(submit)
    said = cluster.errands["r"].said
    assert said[:2] == ["started", "reserved"]
    assert sorted(said[2:]) == ["delivered", "tokens", "tokens", "tokens"]
    assert_nothing_is_left(*cluster.nodes.values())


def test_parts_of_one_sequence_may_meet_in_one_pool() -> None:
    # where an edge avoids a node's decode member, and finds it well again by the time it needs one
    loop = an_engine()
    submit = a_submit(prompt=[5] * 150, max_tokens=3, stop_token_ids=())
    transcript = Transcript()

    loop.submit(replace(submit, request_id="p", part="prefill"))
    while not loop.is_idle:
        for message in loop.turn():
            match message:
                case Started():
                    loop.submit(replace(submit, request_id="d", part="decode"))
                case Reserved(target=target):
                    loop.deliver(Deliver(request_id="p", address=HERE, target=target))
                case _:
                    transcript.read([message])

    assert transcript.tokens["d"] == expected_answer(submit)
    assert_nothing_is_left(loop)


@pytest.mark.parametrize("num_slots", [1, 64])
@pytest.mark.parametrize("handoff_bytes", [1, 1 << 20])
def test_many_requests_get_what_they_would_get_alone(num_slots: int, handoff_bytes: int) -> None:
    cluster = two_nodes(num_slots=num_slots, handoff_bytes=handoff_bytes)
    submits = many(16)
    for submit in submits:
        cluster.send(submit, "p", "d")
    transcript = cluster.run_to_end()
    assert_all_answered(transcript, submits)
    assert_nothing_is_left(*cluster.nodes.values())


def test_a_preempted_request_comes_back_and_its_stream_is_whole() -> None:
    cluster = two_nodes(num_pages=32, decode_pages=8)
    submits = many(6, max_tokens=3 * PAGE_TOKENS, step=20)
    for submit in submits:
        cluster.send(submit, "p", "d")
    transcript = cluster.run_to_end()
    assert_all_answered(transcript, submits)
    assert any(errand.num_restarts for errand in cluster.errands.values())
    assert_nothing_is_left(*cluster.nodes.values())


def a_split_engine(num_pages: int = 16) -> EngineLoop:
    return an_engine(separate_pools=True, num_pages=num_pages)


def test_a_node_with_separate_pools_runs_whole_sequences_too() -> None:
    loop = a_split_engine()
    submits = many(16)
    for submit in submits:
        loop.submit(submit)
    transcript = run_to_end(loop)
    assert_all_answered(transcript, submits)
    assert_nothing_is_left(loop)


def test_whole_sequences_survive_preemption_in_separate_pools() -> None:
    loop = a_split_engine(num_pages=8)
    submits = many(6, max_tokens=3 * PAGE_TOKENS, step=20)
    for submit in submits:
        loop.submit(submit)
    transcript = run_to_end(loop)
    assert_all_answered(transcript, submits)
    assert sum(lane.scheduler.statistics().num_preemptions for lane in loop.lanes) > 0
    assert_nothing_is_left(loop)


def test_both_parts_may_be_on_one_node_and_an_edge_between_them() -> None:
    loop = a_split_engine()
    cluster = Cluster({"node": loop})
    submits = many(8)
    for submit in submits:
        cluster.send(submit, "node", "node")
    transcript = cluster.run_to_end()
    assert_all_answered(transcript, submits)
    assert_nothing_is_left(loop)


@pytest.mark.parametrize("first", ["p", "d"])
def test_a_shared_pool_may_be_either_end_of_a_hand_off(first: str) -> None:
    exchange = LocalExchange()
    shared = an_engine(port=exchange.port("s"))
    ends: dict[str, Phase] = {"p": "prefill", "d": "decode"}
    other = an_engine(phases=(ends[first],), port=exchange.port(first))
    cluster = Cluster({"s": shared, first: other})
    route = (first, "s") if first == "p" else ("s", first)
    submits = many(9)
    for n, submit in enumerate(submits):
        if n % 3:
            cluster.send(submit, *route)
        else:
            cluster.errands[submit.request_id] = Errand(submit, "s", "s")
            shared.submit(submit)
    transcript = cluster.run_to_end()
    assert_all_answered(transcript, submits)
    assert_nothing_is_left(shared, other)


def test_a_prompt_for_elsewhere_gets_on_when_its_tenants_answers_need_its_pages() -> None:
    exchange = LocalExchange()
    shared = an_engine(port=exchange.port("s"), num_pages=9, chunk_tokens=2)
    cluster = Cluster({"s": shared, "d": an_engine(phases=("decode",), port=exchange.port("d"))})
    for name in ("old", "young"):
        submit = a_submit(name, prompt=[5] * 60, max_tokens=400, stop_token_ids=())
        cluster.errands[name] = Errand(submit, "s", "s")
        shared.submit(submit)
    cluster.send(a_submit("away", prompt=[7] * 240, max_tokens=4, stop_token_ids=()), "s", "d")
    transcript = cluster.run_to_end()
    for name, errand in cluster.errands.items():
        assert transcript.tokens[name] == expected_answer(errand.submit)
    assert shared.lanes[0].scheduler.statistics().num_preemptions > 0
    assert_nothing_is_left(*cluster.nodes.values())


def test_what_the_decode_node_has_is_not_sent_again() -> None:
    cluster = two_nodes()
    prompt = [(3 * k + k * k) % 23 + 1 for k in range(300)]
    for name, tokens in (("first", prompt), ("again", [*prompt[:270], 9])):
        cluster.send(a_submit(name, prompt=tokens, max_tokens=3, stop_token_ids=()), "p", "d")
        cluster.run_to_end()
        assert cluster.transcript.tokens[name] == expected_answer(cluster.errands[name].submit)
    assert cluster.targets["first"].first_page == 0
    assert (cluster.targets["again"].first_page, len(cluster.targets["again"].pages)) == (4, 16)
    # what the prefill node had is what is billed
    assert [cluster.errands[name].first_cached for name in ("first", "again")] == [0, 256]


def test_pages_that_decode_steps_write_are_not_kept() -> None:
    cluster = two_nodes()
    submit = a_submit(prompt=[3] * 70, max_tokens=150, stop_token_ids=())
    cluster.send(submit, "p", "d")
    answer = cluster.run_to_end().tokens["r"]
    for loop in cluster.nodes.values():
        assert len(loop.lanes[0].prefixes.keys()) == 1
    again = a_submit("again", prompt=[*submit.token_ids, *answer], max_tokens=2, stop_token_ids=())
    cluster.send(again, "p", "d")
    cluster.run_to_end()
    assert cluster.targets["again"].first_page == 1


def test_another_tenant_finds_nothing_on_either_node() -> None:
    cluster = two_nodes()
    for name in ("acme", "globex"):
        cluster.send(a_submit(name, prompt=[5] * 200, tenant=name, max_tokens=2), "p", "d")
        cluster.run_to_end()
    assert cluster.targets["globex"].first_page == 0
    assert cluster.errands["globex"].first_cached == 0


def a_stalled_engine(*, separate_pools: bool, phases: tuple[Phase, ...] = BOTH) -> EngineLoop:
    return an_engine(
        decoder=FakeDecoder(FakeConfig(context_tokens=8192)),
        separate_pools=separate_pools,
        phases=phases,
        num_pages=128,
        max_batch=32,
        chunk_tokens=256,
    )


@pytest.mark.parametrize("separate_pools", [False, True])
def test_a_long_prompt_holds_no_stream_up_longer_than_one_chunk_and_one_step(
    separate_pools: bool,
) -> None:
    loop = a_stalled_engine(separate_pools=separate_pools)
    streams = [
        a_submit(f"s{n}", prompt=[n + 1] * 20, max_tokens=200, tenant=f"t{n}", stop_token_ids=())
        for n in range(16)
    ]
    for submit in streams:
        loop.submit(submit)
    transcript = Transcript()
    while len(transcript.tokens) < 16:
        transcript.read(loop.turn())
    loop.submit(a_submit("long", prompt=[7] * 4000, max_tokens=2, stop_token_ids=()))
    num_turns, queued = 0, 4000
    while "long" not in transcript.finished:
        before = {
            submit.request_id: len(transcript.tokens[submit.request_id]) for submit in streams
        }
        transcript.read(loop.turn())
        num_turns += 1
        # a token of each stream in each turn, and in each turn at most one chunk
        for name, num_told in before.items():
            assert len(transcript.tokens[name]) == num_told + 1
        [prefill] = [load for load in loop.statistics().loads if load.phase == "prefill"]
        assert queued - prefill.num_queued_tokens <= 256
        queued = prefill.num_queued_tokens
    assert num_turns >= 4000 // 256
    run_to_end(loop, transcript)
    for submit in streams:
        assert transcript.tokens[submit.request_id] == expected_answer(submit)


@pytest.mark.parametrize("handoff_bytes", [1, 2048])
def test_no_turn_writes_more_pages_than_it_may(handoff_bytes: int) -> None:
    """A page of the fake model takes 512 bytes."""
    cluster = two_nodes(num_pages=32, decode_pages=32, handoff_bytes=handoff_bytes)
    for n in range(4):
        cluster.send(a_submit(f"r{n}", prompt=[n + 1] * 400, max_tokens=2), "p", "d")
    decode = cluster.nodes["d"].lanes[0].scheduler
    written: dict[str, int] = {}
    for _ in range(200):
        cluster.turn()
        now = {
            s.request_id: len(s.state.reception.written)
            for s in decode.admitted
            if isinstance(s.state, Receiving)
        }
        num_new = sum(count - written.get(name, 0) for name, count in now.items())
        assert num_new <= max(handoff_bytes // 512, 1)
        written |= now
    assert len(cluster.run_to_end().finished) == 4


def test_what_prefix_trees_gain_and_lose_is_told_now_and_then() -> None:
    now_s = [1000.0]
    loop = an_engine(clock_s=lambda: now_s[0])
    told: list[PrefixChanges] = []

    def turn_to_end() -> None:
        while not loop.is_idle:
            told.extend(m for m in loop.turn() if isinstance(m, PrefixChanges))

    prompt = [(3 * k + k * k) % 23 + 1 for k in range(200)]
    loop.submit(a_submit(prompt=prompt))
    turn_to_end()
    assert told == []
    now_s[0] += PREFIX_INTERVAL_S
    [changes] = loop.turn()
    keys = pack_keys(page_keys("acme", prompt))
    assert changes == PrefixChanges(model=MODEL, phase="prefill", added=keys, removed=b"")
    loop.lanes[0].prefixes.drop("acme")
    now_s[0] += PREFIX_INTERVAL_S
    [changes] = loop.turn()
    assert isinstance(changes, PrefixChanges)
    assert sorted(unpack_keys(changes.removed)) == sorted(unpack_keys(keys))
    assert loop.turn() == []


def test_all_keys_are_told_on_demand_and_changes_follow() -> None:
    now_s = [1000.0]
    loop = an_engine(clock_s=lambda: now_s[0], separate_pools=True)
    loop.submit(a_submit(prompt=[5] * 200))
    run_to_end(loop)
    keys = pack_keys(page_keys("acme", [5] * 200))
    assert [(m.phase, m.added, m.is_whole) for m in loop.prefix_keys()] == [
        ("prefill", keys, True),
        ("decode", keys, True),
    ]
    now_s[0] += PREFIX_INTERVAL_S
    assert loop.turn() == []


def test_loads_say_what_waits_and_what_may_still_grow() -> None:
    cluster = two_nodes()
    for n in range(3):
        cluster.send(a_submit(f"r{n}", prompt=[5] * 40, max_tokens=90, stop_token_ids=()), "p", "d")
    [prefill] = cluster.nodes["p"].statistics().loads
    assert (prefill.phase, prefill.num_queued_tokens, prefill.num_sequences) == ("prefill", 120, 3)
    assert (prefill.num_free_pages, prefill.num_reserved_growth_pages) == (16, 0)
    for _ in range(12):
        cluster.turn()
    [decode] = cluster.nodes["d"].statistics().loads
    assert (decode.phase, decode.num_sequences) == ("decode", 3)
    # 40 + 90 - 1 tokens take three pages each, of which each has one by now
    assert (decode.num_free_pages, decode.num_reserved_growth_pages) == (13, 6)
    cluster.run_to_end()


def test_a_loop_that_waits_for_others_is_idle_but_not_empty() -> None:
    cluster = two_nodes()
    cluster.held_back |= {"started"}
    cluster.send(a_submit(prompt=[5] * 40), "p", "d")
    for _ in range(5):
        cluster.turn()
    prefill = cluster.nodes["p"]
    assert prefill.is_idle and not prefill.is_empty
    cluster.held_back.clear()
    cluster.nodes["d"].submit(replace(cluster.errands["r"].submit, part="decode"))
    assert not cluster.nodes["d"].is_idle
    assert len(cluster.run_to_end().finished) == 1


@pytest.mark.parametrize("num_turns", range(0, 24, 2))
def test_a_canceled_request_may_come_again_at_once_under_its_id(num_turns: int) -> None:
    loop = a_split_engine()
    submit = a_submit(prompt=[5] * 200, max_tokens=12, stop_token_ids=())
    loop.submit(submit)
    for _ in range(num_turns):
        loop.turn()
    loop.cancel("r")
    assert loop.is_empty
    again = replace(submit, token_ids=[7] * 150)
    loop.submit(again)
    transcript = run_to_end(loop)
    assert transcript.tokens["r"] == expected_answer(again)
    assert not transcript.failed
    assert_nothing_is_left(loop)


def test_a_prompt_may_be_sent_elsewhere_as_long_as_it_is_not_confirmed() -> None:
    exchange = LocalExchange()
    nodes = {
        address: an_engine(phases=(phase,), port=exchange.port(address))
        for address, phase in (("p", BOTH[0]), ("d", BOTH[1]), ("e", BOTH[1]))
    }
    cluster = Cluster(nodes)
    submit = a_submit(prompt=[5] * 300, max_tokens=6, stop_token_ids=())
    cluster.send(submit, "p", "d")
    while not cluster.targets:
        cluster.turn()
    cluster.turn()
    # the edge has lost the decode node that it chose, and asks another
    nodes["d"].cancel("r")
    cluster.errands["r"].decode = "e"
    nodes["e"].submit(replace(submit, part="decode"))
    while cluster.errands["r"].said.count("reserved") < 2:
        cluster.read("e", nodes["e"].turn())
    assert cluster.run_to_end().tokens["r"] == expected_answer(submit)
    assert_nothing_is_left(*nodes.values())


def test_each_node_refuses_what_its_own_pool_could_never_hold() -> None:
    split = a_split_engine(num_pages=2)
    split.submit(a_submit("r", prompt=[5] * 100, max_tokens=29))
    assert run_to_end(split).failed["r"].reason == "context"
    cluster = two_nodes(num_pages=2, decode_pages=4)
    # the answer needs no room where the prompt is computed
    for name, num_prompt in (("fits", 128), ("long", 129)):
        submit = a_submit(name, prompt=[5] * num_prompt, max_tokens=60, stop_token_ids=())
        cluster.send(submit, "p", "d")
    transcript = cluster.run_to_end()
    assert set(transcript.finished) == {"fits"}
    assert transcript.failed["long"].reason == "context"


def test_what_has_begun_to_answer_comes_back_however_long_the_queue_is() -> None:
    loop = an_engine(separate_pools=True, num_pages=8, max_waiting=2)
    transcript = Transcript()
    submits = many(60, max_tokens=3 * PAGE_TOKENS, step=2)
    for submit in submits:
        loop.submit(submit)
        loop.submit(replace(submit, request_id=f"{submit.request_id} again"))
        for _ in range(5):
            transcript.read(loop.turn())
    run_to_end(loop, transcript)
    assert sum(lane.scheduler.statistics().num_preemptions for lane in loop.lanes) > 0
    assert {failed.reason for failed in transcript.failed.values()} == {"capacity"}
    assert not [name for name in transcript.failed if transcript.tokens[name]]
    assert_nothing_is_left(loop)


def test_what_has_begun_to_answer_comes_back_to_a_node_that_takes_no_work() -> None:
    loop = an_engine(separate_pools=True, num_pages=8, max_incidents=1)
    submits = many(6, max_tokens=3 * PAGE_TOKENS, step=20)
    for submit in submits:
        loop.submit(submit)
    transcript = Transcript()
    while len(transcript.tokens) < len(submits):
        transcript.read(loop.turn())
    [sequence, *_] = loop.lanes[-1].scheduler.admitted
    incident = handoff_incident(
        sequence, "hand-off write", logical_page=0, found=("digest",), now_s=time.time()
    )
    for lane in loop.lanes:
        lane.scheduler.incidents.add(incident)
    run_to_end(loop, transcript)
    assert sum(lane.scheduler.statistics().num_preemptions for lane in loop.lanes) > 0
    assert not transcript.failed


def test_a_request_that_fails_in_both_parts_at_once_fails_once() -> None:
    """One page of it is sent in a turn, and the one before it is written."""
    loop = an_engine(separate_pools=True, handoff_bytes=1)
    loop.submit(a_submit(prompt=[5] * 400))
    prefill, decode = loop.lanes
    while (receiving := decode.scheduler.sequence("r")) is None or not (
        isinstance(receiving.state, Receiving) and receiving.state.reception.written
    ):
        loop.turn()
    sending = prefill.scheduler.sequence("r")
    assert sending is not None and sending.delivery is not None
    next_written = len(receiving.state.reception.written)
    ends = ((prefill, sending, sending.delivery.next_page), (decode, receiving, next_written))
    for lane, sequence, place in ends:
        ref = sequence.held.lease.ref(place)
        lane.tracker.stamp([PageRef(ref.index, Tag(ref.tag + 1))])
    told: list[NodeMessage] = []
    while not loop.is_idle:
        told.extend(loop.turn())
    assert loop.statistics().num_incidents == 2
    assert [type(message) for message in told] == [Failed]
    assert_nothing_is_left(loop)
