"""Slots go round: no two pages in one, none lost, nobody starved."""

from __future__ import annotations

from hypothesis import given, strategies as st

from tenantry_runtime.pool.push_credits import Claim, Credits

NUM_SLOTS = 10


def test_credit_is_given_for_pages_that_are_there_only() -> None:
    slots = Credits(NUM_SLOTS)
    claim = slots.open()
    assert claim.num_promised == 0

    assert slots.ask(claim, 2) == {claim}
    assert claim.num_promised == 2


def test_one_stream_gets_at_most_half_of_the_slots() -> None:
    slots = Credits(NUM_SLOTS)
    greedy = slots.open()
    slots.ask(greedy, 1_000_000)

    assert len(greedy.promised) == NUM_SLOTS // 2
    assert slots.ask(slots.open(), 1)


def test_streams_are_served_in_turn() -> None:
    slots = Credits(2)
    claims = [slots.open() for _ in range(3)]
    for claim in claims:
        slots.ask(claim, 100)
    for _ in range(30):
        holder = min((c for c in claims if c.promised), key=lambda claim: claim.num_promised)
        slot = slots.take(holder)
        assert slot is not None
        slots.ask(holder, 100)
        slots.free([slot])

    counts = [claim.num_promised for claim in claims]
    assert max(counts) - min(counts) <= 1


def test_what_a_stream_leaves_goes_to_those_that_wait() -> None:
    slots = Credits(2)
    leaving, waiting = slots.open(), slots.open()
    slots.ask(leaving, 1)
    other = slots.open()
    slots.ask(other, 1)
    slots.ask(waiting, 1)
    assert waiting.num_promised == 0

    assert slots.close(leaving) == {waiting}
    assert slots.statistics().num_free == 0


@given(st.data())
def test_every_slot_is_in_one_place_at_all_times(data: st.DataObject) -> None:
    slots = Credits(NUM_SLOTS)
    claims: list[Claim] = []
    used: list[int] = []
    for _ in range(data.draw(st.integers(0, 60))):
        match data.draw(st.sampled_from(["open", "close", "ask", "use", "free"])):
            case "open":
                claims.append(slots.open())
            case "close" if claims:
                slots.close(claims.pop(data.draw(st.integers(0, len(claims) - 1))))
            case "ask" if claims:
                claim = data.draw(st.sampled_from(claims))
                slots.ask(claim, claim.num_ready + data.draw(st.integers(0, 5)))
            case "use" if any(claim.promised for claim in claims):
                claim = data.draw(st.sampled_from([c for c in claims if c.promised]))
                slot = slots.take(claim)
                assert slot is not None
                used.append(slot)
                slots.ask(claim, claim.num_ready)
            case "free" if used:
                slots.free([used.pop()])
        promised = [slot for claim in claims for slot in claim.promised]
        now = slots.statistics()
        assert len(set(promised + used)) == len(promised + used)
        assert now.num_free + len(promised) + len(used) == NUM_SLOTS
        # no slot is idle while somebody who may have it waits
        may_have = [c for c in claims if c.num_ready > c.num_promised and len(c.promised) < 5]
        assert not (now.num_free and may_have)
