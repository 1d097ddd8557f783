"""How the terms of a plan and a tenant's exceptions come together."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, strategies as st
from msgspec import UNSET, to_builtins

from tenantry_runtime.core import Share
from tenantry_runtime.errors import InvalidInput
from tenantry_runtime.tenancy import Plan, Quota
from tenantry_runtime.tenancy.terms import changed, leaves, to_plan

GLM = "@cf/zai-org/glm-5.2"


def test_an_exception_beats_the_plan_in_its_own_key_alone() -> None:
    terms = {"quota": {"requests_per_minute": 300, "queue_depth": 4}, "daily_neurons": 100.0}

    plan = to_plan(terms, {"quota": {"requests_per_minute": 60}, "share": {"weight": 2.0}})

    assert plan == Plan(
        quota=Quota(requests_per_minute=60, queue_depth=4),
        daily_neurons=100.0,
        share=Share(weight=2.0),
    )


def test_null_lifts_a_limit_of_the_plan() -> None:
    plan = to_plan(
        {"quota": {"requests_per_minute": 300}}, {"quota": {"requests_per_minute": None}}
    )

    assert plan.quota.requests_per_minute is None


def test_an_exception_for_a_model_is_held_to_the_other_limits_of_its_tenant() -> None:
    terms = {"quota": {"requests_per_minute": 300, "queue_depth": 4}}
    overrides = {"quota": {"queue_depth": 2}, "models": {GLM: {"tokens_per_minute": 1000}}}

    quota = to_plan(terms, overrides).quota_of(GLM)

    assert quota == Quota(requests_per_minute=300, queue_depth=2, tokens_per_minute=1000)
    # the exceptions stay what they are: a later change of the plan reaches the model too
    assert overrides["models"] == {GLM: {"tokens_per_minute": 1000}}


def test_a_tenants_exception_for_a_model_adds_to_the_plans_for_it() -> None:
    terms = {"quota": {"queue_depth": 4}, "models": {GLM: {"context_tokens": 500}}}

    quota = to_plan(terms, {"models": {GLM: {"tokens_per_minute": 1000}}}).quota_of(GLM)

    assert quota == Quota(context_tokens=500, tokens_per_minute=1000)


@pytest.mark.parametrize(
    ("terms", "key"),
    [
        ({"quota": {"requests_per_minute": 0}}, "quota.requests_per_minute"),
        ({"quota": {"requests_per_hour": 5}}, "quota"),
        ({"share": {"weight": 0.0}}, "share.weight"),
        ({"share": {"guaranteed": 0.5, "ceiling": 0.2}}, "share.guaranteed"),
        ({"daily_neurons": -1.0}, "daily_neurons"),
        ({"price": 1}, "terms"),
    ],
    ids=["out of range", "unknown", "no weight", "over the ceiling", "negative", "at the top"],
)
def test_terms_that_are_wrong_are_refused_by_key(terms: dict[str, Any], key: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        to_plan(terms)

    assert refused.value.field == key


@pytest.mark.parametrize("key", ["quota", "models", "share"])
def test_exceptions_of_another_form_are_refused_by_key(key: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        to_plan({}, {key: 5})

    assert refused.value.field == key


def test_a_change_takes_a_value_away_and_the_table_that_says_nothing_any_more() -> None:
    document = {"quota": {"queue_depth": 4}, "daily_neurons": 1.0}

    result = changed(document, {("quota", "queue_depth"): UNSET}, plan={})

    assert result == {"daily_neurons": 1.0}
    assert document["quota"] == {"queue_depth": 4}


def test_a_plans_first_limit_for_a_model_keeps_those_of_all_models() -> None:
    document = {"quota": {"requests_per_minute": 300}}

    result = changed(document, {("models", GLM, "queue_depth"): 2})

    assert result["models"] == {GLM: {"requests_per_minute": 300, "queue_depth": 2}}
    assert changed(result, {("models", GLM): UNSET}) == document


limits = st.none() | st.integers(1, 1000)
quotas = st.fixed_dictionaries({}, optional={"requests_per_minute": limits, "queue_depth": limits})


@given(quotas, quotas)
def test_each_value_is_the_tenants_where_it_has_one_and_the_plans_elsewhere(
    terms: dict[str, int | None], overrides: dict[str, int | None]
) -> None:
    held = to_plan({"quota": terms}, {"quota": overrides}).quota

    for key in ("requests_per_minute", "queue_depth"):
        wanted = overrides[key] if key in overrides else terms.get(key)
        assert getattr(held, key) == wanted


def test_leaves_name_every_value_by_its_path() -> None:
    plan = Plan(daily_neurons=5.0, models={GLM: Quota(queue_depth=1)})

    assert dict(leaves(to_builtins(plan))) == {
        ("daily_neurons",): 5.0,
        ("models", GLM, "queue_depth"): 1,
    }
