"""Work in the background has what nobody else wants, and nobody else is later for it."""

from __future__ import annotations

from random import Random

import msgspec
import pytest
from hypothesis import example, given, strategies as st

from support.background import LayeredDesk
from support.engine import a_submit
from tenantry_runtime.core import PAGE_TOKENS, Share
from tenantry_runtime.engine.sequence import Delivering, Running, Sequence, Waiting
from tenantry_runtime.errors import CapacityExceeded
from tenantry_runtime.pool.messages import Preempted


def in_background(desk: LayeredDesk, num: int, *, num_prompt: int = 60, tenant: str = "b") -> None:
    for n in range(num):
        prompt = [1 + n % 90] * num_prompt
        desk.add(f"{tenant}-{n}", prompt=prompt, max_tokens=40, tenant=tenant, is_background=True)


def run_until_full(desk: LayeredDesk, num: int) -> None:
    for _ in range(50):
        if sum(isinstance(s.state, Running) for s in desk.live.values()) == num:
            return
        desk.turn()
    raise AssertionError(f"never {num} at one time")


def test_alone_the_background_has_everything() -> None:
    desk = LayeredDesk(num_pages=16, max_batch=4)
    in_background(desk, 12)
    desk.run_to_end()
    assert len(desk.finished) == 12
    assert desk.scheduler.statistics().num_preemptions == 0


def test_one_who_comes_has_the_next_chunk_though_the_background_holds_all_places() -> None:
    desk = LayeredDesk(num_pages=16, max_batch=4)
    in_background(desk, 20)
    run_until_full(desk, 4)
    desk.add("somebody", prompt=[99] * 20, max_tokens=5)
    before = desk.num_turns
    desk.turn()
    assert desk.first_planned["somebody"] == before + 1
    assert desk.scheduler.statistics().num_preemptions == 1


def test_one_who_comes_has_the_next_chunk_though_the_background_holds_all_pages() -> None:
    desk = LayeredDesk(num_pages=8, max_batch=8, chunk_tokens=256)
    in_background(desk, 20, num_prompt=70)
    run_until_full(desk, 3)
    assert desk.pool.num_free + desk.prefixes.num_evictable < 3
    desk.add("somebody", prompt=[99] * 3 * PAGE_TOKENS, max_tokens=5)
    before = desk.num_turns
    desk.turn()
    assert desk.first_planned["somebody"] == before + 1
    # as many as it takes, the youngest first
    assert isinstance(desk.sequences["b-0"].state, Running)
    desk.run_to_end()


def test_who_grows_takes_pages_of_the_background_before_anybody_elses() -> None:
    desk = LayeredDesk(num_pages=6, max_batch=6, chunk_tokens=64)
    desk.add("old", prompt=[7] * 60, max_tokens=120, tenant="one")
    desk.add("young", prompt=[8] * 60, max_tokens=120, tenant="two")
    desk.turn()
    desk.turn()
    desk.add("b", prompt=[9] * 50, max_tokens=150, is_background=True)
    while desk.live.keys() & {"old", "young"}:
        desk.turn()
        states = (desk.sequences["old"].state, desk.sequences["young"].state)
        assert not any(isinstance(state, Waiting) for state in states)
    assert desk.scheduler.statistics().num_preemptions > 0
    desk.run_to_end()


def test_the_background_never_takes_pages_from_anybody() -> None:
    desk = LayeredDesk(num_pages=4, max_batch=4, chunk_tokens=64)
    desk.add("somebody", prompt=[7] * 60, max_tokens=150)
    desk.turn()
    in_background(desk, 4, num_prompt=60)
    while "somebody" in desk.live:
        desk.turn()
        assert not isinstance(desk.sequences["somebody"].state, Waiting)
    desk.run_to_end()
    assert len(desk.finished) == 5


def test_what_a_tenant_runs_in_the_background_is_on_no_account_of_its_own() -> None:
    desk = LayeredDesk(num_pages=16, max_batch=8, chunk_tokens=64)
    desk.add("work", prompt=[5] * 300, max_tokens=50, tenant="busy", is_background=True)
    for _ in range(20):
        desk.turn()
    desk.add("mine", prompt=[6] * 64, max_tokens=4, tenant="busy")
    desk.add("other", prompt=[7] * 64, max_tokens=4, tenant="idle")
    desk.turn()
    # among equals, who came first
    assert desk.first_planned["mine"] < desk.first_planned.get("other", desk.num_turns + 1)


def test_a_tenants_ceiling_holds_for_its_background_and_for_the_rest_apart() -> None:
    share = Share(ceiling=0.25)
    desk = LayeredDesk(num_pages=16, max_batch=8, chunk_tokens=512)
    for n in range(4):
        desk.add(
            f"b-{n}",
            prompt=[n + 1] * 100,
            max_tokens=20,
            tenant="t",
            share=share,
            is_background=True,
        )
    desk.turn()
    assert desk.scheduler.num_admitted == 2, "two of two pages each are a quarter"
    desk.add("mine", prompt=[9] * 200, max_tokens=20, tenant="t", share=share)
    before = desk.num_turns
    desk.turn()
    assert desk.first_planned["mine"] == before + 1
    desk.run_to_end()


