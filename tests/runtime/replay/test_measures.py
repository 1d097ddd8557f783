"""Percentiles and sums of what was measured."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from tenantry_runtime.replay.measures import Measured, percentile, summary


def measured(**fields: float | int) -> Measured:
    defaults: dict[str, float | int] = {
        "number": 0,
        "num_prompt": 100,
        "num_cached": 0,
        "num_output": 1,
        "sent_s": 0.0,
        "first_token_s": 1.0,
        "last_token_s": 1.0,
    }
    return Measured(**{**defaults, **fields})  # type: ignore[arg-type] # by name, as the caller has them


@pytest.mark.parametrize("number", [1, 2, 3, 10, 101, 1000])
@pytest.mark.parametrize("percent", [0, 50, 90, 99, 100])
def test_percentiles_are_numpys(number: int, percent: int) -> None:
    random = Random(number)
    values = [random.expovariate(1.0) for _ in range(number)]
    assert percentile(values, percent) == pytest.approx(float(np.percentile(values, percent)))


def test_nothing_has_no_percentile() -> None:
    with pytest.raises(ValueError, match="no values"):
        percentile([], 50)


def test_time_per_output_token_leaves_the_first_token_out() -> None:
    request = measured(num_output=5, first_token_s=2.0, last_token_s=4.0)
    assert request.ttft_s == 2.0
    assert request.tpot_s == 0.5


def test_a_single_token_has_no_time_per_output_token() -> None:
    assert measured(num_output=1).tpot_s is None


def test_a_summary_adds_up() -> None:
    whole = summary(
        [
            measured(num_cached=30, num_output=3, sent_s=1.0, first_token_s=2.0, last_token_s=3.0),
            measured(
                num_prompt=300, num_cached=50, sent_s=2.0, first_token_s=5.0, last_token_s=5.0
            ),
        ]
    )
    assert whole.hit_rate == 80 / 400
    assert whole.duration_s == 4.0
    assert whole.prompt_tokens_per_s == 100.0
    assert whole.output_tokens_per_s == 1.0
    assert whole.ttft_s is not None and whole.ttft_s[0] == 2.0
    assert whole.tpot_s == pytest.approx((0.5, 0.5, 0.5))


def test_nothing_sums_up_to_nothing() -> None:
    whole = summary([])
    assert (whole.hit_rate, whole.prompt_tokens_per_s, whole.ttft_s) == (0.0, 0.0, None)
