"""Which members the router chooses, and what it counts on them."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given, strategies as st

from support.routes import BOTH, MODEL, a_load, a_member, a_router, asked
from tenantry_runtime.cache.prefix_keys import pack_keys
from tenantry_runtime.core import Phase
from tenantry_runtime.errors import NodeUnavailable
from tenantry_runtime.pool.messages import MemberDescription, PrefixChanges
from tenantry_runtime.routing.breaker import FIRST_PAUSE_S, MAX_FAILURES
from tenantry_runtime.routing.member import MemberId
from tenantry_runtime.routing.router import HELD_WEIGHT, LOAD_FLOOR_TOKENS, Router

NODES = [f"node-{number}" for number in range(5)]


def learn(router: Router, node: str, phase: Phase, keys: Sequence[int]) -> None:
    changes = PrefixChanges(model=MODEL, phase=phase, added=pack_keys(list(keys)), removed=b"")
    router.learn(node, changes)


def homes(router: Router, num_sessions: int = 200) -> dict[int, str]:
    """Where each session goes when nothing else is in flight."""
    found = {}
    for number in range(num_sessions):
        placement = router.prefill(asked(session=str(number)), 0.0)
        found[number] = placement.prefill.node
        placement.end(0.0)
    return found


def test_a_session_stays_where_it_is() -> None:
    router = a_router(whole=NODES)

    assert homes(router) == homes(router)


def test_sessions_of_tenants_and_models_have_nothing_to_do_with_each_other() -> None:
    router = a_router(whole=NODES)

    found = {
        router.prefill(asked(tenant=f"tenant-{number}", session="same"), 0.0).prefill.node
        for number in range(40)
    }

    assert len(found) > 1


@pytest.mark.parametrize("absence", ["unhealthy", "draining", "gone"])
def test_only_sessions_of_an_absent_member_move_and_they_return_with_it(absence: str) -> None:
    router = a_router(whole=NODES)
    before = homes(router)

    match absence:
        case "unhealthy":
            router.set_health("node-2", False)
        case "draining":
            router.report("node-2", [], is_draining=True)
        case _:
            router.leave("node-2")
    during = homes(router)

    assert "node-2" not in during.values()
    assert all(during[number] == home for number, home in before.items() if home != "node-2")

    match absence:
        case "unhealthy":
            router.set_health("node-2", True)
        case "draining":
            router.report("node-2", [], is_draining=False)
        case _:
            router.join("node-2", [a_member(phase) for phase in BOTH])
    assert homes(router) == before


@given(
    st.lists(
        st.tuples(
            st.integers(1, 50_000),
            st.none() | st.sampled_from(["a", "b", "c"]),
            st.integers(0, 3),
        ),
        max_size=60,
    )
)
def test_no_member_over_its_bound_gets_more_while_others_have_room(
    requests: list[tuple[int, str | None, int]],
) -> None:
    router = a_router(whole=NODES, load_factor=1.25, load_floor_tokens=1000)
    learn(router, "node-0", "prefill", [1])
    running = []
    for num_tokens, session, num_ending in requests:
        loads = {member.id: member.prefill_tokens for member in router.members}
        average = sum(loads.values()) / len(NODES)

        placement = router.prefill(asked(num_tokens=num_tokens, session=session, keys=[1]), 0.0)

        # it holds all of the prompt: one page
        held = 64 if placement.prefill.node == "node-0" else 0
        assert loads[placement.prefill] <= max(1000, 1.25 * average) + HELD_WEIGHT * held
        running.append(placement)
        for _ in range(min(num_ending, len(running))):
            running.pop(0).end(0.0)
    for placement in running:
        placement.end(0.0)
    assert all(member.prefill_tokens == 0 for member in router.members)


def test_a_session_passes_over_a_crowded_member_to_the_next_and_back() -> None:
    router = a_router(whole=NODES, load_floor_tokens=0)
    first = router.prefill(asked(session="s", num_tokens=10_000), 0.0)

    second = router.prefill(asked(session="s"), 0.0)
    assert second.prefill != first.prefill

    first.end(0.0)
    second.end(0.0)
    third = router.prefill(asked(session="s"), 0.0)
    assert third.prefill == first.prefill


def test_a_conversation_stays_where_it_was_moved_to() -> None:
    router = a_router(whole=NODES, load_floor_tokens=0)
    first = router.prefill(asked(session="s", num_tokens=10_000), 0.0)
    moved = router.prefill(asked(session="s", keys=range(8)), 0.0)
    learn(router, moved.prefill.node, "prefill", range(8))
    # a quarter of a prompt is a conversation, less may be what all prompts begin with
    learn(router, first.prefill.node, "prefill", [0, 1])
    first.end(0.0)
    moved.end(0.0)

    assert router.prefill(asked(session="s", keys=range(9)), 0.0).prefill == moved.prefill
    assert router.prefill(asked(session="s", keys=range(50, 60)), 0.0).prefill == first.prefill


def test_a_member_that_holds_a_conversation_may_be_busier_than_others() -> None:
    router = a_router(whole=NODES, load_floor_tokens=0)
    home = router.prefill(asked(session="s", num_tokens=64), 0.0).prefill
    keys = range(10)
    learn(router, home.node, "prefill", keys)
    most = HELD_WEIGHT * len(keys) * 64

    within = router.prefill(asked(session="s", num_tokens=most, keys=keys), 0.0)
    assert within.prefill == home
    assert router.prefill(asked(session="s", keys=keys), 0.0).prefill == home
    router.prefill(asked(session="s", num_tokens=most, keys=keys), 0.0)
    assert router.prefill(asked(session="s", keys=keys), 0.0).prefill != home


def test_without_a_session_the_longest_prefix_wins_then_the_shortest_queue() -> None:
    router = a_router(whole=NODES)
    learn(router, "node-1", "prefill", [1])
    learn(router, "node-3", "prefill", [1, 2])

    assert router.prefill(asked(keys=[1, 2, 3]), 0.0).prefill.node == "node-3"
    assert router.prefill(asked(keys=[1, 9]), 0.0).prefill.node == "node-1"
    assert {router.prefill(asked(keys=[8]), 0.0).prefill.node for _ in range(3)} == {
        "node-0",
        "node-2",
        "node-4",
    }


def test_cached_tokens_are_no_load() -> None:
    router = a_router(prefill=["node"], decode=["other"])
    learn(router, "node", "prefill", [1, 2])

    router.prefill(asked(num_tokens=200, keys=[1, 2, 3]), 0.0)

    loads = {member.id.node: member.prefill_tokens for member in router.members}
    assert loads == {"node": 200 - 128, "other": 0}


def test_what_other_routers_have_placed_is_load_as_the_member_reports_it() -> None:
    router = a_router(whole=["busy", "idle"])
    router.report("busy", [a_load("prefill", 500, num_queued_tokens=5000)])

    assert {router.prefill(asked(), 0.0).prefill.node for _ in range(5)} == {"idle"}
    router.report("busy", [a_load("prefill", 500, num_queued_tokens=0)])
    assert router.prefill(asked(), 0.0).prefill.node == "busy"


def test_a_session_leaves_a_member_that_other_routers_have_filled() -> None:
    router = a_router(whole=NODES)
    home = router.prefill(asked(session="s"), 0.0).prefill.node
    router.report(home, [a_load("prefill", 500, num_queued_tokens=10 * LOAD_FLOOR_TOKENS)])

    assert router.prefill(asked(session="s"), 0.0).prefill.node != home


def test_what_a_member_reports_of_this_routers_own_prompts_is_not_counted_twice() -> None:
    router = a_router(prefill=["node"], decode=["other"])
    learn(router, "node", "prefill", [1, 2])
    placement = router.prefill(asked(num_tokens=200, keys=[1, 2, 3]), 0.0)
    (member,) = [member for member in router.members if member.id.phase == "prefill"]

    # it does not know yet what is cached
    router.report("node", [a_load("prefill", 500, num_queued_tokens=200, num_sequences=1)])
    assert member.queued_tokens == member.prefill_tokens == 200 - 128
    router.report("node", [a_load("prefill", 500, num_queued_tokens=300, num_sequences=2)])
    assert member.queued_tokens == 200 - 128 + 100
    placement.end(0.0)
    router.report("node", [a_load("prefill", 500, num_queued_tokens=0)])
    assert member.queued_tokens == member.prompt_tokens == 0


def test_the_first_token_ends_the_load_of_the_prefill_and_the_end_all() -> None:
    router = a_router(prefill=["p"], decode=["d"])
    placement = router.prefill(asked(num_tokens=640, max_tokens=64), 0.0)
    router.decode(placement, 0.0)
    prefill, decode = router.members
    assert (prefill.prefill_tokens, decode.decode_tokens, decode.room_pages) == (640, 704, 989)

    placement.advance(1)
    assert (prefill.prefill_tokens, decode.decode_tokens) == (0, 704)

    for _ in range(2):
        placement.end(0.0)
        assert (prefill.prefill_tokens, decode.decode_tokens, decode.room_pages) == (0, 0, 1000)


def test_a_node_with_both_phases_serves_a_request_whole() -> None:
    router = a_router(decode=["other"], whole=["node"])

    placement = router.prefill(asked(), 0.0)

    assert placement.is_whole
    assert placement.decode == MemberId("node", MODEL, "decode")


def test_a_node_whose_own_decode_member_is_to_be_avoided_hands_over() -> None:
    router = a_router(whole=["node"], decode=["other"])
    own = MemberId("node", MODEL, "decode")

    placement = router.prefill(asked(), 0.0, avoid=[own])

    assert not placement.is_whole
    assert router.decode(placement, 0.0, avoid=[own]).node == "other"


def test_what_could_not_be_served_whole_does_not_take_pages_of_one_node_twice() -> None:
    router = a_router(whole=["node"], decode=["other"])
    own, other = (MemberId(node, MODEL, "decode") for node in ("node", "other"))
    router.report("other", [a_load("decode", 500)])

    assert router.decode(router.prefill(asked(), 0.0, avoid=[own]), 0.0) == other
    last_resort = router.prefill(asked(), 0.0, avoid=[own])
    router.leave("other")
    assert router.decode(last_resort, 0.0) == own


def test_the_decode_member_is_the_one_with_most_room() -> None:
    router = a_router(prefill=["p"], decode=["d0", "d1", "d2"])
    router.report("d0", [a_load("decode", 100)])
    router.report("d1", [a_load("decode", 300)])
    router.report("d2", [a_load("decode", 400, num_reserved_growth_pages=200, num_sequences=1)])

    placement = router.prefill(asked(), 0.0)

    assert router.decode(placement, 0.0).node == "d1"


def test_what_is_placed_counts_before_it_is_reported() -> None:
    router = a_router(prefill=["p"], decode=["d0", "d1"])

    chosen = []
    for _ in range(4):
        placement = router.prefill(asked(num_tokens=6400), 0.0)
        chosen.append(router.decode(placement, 0.0).node)

    assert sorted(chosen) == ["d0", "d0", "d1", "d1"]


def test_a_report_takes_the_place_of_what_was_promised() -> None:
    router = a_router(prefill=["p"], decode=["d"])
    placement = router.prefill(asked(num_tokens=640, max_tokens=128), 0.0)
    router.decode(placement, 0.0)
    (decode,) = [member for member in router.members if member.id.phase == "decode"]

    # before its pages are reserved, a report shows nothing of them
    router.report("d", [a_load("decode", 500)])
    assert decode.room_pages == 500 - 12
    placement.reserve()
    router.report("d", [a_load("decode", 490, num_sequences=1, num_reserved_growth_pages=99)])
    assert decode.room_pages == 490 - 2
    placement.advance(64)
    router.report("d", [a_load("decode", 489, num_sequences=1, num_reserved_growth_pages=99)])
    assert decode.room_pages == 489 - 1


def test_a_sessions_decode_member_is_kept_while_it_has_room() -> None:
    router = a_router(prefill=["p"], decode=["d0", "d1"])
    learn(router, "d0", "decode", [1, 2, 3])
    router.report("d0", [a_load("decode", 50)])

    def choice(**fields: object) -> str:
        placement = router.prefill(asked(num_tokens=256, max_tokens=64, **fields), 0.0)
        node = router.decode(placement, 0.0).node
        placement.end(0.0)
        return node

    assert choice(session="s", keys=[1, 2, 3, 4]) == "d0"
    # less than half of it: what all sessions begin with, perhaps
    assert choice(session="s", keys=[1, 5, 6]) == "d1"
    assert choice(keys=[1, 2, 3, 4]) == "d1"
    router.report("d0", [a_load("decode", 4)])
    assert choice(session="s", keys=[1, 2, 3, 4]) == "d1"


def test_members_that_differ_are_not_paired() -> None:
    def differences(prefill: MemberDescription, decode: MemberDescription) -> list[str]:
        return [] if prefill.revision == decode.revision else ["revision"]

    router = a_router(differences=differences)
    router.join("p0", [a_member("prefill", revision="a")])
    router.join("p1", [a_member("prefill", revision="b")])
    router.join("d", [a_member("decode", revision="b")])

    placement = router.prefill(asked(), 0.0)

    assert placement.prefill.node == "p1"
    assert router.decode(placement, 0.0).node == "d"
    with pytest.raises(NodeUnavailable):
        router.prefill(asked(), 0.0, avoid=[placement.prefill])


def test_what_is_to_be_avoided_is() -> None:
    router = a_router(prefill=["p0", "p1"], decode=["d0", "d1"])
    d0, p0 = MemberId("d0", MODEL, "decode"), MemberId("p0", MODEL, "prefill")

    placement = router.prefill(asked(), 0.0, avoid=[p0])

    assert placement.prefill.node == "p1"
    assert router.decode(placement, 0.0, avoid=[d0]).node == "d1"


def test_a_model_without_a_decode_member_is_not_served() -> None:
    router = a_router(prefill=["p"])

    assert not router.can_serve(MODEL, 0.0)
    with pytest.raises(NodeUnavailable):
        router.prefill(asked(), 0.0)


def test_a_member_that_fails_too_much_gets_a_trial_and_comes_back() -> None:
    router = a_router(prefill=["p0", "p1"], decode=["d"])
    for _ in range(MAX_FAILURES + 1):
        placement = router.prefill(asked(), 0.0, avoid=[MemberId("p1", MODEL, "prefill")])
        placement.end(0.0, blamed=["prefill"])
    assert router.prefill(asked(), 0.0).prefill.node == "p1"

    trial = router.prefill(asked(), FIRST_PAUSE_S)

    assert trial.prefill.node == "p0"
    assert router.prefill(asked(), FIRST_PAUSE_S).prefill.node == "p1"
    trial.end(FIRST_PAUSE_S, is_answered=True)
    assert router.prefill(asked(), FIRST_PAUSE_S).prefill.node == "p0"


def test_two_members_that_fail_to_hand_over_are_parted_and_work_with_others() -> None:
    router = a_router(prefill=["p0", "p1"], decode=["d0", "d1"])
    p0, d0 = MemberId("p0", MODEL, "prefill"), MemberId("d0", MODEL, "decode")
    for _ in range(MAX_FAILURES + 1):
        placement = router.prefill(asked(), 0.0, avoid=[MemberId("p1", MODEL, "prefill")])
        router.decode(placement, 0.0, avoid=[MemberId("d1", MODEL, "decode")])
        placement.end(0.0, blamed=BOTH, is_handoff=True)

    pairs = set()
    for _ in range(8):
        placement = router.prefill(asked(), 0.0)
        pairs.add((placement.prefill.node, router.decode(placement, 0.0).node))
    assert ("p0", "d0") not in pairs
    assert {("p0", "d1"), ("p1", "d0")} <= pairs

    trial = router.prefill(asked(), FIRST_PAUSE_S, avoid=[MemberId("p1", MODEL, "prefill")])
    assert trial.prefill == p0
    avoid = [MemberId("d1", MODEL, "decode")]
    assert router.decode(trial, FIRST_PAUSE_S, avoid=avoid) == d0
    trial.end(FIRST_PAUSE_S, is_answered=True)


def test_a_node_that_starts_anew_is_not_blamed_for_its_former_life() -> None:
    router = a_router(whole=["node"])
    learn(router, "node", "prefill", [1])
    for _ in range(MAX_FAILURES + 1):
        router.prefill(asked(), 0.0).end(0.0, blamed=BOTH)
    assert not router.can_serve(MODEL, 0.0)

    router.join("node", [a_member(phase) for phase in BOTH])

    assert router.can_serve(MODEL, 0.0)
    assert router.prefixes.num_pages(MemberId("node", MODEL, "prefill")) == 0


def test_what_its_former_life_ran_does_not_count_against_a_node() -> None:
    router = a_router(whole=["node"])
    former = [router.prefill(asked(), 0.0) for _ in range(MAX_FAILURES + 1)]

    router.join("node", [a_member(phase) for phase in BOTH])
    for placement in former:
        placement.end(0.0, blamed=BOTH)

    assert router.can_serve(MODEL, 0.0)


def test_a_placement_outlives_its_member() -> None:
    router = a_router(whole=["node"])
    placement = router.prefill(asked(), 0.0)

    router.leave("node")

    placement.advance(1)
    placement.end(0.0, blamed=BOTH)


def test_keys_matter_only_where_there_is_a_choice() -> None:
    assert not a_router(whole=["a"]).wants_keys(MODEL)
    assert not a_router(prefill=["a"], decode=["b"]).wants_keys(MODEL)
    assert a_router(prefill=["a", "b"], decode=["c"]).wants_keys(MODEL)
    assert a_router(prefill=["a"], decode=["b", "c"]).wants_keys(MODEL)


def test_retries_are_paid_by_tenant_and_member() -> None:
    router = a_router(prefill=["p"], decode=["d"])
    placements = [router.prefill(asked(), 0.0) for _ in range(20)]

    num_retries = sum(router.may_retry("tenant", placements[0].prefill) for _ in range(20))

    assert num_retries == 4
