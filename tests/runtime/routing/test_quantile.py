from __future__ import annotations

import numpy as np
from hypothesis import given, strategies as st

from tenantry_runtime.routing.quantile import (
    UNKNOWN_TOKENS,
    WINDOW,
    OutputLengths,
    RunningQuantile,
)


@given(st.lists(st.integers(0, 5000), min_size=1, max_size=3 * WINDOW))
def test_the_90th_percentile_of_the_latest_values_is_numpys(values: list[int]) -> None:
    running = RunningQuantile()
    for value in values:
        running.add(value)

    assert running.value == np.percentile(values[-WINDOW:], 90, method="inverted_cdf")


def test_there_is_none_of_nothing() -> None:
    assert RunningQuantile().value is None


def test_an_answer_is_expected_to_be_like_others_of_its_tenant_and_model() -> None:
    lengths = OutputLengths()
    for num_tokens in range(1, 11):
        lengths.add("tenant", "model", num_tokens)

    assert lengths.expected("tenant", "model", None) == 9
    assert lengths.expected("tenant", "model", 4) == 4
    assert lengths.expected("other", "model", None) == UNKNOWN_TOKENS
    assert lengths.expected("tenant", "other", 1000) == UNKNOWN_TOKENS


def test_the_longest_unused_is_forgotten_first() -> None:
    lengths = OutputLengths(max_keys=2)
    for tenant in ("a", "b", "a", "c"):
        lengths.add(tenant, "model", 7)

    expected = {tenant: lengths.expected(tenant, "model", None) for tenant in "abc"}

    assert expected == {"a": 7, "b": UNKNOWN_TOKENS, "c": 7}
