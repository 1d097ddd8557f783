"""Which tenant is served next."""

from __future__ import annotations

import pytest

from tenantry_runtime.core import Share
from tenantry_runtime.engine.fairness import MAX_ABSENT, MAX_LEAD, MAX_TOTALS, VirtualCounters
from tenantry_runtime.engine.policy import Service, ServiceCost

UNIT = ServiceCost(input_token=1, output_token=4, page_second=0.5)


def given(policy: VirtualCounters, tenant: str, num_tokens: int) -> None:
    policy.charge(tenant, Service(input_tokens=num_tokens))


def come(policy: VirtualCounters, *tenants: str, weight: float = 1.0) -> None:
    for tenant in tenants:
        policy.enter(tenant, Share(weight=weight))
        policy.queue(tenant)


def go(policy: VirtualCounters, *tenants: str) -> None:
    for tenant in tenants:
        policy.unqueue(tenant)
        policy.leave(tenant)


def a_policy(**num_served: int) -> VirtualCounters:
    policy = VirtualCounters(UNIT)
    come(policy, *num_served)
    for tenant, num_tokens in num_served.items():
        given(policy, tenant, num_tokens)
    return policy


def test_the_tenant_that_was_given_least_comes_first() -> None:
    policy = a_policy(acme=30, globex=10, initech=20)
    assert policy.order(["acme", "globex", "initech"]) == ["globex", "initech", "acme"]
    assert policy.order(["acme", "initech"]) == ["initech", "acme"]


def test_among_equals_who_entered_first_comes_first() -> None:
    policy = a_policy(zeta=0, alpha=0, mid=0)
    assert policy.order(["alpha", "mid", "zeta"]) == ["zeta", "alpha", "mid"]


def test_a_newcomer_starts_at_the_least_of_those_that_ask() -> None:
    policy = a_policy(acme=100, globex=70)
    come(policy, "late")
    assert policy.order(["acme", "globex", "late"]) == ["globex", "late", "acme"]
    given(policy, "late", 31)
    assert policy.order(["acme", "globex", "late"]) == ["globex", "acme", "late"]


def test_who_runs_and_does_not_ask_holds_nobody_down() -> None:
    policy = a_policy(acme=100, modest=1)
    policy.unqueue("modest")
    come(policy, "late")
    given(policy, "late", 1)
    assert policy.order(["acme", "late"]) == ["acme", "late"]


def test_going_away_for_a_moment_forgives_nothing() -> None:
    policy = a_policy(acme=0, greedy=500)
    go(policy, "greedy")
    come(policy, "greedy")
    given(policy, "acme", 499)
    assert policy.order(["acme", "greedy"]) == ["acme", "greedy"]
    given(policy, "acme", 2)
    assert policy.order(["acme", "greedy"]) == ["greedy", "acme"]


def test_not_to_have_asked_earns_nothing() -> None:
    policy = a_policy(acme=0, idle=0)
    go(policy, "idle")
    given(policy, "acme", 1000)
    come(policy, "idle")
    given(policy, "idle", 1)
    assert policy.order(["acme", "idle"]) == ["acme", "idle"]


def test_where_nobody_asks_one_starts_where_the_last_left_off() -> None:
    policy = a_policy(acme=300)
    policy.unqueue("acme")
    # its answer is still being given
    given(policy, "acme", 200)
    come(policy, "late", "early")
    policy.queue("acme")
    given(policy, "late", 10)
    assert policy.order(["late", "acme", "early"]) == ["early", "acme", "late"]


def test_a_weight_is_what_a_tenant_gets_for_each_unit_of_the_others() -> None:
    policy = VirtualCounters(UNIT)
    come(policy, "small")
    come(policy, "large", weight=3.0)
    served = []
    for _ in range(400):
        tenant = policy.order(["small", "large"])[0]
        given(policy, tenant, 10)
        served.append(tenant)
    assert served.count("large") == 300


