"""What tokens cost, in integers: a sum of costs is exact, in whatever order it is made.

| unit | |
|---|---|
| pico-USD | 10**-12 USD; prices are pico-USD a token, which is millionths of the catalog's USD a million |
| neuron | 0.000011 USD |
"""

from __future__ import annotations

from typing import NamedTuple

from tenantry_runtime.core import Usage

from .entry import Prices

PICO_PER_NEURON = 11_000_000

_PICO_PER_TOKEN = 1_000_000
"""Of 1 USD per million tokens."""


class TokenPrices(NamedTuple):
    """In pico-USD a token."""

    input: int = 0
    cached: int = 0
    output: int = 0


FREE = TokenPrices()
"""Of a model without prices."""


def token_prices(prices: Prices | None) -> TokenPrices:
    """Round a catalog's prices to pico-USD a token, once and for all."""
    if prices is None:
        return FREE
    cached = prices.input if prices.cached_input is None else prices.cached_input
    return TokenPrices(_rounded(prices.input), _rounded(cached), _rounded(prices.output))


def cost(usage: Usage, prices: TokenPrices) -> int:
    """Return what a request's tokens cost, in pico-USD."""
    return (
        (usage.prompt_tokens - usage.cached_tokens) * prices.input
        + usage.cached_tokens * prices.cached
        + usage.completion_tokens * prices.output
    )


def neurons(pico_usd: int) -> float:
    """Return a cost in neurons."""
    return pico_usd / PICO_PER_NEURON


def _rounded(usd_per_million: float) -> int:
    # in integers: a product of floats would be rounded before it is rounded
    numerator, denominator = usd_per_million.as_integer_ratio()
    return (2 * numerator * _PICO_PER_TOKEN + denominator) // (2 * denominator)
