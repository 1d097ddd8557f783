"""Guarantees are kept, ceilings hold nobody else up, and nobody is preempted for ever."""

from __future__ import annotations

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from support.engine import Transcript, a_submit, an_engine, expected_answer, run_to_end
from support.scheduling import Desk
from tenantry_runtime.core import PAGE_TOKENS, Share
from tenantry_runtime.engine.sequence import Running, Waiting

LENGTHS = st.integers(1, 200) | st.sampled_from([63, 64, 65, 127, 128, 129])
NUM_PAGES = 10
MAX_BATCH = 4

SHARES = {
    "promised": Share(guaranteed=0.4),
    "heavy": Share(weight=4.0, guaranteed=0.3),
    "capped": Share(ceiling=0.5),
    "plain": Share(),
    "light": Share(weight=0.25),
}


def pages_at_most(num_prompt: int, max_tokens: int) -> int:
    return -(-(num_prompt + max_tokens - 1) // PAGE_TOKENS)


def held(desk: Desk, tenant: str) -> int:
    """Return how many pages the tenant's sequences hold, each once."""
    mine = [
        s for s in desk.live.values() if s.tenant == tenant and not isinstance(s.state, Waiting)
    ]
    return len({index for s in mine for index in s.held.lease.indices})


class RoomMachine(RuleBasedStateMachine):
    """Tenants of all kinds in a pool that is too small for them. `Desk` checks every turn."""

    @initialize(chunk_tokens=st.sampled_from([16, 32, 300]), runs_ahead=st.booleans())
    def open(self, chunk_tokens: int, runs_ahead: bool) -> None:
        self.desk = Desk(
            num_pages=NUM_PAGES,
            max_batch=MAX_BATCH,
            chunk_tokens=chunk_tokens,
            runs_ahead=runs_ahead,
        )

    def send(self, num_prompt: int, max_tokens: int, tenant: str) -> None:
        request_id = f"{tenant}-{len(self.desk.sequences)}"
        # every prompt is another, or it would hold pages of the others
        prompt = [1 + len(self.desk.sequences)] * num_prompt
        self.desk.add(
            request_id, prompt=prompt, max_tokens=max_tokens, tenant=tenant, share=SHARES[tenant]
        )

    @rule(
        num_prompt=LENGTHS,
        max_tokens=st.integers(1, 120),
        tenant=st.sampled_from(["heavy", "capped", "plain", "light"]),
    )
    def add(self, num_prompt: int, max_tokens: int, tenant: str) -> None:
        self.send(num_prompt, max_tokens, tenant)

    @rule(num_prompt=st.integers(1, 100), max_tokens=st.integers(1, 28))
    def add_within_the_guarantee(self, num_prompt: int, max_tokens: int) -> None:
        """Of 4 pages and 1 place: never more than one at a time, of two pages."""
        if not any(s.tenant == "promised" for s in self.desk.live.values()):
            self.send(num_prompt, max_tokens, "promised")
            self.desk.turn()
            if self.desk.scheduler.must_settle:
                # others give their room back where no step is under way, which the next turn sees to
                self.desk.turn()
            [promised] = [s for s in self.desk.sequences.values() if s.tenant == "promised"][-1:]
            assert not isinstance(promised.state, Waiting), "it is there when the tenant asks"

    @rule(which=st.integers(0, 1000))
    def cancel(self, which: int) -> None:
        if live := sorted(self.desk.live):
            assert self.desk.scheduler.cancel(live[which % len(live)])

    @rule(num_turns=st.integers(1, 40))
    def turn(self, num_turns: int) -> None:
        for _ in range(num_turns):
            self.turn_once()

    def turn_once(self) -> None:
        before = {s.request_id for s in self.desk.live.values() if not isinstance(s.state, Waiting)}
        self.desk.turn()
        preempted = [
            s
            for s in self.desk.live.values()
            if isinstance(s.state, Waiting) and s.request_id in before
        ]
        assert not [s for s in preempted if s.tenant == "promised"], "it was within its guarantee"

    @invariant()
    def nobody_is_over_a_ceiling_with_more_than_one(self) -> None:
        mine = [
            s
            for s in self.desk.live.values()
            if s.tenant == "capped" and not isinstance(s.state, Waiting)
        ]
        assert len(mine) <= 1 or held(self.desk, "capped") <= NUM_PAGES // 2

    def teardown(self) -> None:
        if hasattr(self, "desk"):
            self.desk.run_to_end(max_turns=20_000)


TestRoomUnderAnySchedule = RoomMachine.TestCase


def until_a_preemption(desk: Desk) -> None:
    for _ in range(500):
        desk.turn()
        if desk.scheduler.statistics().num_preemptions:
            return
    raise AssertionError("there was room for all")


def states(desk: Desk) -> dict[str, str]:
    return {name: type(s.state).__name__ for name, s in desk.sequences.items()}


def full_pool(**num_sequences: int) -> Desk:
    """Return a pool of 8 pages, all taken by sequences of two pages each that still grow."""
    desk = Desk(num_pages=8, max_batch=8, chunk_tokens=600)
    for tenant, number in num_sequences.items():
        for n in range(number):
            prompt = [1 + len(desk.sequences)] * 100
            desk.add(f"{tenant}-{n}", prompt=prompt, max_tokens=28, tenant=tenant)
    desk.turn()
    assert desk.pool.num_free == 0
    return desk


def test_who_gives_way_is_of_the_tenant_furthest_over_its_share() -> None:
    desk = full_pool(greedy=3, modest=1)
    desk.add(
        "claim", prompt=[99] * 60, max_tokens=4, tenant="promised", share=Share(guaranteed=0.2)
    )
    desk.turn()
    assert states(desk) == {
        "greedy-0": "Running",
        "greedy-1": "Running",
        "greedy-2": "Waiting",
        "modest-0": "Running",
        "claim": "Running",
    }
    desk.run_to_end()


def test_weights_say_who_is_furthest_over_its_share() -> None:
    desk = Desk(num_pages=8, max_batch=8, chunk_tokens=600)
    for n in range(3):
        desk.add(f"a-{n}", prompt=[n + 1] * 100, max_tokens=28, tenant="a", share=Share(weight=9.0))
    desk.add("b-0", prompt=[9] * 100, max_tokens=28, tenant="b")
    desk.turn()
    desk.add("claim", prompt=[99] * 60, max_tokens=4, tenant="c", share=Share(guaranteed=0.2))
    desk.turn()
    # 6 of 8 pages with 9/11 of the weights, and 2 with 1/11
    assert states(desk)["b-0"] == "Waiting"
    assert all(states(desk)[f"a-{n}"] == "Running" for n in range(3))
    desk.run_to_end()


def test_nobody_within_its_own_guarantee_gives_way() -> None:
    desk = Desk(num_pages=8, max_batch=8, chunk_tokens=600)
    half = Share(guaranteed=0.5)
    for n in range(2):
        desk.add(f"a-{n}", prompt=[n + 1] * 100, max_tokens=28, tenant="a", share=half)
        desk.add(f"b-{n}", prompt=[n + 5] * 100, max_tokens=28, tenant="b")
    desk.turn()
    desk.add("c", prompt=[99] * 100, max_tokens=4, tenant="c", share=Share(guaranteed=0.25))
    desk.turn()
    assert states(desk) == {
        "a-0": "Running",
        "b-0": "Running",
        "a-1": "Running",
        "b-1": "Waiting",
        "c": "Running",
    }
    desk.run_to_end()


def test_guarantees_of_more_than_all_are_scaled_down() -> None:
    """Two tenants are promised all of it: each has half, and neither preempts the other for more."""
    desk = Desk(num_pages=8, max_batch=8, chunk_tokens=600)
    everything = Share(guaranteed=1.0)
    for n in range(4):
        desk.add(f"a-{n}", prompt=[n + 1] * 100, max_tokens=28, tenant="a", share=everything)
    desk.turn()
    for n in range(4):
        desk.add(f"b-{n}", prompt=[n + 9] * 100, max_tokens=28, tenant="b", share=everything)
    desk.turn()
    desk.turn()
    assert held(desk, "a") == held(desk, "b") == 4
    for _ in range(10):
        desk.turn()
    assert desk.scheduler.statistics().num_preemptions == 2
    desk.run_to_end()


def test_a_tenant_at_its_ceiling_holds_nobody_up() -> None:
    desk = Desk(num_pages=8, max_batch=8, chunk_tokens=600)
    for n in range(4):
        share = Share(ceiling=0.25, weight=1000.0)
        desk.add(f"capped-{n}", prompt=[n + 1] * 60, max_tokens=4, tenant="capped", share=share)
    desk.turn()
    assert held(desk, "capped") == 2
    desk.add("other", prompt=[9] * 300, max_tokens=4, tenant="other")
    desk.turn()
    assert states(desk)["other"] == "Running"
    desk.run_to_end()


def test_at_the_ceiling_a_tenants_younger_sequence_gives_way_to_its_older_one() -> None:
    desk = Desk(num_pages=16, max_batch=8, chunk_tokens=600)
    share = Share(ceiling=0.25)
    for name in ("older", "younger"):
        prompt = [len(name)] * 60
        desk.add(name, prompt=prompt, max_tokens=150, tenant="capped", share=share)
    until_a_preemption(desk)
    assert isinstance(desk.sequences["older"].state, Running)
    assert held(desk, "capped") == 3
    desk.run_to_end()
    assert desk.finished == ["older", "younger"]


@pytest.mark.parametrize("num_prompt", [100, 109])
def test_a_sequence_over_its_ceiling_alone_is_refused_as_too_long(num_prompt: int) -> None:
    loop = an_engine(num_pages=8)
    share = Share(ceiling=0.25)
    loop.submit(a_submit("r", prompt=[3] * num_prompt, max_tokens=20, share=share))
    transcript = run_to_end(loop)
    if num_prompt + 20 <= 2 * PAGE_TOKENS:
        assert "r" in transcript.finished
    else:
        assert transcript.failed["r"].reason == "context"
        assert "128" in transcript.failed["r"].message


def test_a_growing_sequence_takes_from_who_is_further_over_its_share_than_its_own_tenant() -> None:
    desk = Desk(num_pages=8, max_batch=8, chunk_tokens=600)
    for n in range(3):
        desk.add(f"greedy-{n}", prompt=[n + 1] * 60, max_tokens=150, tenant="greedy")
    desk.add("modest", prompt=[9] * 62, max_tokens=150, tenant="modest")
    until_a_preemption(desk)
    assert isinstance(desk.sequences["modest"].state, Running), "although it is the youngest"
    desk.run_to_end()


def test_cached_pages_within_a_guarantee_are_the_last_to_be_evicted() -> None:
    desk = Desk(num_pages=8, max_batch=2, chunk_tokens=600)
    promised = Share(guaranteed=0.5)
    desk.add("kept", prompt=[1] * 193, max_tokens=1, tenant="promised", share=promised)
    desk.run_to_end()
    desk.add("passing", prompt=[2] * 129, max_tokens=1, tenant="passing")
    desk.run_to_end()
    desk.add("present", prompt=[1] * 10, max_tokens=30, tenant="promised", share=promised)
    desk.turn()
    desk.add("large", prompt=[3] * 200, max_tokens=1, tenant="large")
    desk.turn()
    assert desk.prefixes.num_cached("promised", [1] * 193) == 192
    assert desk.prefixes.num_cached("passing", [2] * 129) < 128
    desk.run_to_end()


def test_a_decode_member_keeps_guarantees_too_and_nobodys_answer_suffers() -> None:
    loop = an_engine(separate_pools=True, num_pages=8, max_batch=8, chunk_tokens=128)
    floods = [
        a_submit(
            f"flood-{n}", prompt=[n + 1] * 65, max_tokens=60, tenant="flood", stop_token_ids=()
        )
        for n in range(4)
    ]
    for submit in floods:
        loop.submit(submit)
    transcript = Transcript()
    for _ in range(12):
        transcript.read(loop.turn())
    prefill, decode = (lane.scheduler for lane in loop.lanes)
    assert (prefill.num_admitted, decode.num_admitted) == (0, 4)
    share = Share(guaranteed=0.25)
    polite = a_submit("polite", prompt=[9] * 65, max_tokens=3, tenant="polite", share=share)
    loop.submit(polite)
    for _ in range(6):
        transcript.read(loop.turn())
    assert "polite" in transcript.tokens
    assert decode.statistics().num_preemptions == 1
    run_to_end(loop, transcript)
    for submit in (*floods, polite):
        assert transcript.tokens[submit.request_id] == expected_answer(submit)