def test_tenants_in_the_background_share_it_by_weight() -> None:
    desk = LayeredDesk(num_pages=64, max_batch=2, chunk_tokens=64)
    shares = {"heavy": Share(weight=3.0), "light": Share(weight=1.0)}
    for n in range(60):
        for tenant, share in shares.items():
            desk.add(
                f"{tenant}-{n}",
                prompt=[n + 1] * 60,
                max_tokens=1,
                tenant=tenant,
                share=share,
                is_background=True,
            )
    while len(desk.finished) < 40:
        desk.turn()
    num_heavy = sum(name.startswith("heavy") for name in desk.finished[:40])
    assert num_heavy == pytest.approx(30, abs=3)


def test_a_queue_full_of_the_background_has_room_for_others() -> None:
    desk = LayeredDesk(num_pages=16, max_batch=1, max_waiting=3)
    in_background(desk, 3)
    with pytest.raises(CapacityExceeded):
        desk.add("b-9", num_prompt=5, tenant="b", is_background=True)
    for n in range(3):
        desk.add(f"somebody-{n}", num_prompt=5)
    with pytest.raises(CapacityExceeded):
        desk.add("somebody-3", num_prompt=5)
    desk.run_to_end()


def test_who_will_not_wait_is_let_in_where_only_the_background_is_in_its_way() -> None:
    desk = LayeredDesk(num_pages=8, max_batch=2, chunk_tokens=64)
    in_background(desk, 6)
    run_until_full(desk, 2)
    desk.add("hasty", num_prompt=60, may_wait=False)
    desk.turn()
    assert desk.first_planned["hasty"] == desk.num_turns
    with pytest.raises(CapacityExceeded):
        desk.add("too many", num_prompt=8 * PAGE_TOKENS, may_wait=False)
    desk.run_to_end()


def test_what_the_background_has_cached_goes_before_anything_of_anybody_else() -> None:
    desk = LayeredDesk(num_pages=10, max_batch=4, chunk_tokens=512)
    for n in range(2):
        desk.add(f"a-{n}", prompt=[n + 1] * 130, max_tokens=1, tenant="a")
    desk.add("b", prompt=[9] * 260, max_tokens=1, tenant="b", is_background=True)
    desk.run_to_end()
    desk.add("more", prompt=[20] * 380, max_tokens=1, tenant="c")
    desk.run_to_end()
    assert [tree.num_pages for tree in desk.prefixes.trees if tree.tenant == "a"] == [4]


def test_a_prompt_that_waits_to_be_handed_over_gives_its_pages_back() -> None:
    desk = LayeredDesk(num_pages=4, max_batch=4, chunk_tokens=256)
    submit = a_submit("b", prompt=[1] * 200, is_background=True)
    waits = Sequence(
        msgspec.structs.replace(submit, part="prefill"),
        arrival=100,
        owners=desk.owners,
        queued_s=0.0,
    )
    desk.scheduler.add(waits)
    plan = desk.scheduler.plan("prefill", 0.0)
    assert plan is not None
    desk.commit(plan)
    assert isinstance(waits.state, Delivering)
    desk.add("somebody", prompt=[2] * 200, max_tokens=4)
    desk.turn()
    assert desk.first_planned["somebody"] == 1
    assert Preempted(request_id="b") in desk.scheduler.take_reports()
    desk.run_to_end()


@given(seed=st.integers(0, 2**32))
@example(34952)
def test_each_beginning_is_later_by_a_turn_at_most_for_what_is_in_the_background(seed: int) -> None:
    """Twins of the same traffic, one of them with a flood in the background.

    That turn can change whose turn it is next among tenants that have been given equally much, so that
    two change places. So it is not each request that is compared, but each beginning: the first, the
    second and so on.
    """
    rng = Random(seed)
    size = {
        "num_pages": rng.randint(6, 20),
        "max_batch": rng.randint(1, 6),
        "chunk_tokens": rng.choice([32, 64, 100, 200]),
    }
    with_flood, without = LayeredDesk(**size), LayeredDesk(**size)
    in_background(with_flood, 40, num_prompt=rng.choice([20, 100, 150]))
    number = 0
    for _ in range(rng.randint(10, 120)):
        if rng.random() < 0.15:
            number += 1
            prompt = [100 + number] * rng.randint(1, 200)
            for desk in (with_flood, without):
                desk.add(
                    f"r{number}",
                    prompt=prompt,
                    max_tokens=1 + number % 50,
                    tenant=f"t{number % 3}",
                    share=Share(weight=1 + number % 2),
                )
        with_flood.turn()
        without.turn()
    for desk in (with_flood, without):
        desk.run_to_end(5000)
    beginnings = [
        sorted(desk.first_planned[f"r{n}"] for n in range(1, number + 1))
        for desk in (with_flood, without)
    ]
    later = [flooded - alone for flooded, alone in zip(*beginnings, strict=True)]
    assert max(later, default=0) <= 1, later
    assert with_flood.num_computed > 0
