"""The table of policies: what it shares out, and that it tells them apart."""

from __future__ import annotations

from random import Random

import pytest

from support.fairness import CountingDesk, Habits, Traffic
from tenantry_recipes.bench import fairness
from tenantry_recipes.bench.fairness import CONTENDERS, FirstCome, Workload, max_min, measured
from tenantry_runtime.core import Share


@pytest.mark.parametrize(
    ("wanted", "fair"),
    [
        ({"a": 1.0, "b": 10.0, "c": 10.0}, {"a": 1.0, "b": 4.0, "c": 4.0}),
        ({"a": 1.0, "b": 2.0}, {"a": 1.0, "b": 2.0}),
        ({"a": 9.0, "b": 9.0, "c": 9.0}, {"a": 3.0, "b": 3.0, "c": 3.0}),
    ],
)
def test_max_min_gives_to_each_what_takes_nothing_from_who_wants_less(
    wanted: dict[str, float], fair: dict[str, float]
) -> None:
    assert max_min(wanted, 9.0) == fair


def test_all_policies_serve_the_same_requests() -> None:
    workload = Workload(duration_s=5.0, name="shared prefixes")
    once, again = workload.requests(Share()), workload.requests(Share(guaranteed=0.1))
    assert [(r.trace, r.tenant) for r in once] == [(r.trace, r.tenant) for r in again]
    flood = sum(request.tenant == fairness.FLOOD for request in once)
    polite = sum(request.tenant == "polite-0" for request in once)
    # 20 shares to 0.6 times 4, as their prompts cost a quarter
    assert flood / polite == pytest.approx(20 / 2.4, rel=0.5)


def test_a_flood_delays_others_where_the_first_come_is_served_first_and_not_here() -> None:
    workload = Workload(duration_s=10.0, name="no shared prefixes")
    arrival, _, ours, *_ = (measured(workload, contender) for contender in CONTENDERS)
    assert max(ours.first_token_s) < min(arrival.first_token_s[10:])
    assert arrival.jain < 0.6 < 0.9 < ours.jain


def test_cached_prompts_are_not_held_against_a_tenant_here() -> None:
    workload = Workload(duration_s=12.0, name="shared prefixes")
    _, naive, ours, *_ = (measured(workload, contender) for contender in CONTENDERS)
    assert sum(ours.first_token_s) < 0.8 * sum(naive.first_token_s)


def test_without_counters_tenants_that_always_have_work_drift_apart_without_bound() -> None:
    """What the bound of `tests/runtime/engine/test_fairness_bound.py` would not hold for."""
    desk = CountingDesk(num_pages=20, max_batch=2, chunk_tokens=64, policy=FirstCome())
    traffic = Traffic(Random(0), desk)
    for tenant, num_prompt in (("short", 5), ("long", 200)):
        traffic.habits[tenant] = Habits(
            share=Share(), num_prompt=num_prompt, max_tokens=1, num_kept=2, rate=0, num_shared=0
        )
    for _ in range(200):
        traffic.send()
        desk.turn()
    bound = sum(desk.max_batch * largest for largest in traffic.largest.values())
    assert desk.served["long"] - desk.served["short"] > 3 * bound
