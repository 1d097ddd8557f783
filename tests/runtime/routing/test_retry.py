from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from tenantry_runtime.routing.retry import (
    MAX_SAVED,
    RESERVE,
    RetryBudget,
    TokenBucket,
)

# (tenant, member, whether the request fails and asks for a retry)
requests = st.lists(
    st.tuples(st.sampled_from("abc"), st.sampled_from("xyz"), st.booleans()), max_size=400
)


@given(requests)
def test_attempts_are_at_most_one_and_a_fifth_of_the_requests(
    made: list[tuple[str, str, bool]],
) -> None:
    budget = RetryBudget()
    num_retries = 0
    by_tenant = dict.fromkeys("abc", 0)
    by_member = dict.fromkeys("xyz", 0)
    for num_requests, (tenant, member, fails) in enumerate(made, 1):
        budget.earn(tenant)
        budget.earn_at(member)
        if fails and budget.spend(tenant, member):
            num_retries += 1
            by_tenant[tenant] += 1
            by_member[member] += 1
        assert num_retries <= max(RESERVE, 0.2 * num_requests)

    for name, retries in by_tenant.items():
        assert retries <= max(RESERVE, 0.2 * sum(tenant == name for tenant, _, _ in made))
    for name, retries in by_member.items():
        assert retries <= max(RESERVE, 0.2 * sum(member == name for _, member, _ in made))


def test_every_fifth_request_pays_for_a_retry() -> None:
    bucket = TokenBucket(reserve=0)
    for _ in range(4):
        bucket.earn()
    assert not bucket.can_spend

    bucket.earn()

    assert bucket.can_spend
    bucket.spend()
    assert not bucket.can_spend


def test_a_failing_member_uses_up_nobody_elses_retries() -> None:
    budget = RetryBudget(reserve=1)
    for _ in range(100):
        budget.earn("tenant")
        budget.earn_at("good")
    assert budget.spend("tenant", "bad")

    assert not budget.spend("tenant", "bad")
    assert budget.spend("tenant", "good")
    # a hundred requests have earned twenty, one of which pays back what was lent
    assert budget.statistics().num_left == pytest.approx(20 - 2)
    assert budget.statistics().num_refused == 1


def test_no_more_is_saved_than_a_bound() -> None:
    bucket = TokenBucket()
    for _ in range(10_000):
        bucket.earn()

    num_spent = 0
    while bucket.can_spend:
        bucket.spend()
        num_spent += 1

    assert num_spent == MAX_SAVED
