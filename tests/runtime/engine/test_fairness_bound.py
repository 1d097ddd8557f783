"""No two tenants that always have work drift further apart than `docs/fairness.md` proves."""

from __future__ import annotations

from random import Random

from hypothesis import given, strategies as st

from support.fairness import Traffic, a_world, always_backlogged

NUM_TURNS = 120


def widest(traffic: Traffic) -> dict[tuple[str, str], tuple[float, float]]:
    """Run; return for each pair the widest difference in service over any stretch, and the bound."""
    pairs = list(always_backlogged(traffic))
    desk = traffic.desk
    spans = {pair: [0.0, 0.0] for pair in pairs}
    for _ in range(NUM_TURNS):
        traffic.send()
        desk.turn()
        for one, other in pairs:
            assert desk.num_waiting(one) and desk.num_waiting(other)
            lead = normal(traffic, one) - normal(traffic, other)
            span = spans[one, other]
            span[0], span[1] = min(span[0], lead), max(span[1], lead)
    return {
        (one, other): (span[1] - span[0], bound(traffic, one) + bound(traffic, other))
        for (one, other), span in spans.items()
    }


def normal(traffic: Traffic, tenant: str) -> float:
    return traffic.desk.served[tenant] / traffic.habits[tenant].share.weight


def bound(traffic: Traffic, tenant: str) -> float:
    """All places taken by the costliest of its sequences, and what it may be ahead when it is admitted."""
    largest = traffic.desk.max_batch * traffic.largest[tenant]
    return traffic.max_lead + largest / traffic.habits[tenant].share.weight


@given(seed=st.integers(0, 2**32))
def test_the_difference_in_service_never_exceeds_the_bound(seed: int) -> None:
    for difference, most in widest(a_world(Random(seed))).values():
        assert difference <= most
