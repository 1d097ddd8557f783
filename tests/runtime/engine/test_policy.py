"""Which tenant is served next."""

from __future__ import annotations

from tenantry_runtime.engine.policy import LeastServed


def a_policy(**num_served: int) -> LeastServed:
    policy = LeastServed()
    for tenant in num_served:
        policy.enter(tenant)
    for tenant, num_tokens in num_served.items():
        policy.charge(tenant, num_tokens)
    return policy


def test_the_tenant_that_was_given_fewest_tokens_comes_first() -> None:
    policy = a_policy(acme=30, globex=10, initech=20)
    assert policy.order(["acme", "globex", "initech"]) == ["globex", "initech", "acme"]
    assert policy.order(["acme", "initech"]) == ["initech", "acme"]


def test_among_equals_who_entered_first_comes_first() -> None:
    policy = a_policy(zeta=0, alpha=0, mid=0)
    assert policy.order(["alpha", "mid", "zeta"]) == ["zeta", "alpha", "mid"]


def test_a_newcomer_starts_at_the_least_of_those_present() -> None:
    policy = a_policy(acme=100, globex=70)
    policy.enter("late")
    assert policy.order(["acme", "globex", "late"]) == ["globex", "late", "acme"]
    policy.charge("late", 31)
    assert policy.order(["acme", "globex", "late"]) == ["globex", "acme", "late"]


def test_a_tenant_is_forgotten_with_its_last_sequence() -> None:
    policy = LeastServed()
    for _ in range(2):
        policy.enter("acme")
    policy.charge("acme", 100)
    policy.leave("acme")
    policy.enter("globex")
    policy.charge("globex", 50)
    assert policy.order(["acme", "globex"]) == ["acme", "globex"]
    policy.leave("acme")
    policy.enter("acme")
    assert policy.order(["acme", "globex"]) == ["globex", "acme"]