def test_the_latest_weight_counts() -> None:
    policy = a_policy(acme=0, globex=0)
    policy.enter("acme", Share(weight=10.0))
    given(policy, "acme", 90)
    given(policy, "globex", 10)
    assert policy.order(["acme", "globex"]) == ["acme", "globex"]


@pytest.mark.parametrize(
    ("service", "cost"),
    [
        (Service(input_tokens=3), 3.0),
        (Service(cached_tokens=1000), 0.0),
        (Service(output_tokens=3), 12.0),
        (Service(page_seconds=3), 1.5),
        (Service(input_tokens=1, cached_tokens=5, output_tokens=2, page_seconds=4.0), 11.0),
    ],
)
def test_the_cost_of_service(service: Service, cost: float) -> None:
    assert UNIT.of(service) == cost
    policy = a_policy(acme=0)
    policy.charge("acme", service)
    assert policy.totals() == {"acme": cost}


def test_a_negative_cost_is_refused() -> None:
    with pytest.raises(ValueError, match="page_second"):
        ServiceCost(page_second=-1)


def test_service_elsewhere_counts_for_the_order_and_not_for_the_totals() -> None:
    policy = a_policy(acme=10, globex=0)
    policy.charge_elsewhere("globex", 100.0)
    assert policy.order(["acme", "globex"]) == ["acme", "globex"]
    assert policy.totals() == {"acme": 10.0, "globex": 0.0}


def test_service_elsewhere_of_a_tenant_that_is_unknown_here_is_kept_by_its_weight() -> None:
    policy = a_policy(acme=0)
    policy.charge_elsewhere("heavy", 100.0)
    come(policy, "heavy", weight=10.0)
    given(policy, "acme", 9)
    assert policy.order(["acme", "heavy"]) == ["acme", "heavy"]
    given(policy, "acme", 2)
    assert policy.order(["acme", "heavy"]) == ["heavy", "acme"]


def test_who_is_alone_elsewhere_owes_nothing_to_who_comes_here_later() -> None:
    policy = a_policy(acme=10)
    go(policy, "acme")
    policy.charge_elsewhere("flood", 1000.0)
    come(policy, "acme", "flood")
    given(policy, "acme", 1)
    assert policy.order(["acme", "flood"]) == ["flood", "acme"]


def test_what_is_owed_to_a_tenant_that_cannot_use_its_turn_is_limited() -> None:
    policy = a_policy(acme=0, ahead=int(MAX_LEAD) + 100)
    policy.admit("ahead", passed_over=["acme"])
    assert policy.counter("acme") == 100.0
    policy.admit("ahead")
    assert policy.counter("acme") == 100.0


def test_a_tenant_far_ahead_does_not_overtake() -> None:
    policy = a_policy(waiting=0, near=int(MAX_LEAD), far=int(MAX_LEAD) + 1)
    assert policy.may_overtake("near", "waiting")
    assert not policy.may_overtake("far", "waiting")


def test_counters_of_tenants_that_are_gone_take_bounded_memory() -> None:
    policy = a_policy(patient=0)
    for n in range(3 * MAX_ABSENT):
        come(policy, f"t{n}")
        given(policy, f"t{n}", 1 + n)
        go(policy, f"t{n}")
    last = f"t{3 * MAX_ABSENT - 1}"
    assert policy.counter(last) == 3 * MAX_ABSENT
    assert policy.num_kept <= 2 * MAX_ABSENT + 100
    assert len(policy.totals()) == MAX_TOTALS
    assert last in policy.totals()
    assert "t0" not in policy.totals()


def test_counters_that_the_others_have_passed_are_not_kept() -> None:
    policy = a_policy(patient=0)
    for n in range(1000):
        come(policy, f"t{n}")
        given(policy, f"t{n}", 1)
        go(policy, f"t{n}")
        given(policy, "patient", 2)
    assert policy.num_kept < 100
