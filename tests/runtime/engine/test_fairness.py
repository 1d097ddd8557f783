"""A flood of one tenant costs the others nothing that is theirs; what nobody uses, anybody may."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, strategies as st

from support.engine import a_submit, an_engine, run_to_end
from support.fairness import CountingDesk
from support.scheduling import Desk
from tenantry_runtime.core import PAGE_TOKENS, Share
from tenantry_runtime.engine.fairness import VirtualCounters
from tenantry_runtime.engine.policy import ServiceCost
from tenantry_runtime.engine.sequence import Running, Waiting
from tenantry_runtime.errors import CapacityExceeded

QUARTER = Share(guaranteed=0.25)
ONE_PAGE = PAGE_TOKENS - 4
"""Of a prompt that leaves room for an answer of 5 in its page."""


def a_flood(desk: CountingDesk, rng: Random, *, num: int, share: Share | None = None) -> None:
    for _ in range(num):
        prompt = [rng.randint(1, 99) for _ in range(rng.randint(1, 3 * PAGE_TOKENS))]
        desk.send("flood", prompt, rng.randint(1, 60), share)


def a_state(rng: Random, *, num_pages: int, max_batch: int) -> CountingDesk:
    """Return a scheduler in the midst of a flood of 20 requests for one that a bystander sends."""
    desk = CountingDesk(
        num_pages=num_pages, max_batch=max_batch, chunk_tokens=rng.choice([32, 64, 100])
    )
    for _ in range(rng.randint(5, 60)):
        if desk.num_waiting("flood") < 20:
            a_flood(desk, rng, num=20)
            desk.send("bystander", [3] * rng.randint(1, 100), rng.randint(1, 30))
        desk.turn()
    # those who came at the same time are served before
    for _ in range(6):
        a_flood(desk, rng, num=1)
        desk.turn()
    return desk


def first_planned_after(desk: CountingDesk, request_id: str) -> int:
    """Return how many turns it takes until the first piece of a request is computed."""
    before = desk.num_turns
    while request_id not in desk.first_planned:
        a_flood(desk, Random(0), num=1)
        desk.turn()
        assert desk.num_turns - before < 2000
    return desk.first_planned[request_id] - before


@given(seed=st.integers(0, 2**32))
def test_a_polite_tenant_is_first_computed_within_two_steps_whatever_a_flood_does(
    seed: int,
) -> None:
    rng = Random(seed)
    desk = a_state(rng, num_pages=16, max_batch=4)
    were_free = desk.pool.num_free + desk.prefixes.num_evictable
    had_place = desk.scheduler.num_admitted < desk.max_batch
    before = desk.scheduler.statistics().num_preemptions
    polite = desk.send("polite", [9] * rng.randint(1, ONE_PAGE), 5, QUARTER)

    assert first_planned_after(desk, polite) <= 2
    # the flood may have been short of pages for itself in the same steps
    if were_free > desk.max_batch and had_place:
        assert desk.scheduler.statistics().num_preemptions == before


def test_if_all_is_taken_one_preemption_makes_room_within_the_guarantee() -> None:
    desk = Desk(num_pages=8, max_batch=8, chunk_tokens=64)
    for n in range(4):
        desk.add(f"flood-{n}", prompt=[n] * 100, max_tokens=20, tenant="flood")
    while sum(isinstance(s.state, Running) for s in desk.live.values()) < 4:
        desk.turn()
    assert desk.pool.num_free + desk.prefixes.num_evictable == 0
    desk.add("polite", prompt=[9] * 100, max_tokens=20, tenant="polite", share=QUARTER)
    desk.turn()
    assert desk.scheduler.statistics().num_preemptions == 1
    assert isinstance(desk.sequences["flood-3"].state, Waiting), "not the youngest"
    assert [e.sequence.request_id for e in desk.last_plans[-1].entries] == ["polite"]
    desk.run_to_end()


def test_if_all_places_are_taken_one_preemption_makes_one() -> None:
    desk = Desk(num_pages=32, max_batch=4, chunk_tokens=64)
    for n in range(6):
        desk.add(f"flood-{n}", prompt=[n] * 10, max_tokens=50, tenant="flood")
    desk.turn()
    desk.add("polite", prompt=[9] * 100, max_tokens=20, tenant="polite", share=QUARTER)
    desk.turn()
    assert desk.scheduler.statistics().num_preemptions == 1
    assert [e.sequence.request_id for e in desk.last_plans[-1].entries] == ["polite"]
    desk.run_to_end()


def test_without_a_guarantee_a_polite_tenant_waits_for_one_answer_at_most() -> None:
    desk = CountingDesk(num_pages=32, max_batch=2, chunk_tokens=64)
    for _ in range(40):
        desk.send("flood", [1] * 30, 10)
    for _ in range(15):
        desk.turn()
    polite = desk.send("polite", [9] * 30, 10)
    assert first_planned_after(desk, polite) <= 11


@pytest.mark.parametrize("weight", [0.01, 1.0, 1000.0])
def test_a_tenant_alone_has_everything_whatever_its_share(weight: float) -> None:
    desk = CountingDesk(num_pages=16, max_batch=4, chunk_tokens=32)
    plain = CountingDesk(num_pages=16, max_batch=4, chunk_tokens=32)
    for n in range(30):
        desk.send("alone", [n] * 50, 20, Share(weight=weight))
        plain.send("alone", [n] * 50, 20)
    desk.run_to_end()
    plain.run_to_end()
    assert desk.num_turns == plain.num_turns


def test_what_is_guaranteed_to_others_is_used_while_they_do_not() -> None:
    desk = Desk(num_pages=8, max_batch=8, chunk_tokens=300)
    half = Share(guaranteed=0.5)
    desk.add("first", prompt=[1] * 10, max_tokens=300, tenant="promised", share=half)
    desk.turn()
    for n in range(7):
        desk.add(f"flood-{n}", prompt=[2 + n] * 30, max_tokens=4, tenant="flood")
    desk.turn()
    assert sum(isinstance(s.state, Running) for s in desk.live.values()) == 7
    desk.run_to_end()


def test_a_turn_is_never_idle_while_somebody_fits() -> None:
    """A long one waits for pages; short ones use those that are free, but not for ever."""
    desk = Desk(num_pages=8, max_batch=8, chunk_tokens=64)
    desk.add("holder", prompt=[1] * 300, max_tokens=80, tenant="holder")
    while not isinstance(desk.sequences["holder"].state, Running):
        desk.turn()
    desk.add("long", prompt=[2] * 300, max_tokens=1, tenant="long")
    desk.turn()
    num_sent = 0
    while isinstance(desk.sequences["long"].state, Waiting):
        desk.add(f"short-{num_sent}", prompt=[3] * 20, max_tokens=2, tenant="short")
        num_sent += 1
        desk.turn()
        assert num_sent < 200
    overtook = [name for name in desk.finished if name.startswith("short")]
    assert 1 <= len(overtook) <= 8
    desk.run_to_end()


def plans_of_others(desk: Desk, tenant: str, num_turns: int) -> list[list[tuple[str, int]]]:
    plans = []
    for _ in range(num_turns):
        if not desk.live:
            break
        desk.turn()
        plans.append(
            [
                (entry.sequence.request_id, len(entry.token_ids))
                for plan in desk.last_plans
                for entry in plan.entries
                if entry.sequence.tenant != tenant
            ]
        )
    return plans


@given(seed=st.integers(0, 2**32))
def test_what_another_tenant_has_in_the_cache_changes_no_plan(seed: int) -> None:
    outcomes = []
    for secret in ([1] * 300, [2] * 300):
        rng = Random(seed)
        desk = Desk(num_pages=40, max_batch=4, chunk_tokens=48, is_audited=False)
        desk.add("past", prompt=secret, max_tokens=1, tenant="victim")
        desk.run_to_end()
        for n in range(12):
            tenant = rng.choice(["spy", "other"])
            prompt = [rng.choice([1, 1, 2])] * rng.randint(1, 310)
            desk.add(f"{tenant}-{n}", prompt=prompt, max_tokens=rng.randint(1, 20), tenant=tenant)
        outcomes.append(plans_of_others(desk, "victim", 2000))
    assert outcomes[0] == outcomes[1]


@given(seed=st.integers(0, 2**32))
def test_a_hit_of_another_tenant_changes_nobodys_order(seed: int) -> None:
    """Its prompt takes less time, so all come sooner, but in the same order.

    By what is computed alone: how long pages were held, and what has been said at some point of the
    order, depend on time, and so on all that goes on.
    """
    orders = []
    for cached in ([1] * 300, [2] * 300):
        rng = Random(seed)
        policy = VirtualCounters(ServiceCost(output_token=0.0, page_second=0.0))
        desk = CountingDesk(num_pages=60, max_batch=12, chunk_tokens=48, policy=policy)
        desk.send("victim", cached, 1)
        desk.run_to_end()
        desk.first_planned.clear()
        for n in range(3):
            for tenant in ("spy", "other"):
                desk.send(tenant, [10 + n] * rng.randint(1, 200), 1)
        victim = desk.send("victim", [1] * 300, 1)
        desk.run_to_end()
        in_order = sorted(desk.first_planned, key=lambda name: desk.first_planned[name])
        orders.append([name for name in in_order if name != victim])
    assert orders[0] == orders[1]


def test_pages_cost_by_how_many_they_are_and_how_long_they_are_held() -> None:
    desk = Desk(num_pages=16, chunk_tokens=300, step_s=0.1)
    policy = desk.scheduler.policy
    desk.add("r", prompt=[5] * 130, max_tokens=3)
    desk.turn()
    # 130 tokens, an output token, 3 pages for the step
    assert policy.totals()["acme"] == pytest.approx(130 + 4 + 0.5 * 3 * 0.1)
    desk.turn()
    desk.turn()
    assert policy.totals()["acme"] == pytest.approx(130 + 3 * 4 + 0.5 * 3 * 0.3)


def test_a_step_that_takes_for_ever_is_charged_as_a_second() -> None:
    desk = Desk(num_pages=16, chunk_tokens=300, step_s=3600.0)
    desk.add("r", prompt=[5] * 130, max_tokens=1)
    desk.turn()
    assert desk.scheduler.policy.totals()["acme"] == pytest.approx(130 + 4 + 0.5 * 3)


def test_cached_pages_that_nobody_reads_cost_nothing_and_are_not_computed_again() -> None:
    desk = Desk(num_pages=16, chunk_tokens=300, step_s=0.1)
    desk.add("first", prompt=[5] * 130, max_tokens=1)
    desk.turn()
    before = desk.scheduler.policy.totals()["acme"]
    desk.now_s += 0.9
    desk.add("again", prompt=[5] * 130, max_tokens=1)
    desk.turn()
    assert desk.scheduler.policy.totals()["acme"] - before == pytest.approx(2 + 4 + 0.5 * 3 * 0.1)


def test_the_counters_of_a_scheduler_say_what_an_observer_counts() -> None:
    rng = Random(3)
    desk = CountingDesk(num_pages=8, max_batch=4, chunk_tokens=48)
    for _ in range(60):
        tenant = rng.choice(["acme", "globex"])
        desk.send(tenant, [rng.randint(1, 3)] * rng.randint(1, 200), rng.randint(1, 250))
    desk.run_to_end(5000)
    totals = desk.scheduler.policy.totals()
    assert {tenant: pytest.approx(total) for tenant, total in totals.items()} == desk.served
    assert desk.scheduler.statistics().num_preemptions > 0


def test_a_sequence_that_may_not_wait_is_refused_unless_it_runs_in_the_next_step() -> None:
    desk = Desk(num_pages=8, max_batch=2, chunk_tokens=300)
    desk.add("idle pool", num_prompt=100, may_wait=False)
    with pytest.raises(CapacityExceeded):
        desk.add("behind another", num_prompt=10, may_wait=False, tenant="other")
    desk.turn()
    assert isinstance(desk.sequences["idle pool"].state, Running)
    desk.add("beside it", num_prompt=10, max_tokens=40, may_wait=False, tenant="other")
    desk.turn()
    with pytest.raises(CapacityExceeded):
        desk.add("no place", num_prompt=10, may_wait=False)
    desk.run_to_end()


def test_a_sequence_that_may_not_wait_is_refused_for_want_of_pages_but_not_for_cached_ones() -> (
    None
):
    desk = Desk(num_pages=8, max_batch=4, chunk_tokens=600)
    desk.add("past", prompt=[1] * 500, max_tokens=1, tenant="past")
    desk.run_to_end()
    assert desk.pool.num_free < 4
    desk.add("holder", prompt=[2] * 300, max_tokens=20, tenant="holder", may_wait=False)
    desk.turn()
    with pytest.raises(CapacityExceeded):
        desk.add("large", prompt=[3] * 300, max_tokens=1, tenant="large", may_wait=False)
    desk.add("small", prompt=[3] * 60, max_tokens=1, tenant="large", may_wait=False)
    desk.run_to_end()


@pytest.mark.parametrize("max_waiting", [0, 1, 3])
def test_a_tenants_queue_has_a_bound_of_its_own(max_waiting: int) -> None:
    desk = Desk(max_batch=1, max_waiting=100)
    desk.add("running", num_prompt=5, max_tokens=30)
    desk.turn()
    for n in range(max_waiting):
        desk.add(f"waits-{n}", num_prompt=5, max_waiting=max_waiting)
    with pytest.raises(CapacityExceeded):
        desk.add("too many", num_prompt=5, max_waiting=max_waiting)
    desk.add("of another", num_prompt=5, tenant="other", max_waiting=1)
    desk.run_to_end()


def test_who_was_preempted_is_let_in_again_whatever_its_queue() -> None:
    desk = Desk(max_batch=1, max_waiting=1)
    desk.add("running", num_prompt=5, max_tokens=30)
    desk.turn()
    desk.add("waits", num_prompt=5)
    desk.add("again", num_prompt=5, may_wait=False, max_waiting=0, is_again=True)
    desk.run_to_end()
    assert desk.finished == ["running", "waits", "again"]


def test_a_refusal_to_wait_is_told_as_capacity() -> None:
    loop = an_engine(max_batch=1)
    loop.submit(a_submit("running", max_tokens=20, stop_token_ids=()))
    loop.turn()
    loop.submit(a_submit("busy", may_wait=False))
    transcript = run_to_end(loop)
    assert transcript.failed["busy"].reason == "capacity"
    assert "running" in transcript.finished


@pytest.mark.parametrize("separate_pools", [False, True])
def test_what_may_not_wait_runs_on_an_idle_node(separate_pools: bool) -> None:
    loop = an_engine(separate_pools=separate_pools)
    loop.submit(a_submit("r", may_wait=False, max_waiting=0))
    assert "r" in run_to_end(loop).finished


def test_a_policy_is_what_the_scheduler_is_given() -> None:
    policy = VirtualCounters()
    assert Desk(policy=policy).scheduler.policy is policy
