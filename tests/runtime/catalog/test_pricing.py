from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given, strategies as st

from tenantry_runtime.catalog import (
    FREE,
    Prices,
    TokenPrices,
    cost,
    load_catalog,
    neurons,
    token_prices,
)
from tenantry_runtime.core import Usage

USD_PER_MILLION = st.floats(min_value=0, max_value=1e6)
COUNTS = st.integers(min_value=0, max_value=1 << 24)


@st.composite
def usages(draw: st.DrawFn) -> Usage:
    prompt, completion = draw(COUNTS), draw(COUNTS)
    return Usage(
        prompt_tokens=prompt,
        completion_tokens=completion,
        cached_tokens=draw(st.integers(min_value=0, max_value=prompt)),
        reasoning_tokens=draw(st.integers(min_value=0, max_value=completion)),
    )


@given(USD_PER_MILLION, USD_PER_MILLION | st.none(), USD_PER_MILLION)
def test_a_price_is_the_nearest_whole_pico_usd_a_token(
    usd_input: float, usd_cached: float | None, usd_output: float
) -> None:
    prices = token_prices(Prices(input=usd_input, cached_input=usd_cached, output=usd_output))

    for usd, pico in zip(
        (usd_input, usd_input if usd_cached is None else usd_cached, usd_output),
        prices,
        strict=True,
    ):
        per_token = Fraction(usd) / 10**6
        assert abs(Fraction(pico, 10**12) - per_token) <= Fraction(1, 2 * 10**12)


@given(usages(), USD_PER_MILLION, USD_PER_MILLION, USD_PER_MILLION)
def test_a_cost_is_tokens_times_prices_exactly(
    usage: Usage, usd_input: float, usd_cached: float, usd_output: float
) -> None:
    prices = token_prices(Prices(input=usd_input, cached_input=usd_cached, output=usd_output))

    usd = (
        (usage.prompt_tokens - usage.cached_tokens) * Fraction(prices.input, 10**12)
        + usage.cached_tokens * Fraction(prices.cached, 10**12)
        + usage.completion_tokens * Fraction(prices.output, 10**12)
    )
    assert Fraction(cost(usage, prices), 10**12) == usd
    assert neurons(cost(usage, prices)) == pytest.approx(float(usd / Fraction(11, 10**6)))


@given(usages())
def test_the_dearest_cost_of_a_context_that_exists_fits_64_bits(usage: Usage) -> None:
    dearest = token_prices(Prices(input=1e6, output=1e6))
    num_tokens = usage.prompt_tokens + usage.completion_tokens

    # a million tokens of each is more than any model's context
    if num_tokens <= 1 << 21:
        assert cost(usage, dearest) < 1 << 63


# Workers AI's own table: neurons per million tokens
@pytest.mark.parametrize(
    ("usd", "neurons_per_million"),
    [
        (0.95, 86_364),
        (0.16, 14_545),
        (4.00, 363_636),
        (1.40, 127_273),
        (0.26, 23_636),
        (4.40, 400_000),
    ],
)
def test_neurons_per_million_tokens_are_those_of_cloudflares_table(
    usd: float, neurons_per_million: int
) -> None:
    prices = token_prices(Prices(input=usd, output=0))
    usage = Usage(prompt_tokens=10**6, completion_tokens=0)

    assert round(neurons(cost(usage, prices))) == neurons_per_million


def test_a_model_without_prices_costs_nothing() -> None:
    assert token_prices(None) == FREE == TokenPrices(0, 0, 0)
    assert cost(Usage(prompt_tokens=7, completion_tokens=9, cached_tokens=3), FREE) == 0


def test_the_models_that_come_along_have_the_list_prices() -> None:
    kimi, glm = (token_prices(entry.prices) for entry in load_catalog().entries)

    # 0.95, 0.16, 4.00 and 1.40, 0.26, 4.40 USD per million tokens
    assert kimi == (950_000, 160_000, 4_000_000)
    assert glm == (1_400_000, 260_000, 4_400_000)
